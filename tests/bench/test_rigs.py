"""The two rigs: vLLM's result file, and the ladder's records by vLLM's definitions."""

from __future__ import annotations

import msgspec
import pytest
from bench.rigs_figures import BY_VLLM, LADDER, Figures, of_record, of_result, read_result, table

from onechip.errors import EngineError
from onechip.ladder.records import Cell, CellRecord, RequestRecord

RESULT = {
    "duration": 2.5,
    "completed": 2,
    "failed": 0,
    "total_input_tokens": 260,
    "total_output_tokens": 32,
    "output_throughput": 12.8,
    "mean_ttft_ms": 40.0,
    "median_ttft_ms": 39.0,
    "p99_ttft_ms": 60.0,
    "mean_tpot_ms": 5.0,
    "mean_itl_ms": 9.0,
    "start_times": [100.0, 101.0],
    "latencies": [1.0, 1.25],
    "itls": [[0.1, 0.2], [0.1, 0.2, 0.0, 0.0]],
    "errors": ["", ""],
    "date": "a field that nobody reads",
}


def test_a_result_file() -> None:
    figures = of_result(read_result(msgspec.json.encode(RESULT), 2), 0.25, 7.0)
    assert figures.tok_s == 12.8
    assert figures.edges_ms == pytest.approx(250)
    assert (figures.prompt_tokens, figures.output_tokens, figures.gaps) == (130, 16, 3)
    assert (figures.cpu_run_s, figures.cpu_all_s) == (0.25, 7.0)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (
            {"completed": 1, "failed": 1, "errors": ["", "Trace\nBad Request\n"]},
            "1 of 2 requests: Bad Request",
        ),
        ({"completed": 1}, "completed 1 of 2 requests: no reason"),
        ({"itls": None}, "cannot be read"),
    ],
)
def test_results_that_are_refused(change: dict[str, object], said: str) -> None:
    with pytest.raises(EngineError, match=said):
        read_result(msgspec.json.encode(RESULT | change), 2)


def test_both_definitions_of_one_record() -> None:
    """Eight tokens in three events, sent at 1 s: 4 tokens after 10 ms, 3 after 6 more, 1 after 6 more."""
    begin = 1_000_000_000
    request = RequestRecord(
        0,
        "",
        sent_ns=begin,
        event_ns=[begin + 10_000_000, begin + 16_000_000, begin + 22_000_000],
        event_tokens=[4, 3, 1],
        end_ns=begin + 25_000_000,
        prompt_tokens=128,
        output_tokens=8,
    )
    cell = Cell("a", "sweep", "128/8", 1, 0, "")
    found = of_record(CellRecord(cell, "", requests=[request], client={"cpu_share": 0.4}), 0.5)
    ours, theirs = found[LADDER], found[BY_VLLM]
    assert ours.tok_s == pytest.approx(8 / 0.022)
    assert theirs.tok_s == pytest.approx(8 / 0.025)
    assert (ours.tpot_mean_ms, theirs.tpot_mean_ms) == (pytest.approx(12 / 4), pytest.approx(12 / 7))
    assert (ours.itl_mean_ms, theirs.itl_mean_ms) == (pytest.approx(12 / 4), pytest.approx(6))
    assert (ours.gaps, theirs.gaps) == (4, 2)
    assert (ours.edges_ms, theirs.edges_ms) == (0, pytest.approx(3))
    assert ours.ttft_p99_ms == theirs.ttft_p99_ms == pytest.approx(10)
    assert ours.cpu_run_s == pytest.approx(0.4 * 0.025)


def test_the_table_takes_medians_and_says_nothing_of_nothing() -> None:
    def repeats(*speeds: float) -> list[Figures]:
        return [Figures(speed, *[float("nan")] * (len(Figures._fields) - 1)) for speed in speeds]

    found = {LADDER: repeats(100, 110, 90), BY_VLLM: repeats(100, 100, 100)}
    lines = list(table(found | {"vllm bench serve": repeats(80, 2000, 82)}))
    assert lines[2] == "| output tok/s | 100.00 | 100.00 | 82.00 | 0.820 | 0.820 | 22.2% 2400.0% |"
    assert lines[3].startswith("| TTFT mean, ms | - | - | - | - | - |")
