"""Each rule that makes a cell invalid, and its valid neighbour."""

from __future__ import annotations

from typing import Any

import pytest

from onechip.ladder.records import Cell, CellRecord, RequestRecord
from onechip.ladder.validity import failures, hopeless, reasons

QUIET = {"loop_lag_p99_ms": 5.0, "cpu_share": 0.8, "late_sends": 0.0}


def record(**changed: Any) -> RequestRecord:
    fields: dict[str, Any] = {
        "asked_prompt_tokens": 32,
        "asked_output_tokens": 8,
        "prompt_tokens": 32,
        "output_tokens": 8,
        "counted_tokens": 8,
        "cached_tokens": 0,
        "sent_ns": 0,
        "end_ns": 10**9,
        "text": "words",
    }
    return RequestRecord(0, "", **(fields | changed))


def found(client: dict[str, float] | None = None, shared: int | None = 2, **changed: Any) -> list[str]:
    """Reasons for a cell of one changed request among three."""
    return reasons([record(), record(**changed), record()], QUIET | (client or {}), shared)


def test_an_engine_that_cannot_be_held_to_a_length_is_said_to_be_one() -> None:
    short = [record(output_tokens=5, counted_tokens=5)]
    assert reasons(short, QUIET, 2, held=False) == [
        "1 of 1 requests had another output length: asked for 8 output tokens, got 5. It has no field that"
        " holds an answer to a length, so it stops when the model does."
    ]
    assert reasons([record()], QUIET, 2, held=False) == []


def test_a_cell_is_hopeless_where_an_earlier_repeat_broke_its_length() -> None:
    first = Cell("a", "sweep", "32/8", 2, 0, "x")
    short = "1 of 1 requests had another output length: asked for 8 output tokens, got 5."
    again = Cell("a", "sweep", "32/8", 2, 1, "x")
    assert hopeless(again, [CellRecord(first, "", invalid=[short])])
    assert not hopeless(again, [CellRecord(first, "", invalid=["The client was the bottleneck."])])
    assert not hopeless(again, [CellRecord(Cell("a", "sweep", "32/8", 4, 0, "x"), "", invalid=[short])])


def test_a_good_cell_is_valid() -> None:
    assert found() == []


@pytest.mark.parametrize(
    ("changed", "reason"),
    [
        ({"error": "stalled."}, "1 of 3 requests failed: stalled."),
        (
            {"prompt_tokens": 33},
            "1 of 3 requests had another prompt length: asked for 32 prompt tokens, got 33.",
        ),
        (
            {"output_tokens": 7},
            "1 of 3 requests had another output length: asked for 8 output tokens, got 7.",
        ),
        (
            {"output_tokens": None},
            "1 of 3 requests had another output length: asked for 8 output tokens, got no count.",
        ),
        (
            {"cached_tokens": 16},
            "1 of 3 requests hit the engine's prefix cache: 16 prompt tokens came from the cache.",
        ),
        ({"extra": {"count_mismatch": "2 or 3."}}, "1 of 3 requests had contradicting token counts: 2 or 3."),
    ],
)
def test_requests(changed: dict[str, Any], reason: str) -> None:
    assert found(**changed) == [reason]


@pytest.mark.parametrize(
    "changed",
    [
        {"asked_output_tokens": None, "output_tokens": 3},
        {"cached_tokens": 6},
        {"cached_tokens": None},
        {"counted_tokens": 16},
        {"asked_output_tokens": None, "extra": {"count_mismatch": "2 or 3."}},
    ],
)
def test_valid_neighbours(changed: dict[str, Any]) -> None:
    assert found(**changed) == []


def test_a_cache_hit_is_right_where_prompts_are_not_meant_to_be_unique() -> None:
    assert found(shared=None, cached_tokens=16) == []


def test_usage_below_the_texts_own_count() -> None:
    low = [record(counted_tokens=9), record(counted_tokens=12), record(counted_tokens=20)]
    assert reasons(low, QUIET, None) == [
        "Its usage is too low: by our tokenizer its texts have 50% more tokens than it says."
    ]
    for one in low:
        one.text = "\ufffd"
    assert reasons(low, QUIET, None) == []


@pytest.mark.parametrize(
    ("client", "reason"),
    [
        (
            {"loop_lag_p99_ms": 5.1},
            "The client was the bottleneck: p99 of its loop lag was 5.1 ms (limit 5).",
        ),
        ({"cpu_share": 0.81}, "The client was the bottleneck: it used 81% of a core (limit 80%)."),
        (
            {"late_sends": 2.0, "worst_send_ms": 7.0},
            "2 requests were sent late, the worst 7.0 ms after its slot was free (limit 5).",
        ),
    ],
)
def test_the_client(client: dict[str, float], reason: str) -> None:
    assert found(client) == [reason]


def test_a_load_too_short_to_judge_the_client_s_share() -> None:
    assert reasons([record(end_ns=10**8)], QUIET | {"cpu_share": 1.0}, 0) == []


def test_accuracy_cells_fail_only_by_failed_requests() -> None:
    assert failures([record(output_tokens=3)]) == []
    assert failures([record(error="reset.")]) == ["1 of 1 requests failed: reset."]


def streams(
    level: int, waves: int, read_s: float = 0.4, step_s: float = 0.01, tokens: int = 10
) -> list[RequestRecord]:
    """A closed loop: in each wave all prompts are read first, which takes `read_s`, then a token a step."""
    made = []
    for index in range(level * waves):
        sent = round(1e9 * (index // level) * (read_s + tokens * step_s))
        events = [sent + round(1e9 * (read_s + at * step_s)) for at in range(tokens)]
        made.append(record(sent_ns=sent, event_ns=events, event_tokens=[1] * tokens, end_ns=events[-1]))
    return made


def paused(records: list[RequestRecord], at_s: float, pause_s: float) -> list[RequestRecord]:
    """The same with everything after a moment later, as an engine that compiles makes it."""

    def later(ns: int) -> int:
        return ns + round(1e9 * pause_s) if ns > at_s * 1e9 else ns

    for one in records:
        one.sent_ns, one.end_ns = later(one.sent_ns), later(one.end_ns)
        one.event_ns = [later(ns) for ns in one.event_ns]
    return records


def stood_still(records: list[RequestRecord]) -> bool:
    return any("stood still" in reason for reason in reasons(records, QUIET, None))


@pytest.mark.parametrize(("level", "waves"), [(1, 6), (4, 1), (8, 2), (64, 3)])
def test_reading_prompts_is_no_standstill_and_compiling_is(level: int, waves: int) -> None:
    """A silence of 0.4 s in each wave, and one of 2.1 s in the middle of the last."""
    assert not stood_still(streams(level, waves))
    last = 0.5 * (waves - 1) + 0.45
    assert stood_still(paused(streams(level, waves), last, 2.1))


def test_prompts_that_hold_up_all_streams_are_no_standstill() -> None:
    """One stream has begun when the prompts of the others are read, for 30 s."""
    records = streams(8, 1)
    for one in records:
        one.event_ns = [ns + 30 * 10**9 for ns in one.event_ns]
        one.end_ns += 30 * 10**9
    records[0].event_ns[0] = 4 * 10**8
    assert not stood_still(records)


def test_short_silences_are_no_standstill() -> None:
    assert not stood_still(paused(streams(8, 3, step_s=0.1), 0.6, 0.3)), "less than five times its way"
    assert not stood_still(paused(streams(8, 3, read_s=0.01), 0.05, 0.2)), "less than a quarter of a second"


def test_a_failed_request_is_no_standstill_besides() -> None:
    records = paused(streams(1, 3), 0.2, 9.0)
    records[0].error = "stalled."
    assert not stood_still(records)
