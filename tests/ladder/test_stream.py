"""Payloads of wrong shapes, and the parts of reading a stream; what engines really send is in zoo/."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from onechip.ladder.records import RequestRecord
from onechip.ladder.stream import mend, read_exchange, spread
from onechip.ladder.wire import Exchange
from tests.ladder.zoo.events import DONE, HEAD, LAST_CHUNK, chunk, delta, event


def read(*payloads: Any) -> RequestRecord:
    arrivals = [(0, HEAD + b"".join(chunk(event(payload)) for payload in payloads) + LAST_CHUNK)]
    return read_exchange(Exchange(0, arrivals, 10), RequestRecord(0, ""), lambda text: len(text.split()))


@pytest.mark.parametrize(
    "choices",
    ["x", [None], {"a": 1}, [{"delta": {"content": 5}}], [{"delta": "x"}], [{"delta": {"tool_calls": [7]}}]],
)
def test_an_event_of_another_shape(choices: Any) -> None:
    record = read(delta(content="Hi"), {"choices": choices}, delta(finish="stop"), DONE)
    assert record.error is not None
    assert record.error.startswith("an event has another shape than OpenAI's: its choices: Expected")


@pytest.mark.parametrize("said", ["many", None, {"completion_tokens": "x", "prompt_tokens_details": [1]}])
def test_usage_of_another_shape_counts_as_none(said: Any) -> None:
    record = read(delta(content="Hi"), delta(finish="stop") | {"usage": said}, DONE)
    assert (record.error, record.output_tokens, record.cached_tokens) == (None, None, None)


def test_our_own_count_of_text_and_reasoning() -> None:
    assert read(delta(reasoning="a b", content="c"), delta(finish="stop")).counted_tokens == 2


def test_an_answer_cut_off_in_its_head_has_the_connection_s_own_error() -> None:
    cut = Exchange(0, [(5, HEAD[:20])], 9, error="stalled.")
    assert read_exchange(cut, RequestRecord(0, "")).error == "stalled."


def test_halves_of_characters() -> None:
    assert mend("\ud83d\ude00") == "😀"
    assert mend("a\ud83d") == "a\ufffd"
    assert mend("é\udcff") == "é\ufffd"


@given(st.text(st.characters(exclude_categories=["Cs"])), st.data())
def test_a_text_cut_anywhere_in_its_bytes_is_whole_again(text: str, data: st.DataObject) -> None:
    raw = text.encode()
    cut = data.draw(st.integers(0, len(raw)))
    halves = [half.decode("utf-8", "surrogateescape") for half in (raw[:cut], raw[cut:])]
    assert mend("".join(halves)) == text


@given(st.integers(0, 500), st.lists(st.integers(0, 50), min_size=1))
def test_shares_add_up(tokens: int, sizes: list[int]) -> None:
    shares = spread(tokens, sizes)
    assert sum(shares) == tokens
    assert min(shares) >= 0


def test_shares_go_by_length() -> None:
    assert spread(10, [1, 1, 1]) == [3, 4, 3]
    assert spread(8, [4, 2, 2]) == [4, 2, 2]
