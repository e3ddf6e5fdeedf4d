"""The timing definitions on records made by hand."""

from __future__ import annotations

import pytest

from onechip.ladder import timing
from onechip.ladder.records import RequestRecord

MS = 1_000_000


def request(sent: int, events: list[int], tokens: list[int], output: int | None = None) -> RequestRecord:
    """Times in ms."""
    return RequestRecord(
        0,
        "",
        sent_ns=sent * MS,
        event_ns=[ns * MS for ns in events],
        event_tokens=tokens,
        end_ns=events[-1] * MS if events else 0,
        output_tokens=output if output is not None else sum(tokens),
    )


def test_one_request() -> None:
    one = request(100, [150, 200, 250, 300], [2, 4, 4, 0])
    assert timing.ttft_ms(one) == 50
    assert timing.end_to_end_tok_s(one) == pytest.approx(10 / 0.2)
    assert timing.decode_tok_s(one) == pytest.approx(8 / 0.15)
    assert timing.inter_token_ms(one) == [12.5] * 8


def test_an_event_without_tokens_lends_its_time_to_the_next() -> None:
    assert timing.inter_token_ms(request(0, [10, 20, 40], [1, 0, 2])) == [15.0, 15.0]


def test_a_stop_token_without_an_event_counts_as_output() -> None:
    assert timing.end_to_end_tok_s(request(0, [500, 1000], [1, 1], output=3)) == 3


def test_what_the_records_cannot_give_is_none() -> None:
    assert timing.ttft_ms(request(0, [], [])) is None
    assert timing.end_to_end_tok_s(request(0, [], [])) is None
    assert timing.decode_tok_s(request(0, [5], [9])) is None
    assert timing.whole_batch_tok_s([]) is None
    assert timing.full_window_tok_s([request(0, [5], [1])], 2) is None
    assert timing.geometric_mean([]) is None


def test_whole_batch_spans_first_send_to_last_content() -> None:
    batch = [request(0, [100, 200], [1, 1]), request(50, [400, 1000], [1, 7])]
    assert timing.whole_batch_tok_s(batch) == 10


def test_full_window_of_a_closed_loop() -> None:
    """Two slots: A and B start at 0 and 10, C follows A at 100, D follows B at 200, C ends before D."""
    a = request(0, [50, 100], [1, 1])
    b = request(10, [150, 200], [1, 1])
    c = request(100, [180, 300], [1, 1])
    d = request(200, [350, 400], [1, 1])
    assert timing.full_window([a, b, c, d], 2) == (10 * MS, 300 * MS)
    # A's two, B's two and C's two tokens lie inside, D's do not.
    assert timing.full_window_tok_s([d, c, b, a], 2) == pytest.approx(6 / 0.29)


def test_geometric_mean() -> None:
    assert timing.geometric_mean([1, 100]) == pytest.approx(10)
