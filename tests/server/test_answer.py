"""Events become text, counts and a reason: stop strings across token borders, one call, the stop token."""

from __future__ import annotations

import random
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from onechip.engine.types import Event
from onechip.models.chat_parser import CallClose, CallOpen, ChatParser, Text
from onechip.server.answer import Answer, TextReader
from onechip.server.stop_strings import StopStrings
from tests.server.scripted import TOKENIZER

ENCODE = TOKENIZER.encode


def answer(**kwargs) -> Answer:
    return Answer(TextReader(TOKENIZER.stream()), **kwargs)


def run(given_answer: Answer, windows: Sequence[Sequence[int]], finish: str = "stop") -> str:
    """The text of all windows, read until the answer ends; the last window has the engine's `finish`."""
    text = ""
    for position, window in enumerate(windows):
        last = finish if position == len(windows) - 1 else None
        deltas = given_answer.take(Event("r", tuple(window), last, cached_tokens=2))
        text += "".join(delta.text for delta in deltas if isinstance(delta, Text))
        if given_answer.finish:
            break
    return text


@given(
    st.text("abx", max_size=30), st.lists(st.text("abx", min_size=1, max_size=4), max_size=3), st.randoms()
)
def test_text_before_the_first_stop_string(text: str, stops: list[str], rng: random.Random) -> None:
    ends = [end for end in range(len(text) + 1) if any(text[:end].endswith(stop) for stop in stops)]
    expected = text
    if ends:
        first = text[: ends[0]]
        expected = first[: -max(len(stop) for stop in stops if first.endswith(stop))]
    filter, shown, rest = StopStrings(stops), "", text
    while rest and not filter.hit:
        count = rng.randint(1, 4)
        shown += filter.push(rest[:count])
        assert expected.startswith(shown)  # nothing is shown that would have to be taken back
        rest = rest[count:]
    assert shown + filter.flush() == expected
    assert (filter.hit is not None) == any(stop in text for stop in stops)


def test_the_stop_token_counts_but_does_not_show() -> None:
    ids = ENCODE("Hello you")
    one = answer()
    assert run(one, [ids[:1], [*ids[1:], 106]]) == "Hello you"
    assert (one.finish, one.tokens, one.cached_tokens) == ("stop", len(ids) + 1, 2)
    # Neither does an ordinary token that was asked for as stop token.
    assert run(answer(), [[*ENCODE("Hello"), *ENCODE("!")]]) == "Hello"


def test_length_keeps_the_last_token() -> None:
    ids = ENCODE("Hello you")
    one = answer()
    assert run(one, [ids], "length") == "Hello you"
    assert (one.finish, one.tokens) == ("length", len(ids))


def test_a_stop_string_ends_count_and_text_inside_a_window() -> None:
    ids = ENCODE("1 2 3 4 5 6 7 8 9")
    prefix = next(n for n in range(len(ids)) if "4 5" in TOKENIZER.decode(ids[:n]))
    one = answer(stops=["4 5"])
    assert run(one, [ids], "length") == "1 2 3 "
    assert (one.finish, one.tokens) == ("stop", prefix)


def test_a_stop_string_over_two_windows() -> None:
    ids = ENCODE("1 2 3 4 5 6")
    for cut in range(1, len(ids)):
        one = answer(stops=["3 4"])
        assert run(one, [ids[:cut], ids[cut:]], "length") == "1 2 "


def test_what_might_have_begun_a_stop_string_is_shown_at_the_end() -> None:
    assert run(answer(stops=["6 7"]), [ENCODE("1 2 3 4 5 6"), [106]]) == "1 2 3 4 5 6"


def test_min_tokens_hold_for_stop_strings_too() -> None:
    ids = ENCODE("1 2 1 2")
    one = answer(stops=["2"], min_tokens=len(ids) - 1)
    assert run(one, [ids], "length") == "1 2 1 "
    assert one.finish == "stop"


TOOLS = [{"type": "function", "function": {"name": "f"}}, {"type": "function", "function": {"name": "g"}}]
CALLS = "Look.<|tool_call>call:f{}<tool_call|><|tool_call>call:g{}<tool_call|>"


@pytest.mark.parametrize(("one_call", "names"), [(False, ["f", "g"]), (True, ["f"])])
def test_calls_give_their_own_reason(one_call: bool, names: list[str]) -> None:
    ids = [*ENCODE(CALLS), 50]
    one = Answer(ChatParser(TOKENIZER, TOOLS, [2]), stops=["#"], one_call=one_call)
    deltas = one.take(Event("r", tuple(ids), "stop"))
    assert [delta.name for delta in deltas if isinstance(delta, CallOpen)] == names
    assert isinstance(deltas[-1], CallClose)
    assert one.finish == "tool_calls"
    assert one.tokens == (len(ids) if not one_call else ids.index(49) + 1)


@pytest.mark.parametrize("one_call", [False, True])
def test_a_call_that_is_cut_off_is_a_length(one_call: bool) -> None:
    one = Answer(ChatParser(TOKENIZER, TOOLS, [2]), one_call=one_call)
    one.take(Event("r", tuple(ENCODE('<|tool_call>call:f{a:<|"|>x')), "length"))
    assert one.finish == "length"


def test_stop_strings_are_not_looked_for_in_calls_and_thoughts() -> None:
    text = '<|channel>thought\nx#y\n<channel|>Look.<|tool_call>call:f{a:<|"|>1#2<|"|>}<tool_call|>'
    one = Answer(ChatParser(TOKENIZER, TOOLS, [2]), stops=["#", ".more"])
    deltas = one.take(Event("r", (*ENCODE(text), 50), "stop"))
    assert one.finish == "tool_calls"
    assert [delta.text for delta in deltas if isinstance(delta, Text)] == ["Look."]
    # The text that was held back comes before the call.
    kinds = [type(delta) for delta in deltas]
    assert kinds.index(Text) < kinds.index(CallOpen)
