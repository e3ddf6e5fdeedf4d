"""The order of loads, and figures from made records."""

from __future__ import annotations

from itertools import pairwise

import pytest
from bench.cpu import Job, decode_tok_s, figure, jobs, schedule
from bench.cpu_report import Measure
from bench.cpu_side import Load, with_limits

from onechip.ladder.arms import parse
from onechip.ladder.checkpoint import ModelFacts
from onechip.ladder.plan import Plan
from onechip.ladder.records import Cell, CellRecord, RequestRecord

MS = 1_000_000


def record(*events_ms: float, tokens: list[int] | None = None, sent_ms: float = 0) -> RequestRecord:
    times = [int(at * MS) for at in events_ms]
    return RequestRecord(
        0, "", sent_ns=int(sent_ms * MS), event_ns=times, event_tokens=tokens or [1] * len(times)
    )


def test_every_arm_does_every_load_in_every_round() -> None:
    for together in (True, False):
        order = list(schedule(2, 3, 4, together))
        assert sorted(order) == [
            (turn, load, arm) for turn in range(3) for load in range(4) for arm in (0, 1)
        ]


def test_arms_that_are_up_together_take_turns_load_by_load() -> None:
    order = list(schedule(2, 2, 2, True))
    assert order[:4] == [(0, 0, 0), (0, 0, 1), (0, 1, 1), (0, 1, 0)]
    assert order[4:] == [(1, 0, 1), (1, 0, 0), (1, 1, 0), (1, 1, 1)]


def test_arms_that_do_not_fit_together_are_started_once_a_round_at_most() -> None:
    order = [arm for _, _, arm in schedule(3, 4, 5, False)]
    starts = 1 + sum(before != after for before, after in pairwise(order))
    assert starts == 1 + 4 * 2


def test_decode_counts_only_while_all_decode() -> None:
    """One is alone until 30 ms, the other alone from 50 ms on."""
    early = record(10, 20, 30, 40, 50)
    late = record(30, 40, 50, 60)
    assert decode_tok_s([early, late]) == pytest.approx(4 / 0.020)
    assert decode_tok_s([record(10, 30, 50, tokens=[1, 8, 8])]) == pytest.approx(16 / 0.040)


def test_no_time_in_which_all_decode_is_no_figure() -> None:
    assert decode_tok_s([record(10, 20), record(20, 30)]) is None
    assert decode_tok_s([record(10, 20), record(15)]) is None
    assert decode_tok_s([]) is None


def cell(*requests: RequestRecord) -> CellRecord:
    return CellRecord(Cell("a", "sweep", "512/1", 1, 0, ""), "", requests=list(requests))


def test_prefill_is_the_prompt_over_the_time_to_its_first_token() -> None:
    prefill, ttft = jobs((1,), (512,))[:2]
    one = cell(record(1256, sent_ms=256))
    assert figure(prefill, one) == pytest.approx(512.0)
    assert figure(ttft, one) == pytest.approx(1000.0)
    assert figure(prefill, cell(record())) is None


def test_a_round_has_all_prompts_and_levels() -> None:
    listed = jobs((1, 64), (512, 4096))
    assert [job.measure.name for job in listed] == [
        "prefill, 512 tokens",
        "prefill, 4096 tokens",
        "TTFT, 128 tokens",
        "decode, 1 request",
        "decode, 64 requests",
    ]
    assert listed[-1] == Job(Measure("decode, 64 requests", "tok/s", True), Load(64, 32, 32))


def test_our_engine_serves_what_its_peers_are_told_to() -> None:
    ours, peer = parse("acorn", "onechip:int4-emb4,llama.cpp:q4_0-emb4", ())
    plan = Plan("acorn", (ours, peer), ("sweep",), levels=(1, 16), shapes=((4000, 32),))
    assert with_limits(peer, plan, ModelFacts(context=4096)) == peer
    flags = with_limits(ours, plan, ModelFacts(context=4096)).flags
    assert flags[-4:] == ("--context", "4096", "--max-requests", "16")
    assert with_limits(ours, plan, ModelFacts()).flags[-3] == str(4000 + 32 + 64)
