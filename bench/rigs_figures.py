"""What two rigs measured of one server: the ladder's records and vLLM's result in, a table out."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from itertools import pairwise
from statistics import fmean, median
from typing import NamedTuple

import msgspec
import numpy as np

from onechip.errors import EngineError
from onechip.ladder import timing
from onechip.ladder.figures import first_tokens, inter_tokens
from onechip.ladder.records import CellRecord, RequestRecord

LADDER, BY_VLLM, VLLM = "ladder", "by vLLM's", "vllm bench serve"
AS_VLLM = "ladder, as vLLM asks"
SAME, OPEN = "vllm, the ladder's prompts", "and open connections"


class Figures(NamedTuple):
    """Of one repeat by one rig.

    Attributes:
        gaps: of a request that ITL is the mean of.
        edges_ms: how much longer the span of tok_s is than from the first send to the last token.
        prompt_tokens, output_tokens: of a request, the mean, by the server's usage.
        cpu_run_s, cpu_all_s: the client's processor time during the run, and of all that it did for it
            (vLLM's process from start to end; the ladder's making of prompts and reading of answers).
    """

    tok_s: float
    ttft_mean_ms: float
    ttft_median_ms: float
    ttft_p99_ms: float
    tpot_mean_ms: float
    itl_mean_ms: float
    gaps: float
    edges_ms: float
    prompt_tokens: float
    output_tokens: float
    cpu_run_s: float
    cpu_all_s: float


ROWS = {
    "tok_s": "output tok/s",
    "ttft_mean_ms": "TTFT mean, ms",
    "ttft_median_ms": "TTFT median, ms",
    "ttft_p99_ms": "TTFT p99, ms",
    "tpot_mean_ms": "TPOT mean, ms",
    "itl_mean_ms": "ITL mean, ms",
    "gaps": "gaps a request",
    "edges_ms": "span beyond first send to last token, ms",
    "prompt_tokens": "prompt tokens a request",
    "output_tokens": "output tokens a request",
    "cpu_run_s": "client's CPU during the run, s",
    "cpu_all_s": "client's CPU in all, s",
}


class Result(msgspec.Struct):
    """What is read of vLLM's result file (--save-detailed). Seconds, where a name has no unit.

    Attributes:
        start_times, latencies, itls, errors: of each request; a latency ends with the last event that has
            choices.
    """

    duration: float
    completed: int
    failed: int
    total_input_tokens: int
    total_output_tokens: int
    output_throughput: float
    mean_ttft_ms: float
    median_ttft_ms: float
    p99_ttft_ms: float
    mean_tpot_ms: float
    mean_itl_ms: float
    start_times: list[float]
    latencies: list[float]
    itls: list[list[float]]
    errors: list[str]


def read_result(data: bytes, requests: int) -> Result:
    """vLLM's result file.

    Raises:
        EngineError: it is not one, or some of the requests failed.
    """
    try:
        found = msgspec.json.decode(data, type=Result)
    except (msgspec.DecodeError, msgspec.ValidationError) as error:
        raise EngineError(f"The result file of vllm bench serve cannot be read: {error}.") from None
    if found.failed or found.completed != requests:
        why = next((error.strip().splitlines()[-1] for error in found.errors if error.strip()), "no reason")
        raise EngineError(f"vllm bench serve completed {found.completed} of {requests} requests: {why}")
    return found


def of_result(found: Result, cpu_run_s: float, cpu_all_s: float) -> Figures:
    """vLLM's own figures, unchanged."""
    ends = [start + latency for start, latency in zip(found.start_times, found.latencies, strict=True)]
    return Figures(
        found.output_throughput,
        found.mean_ttft_ms,
        found.median_ttft_ms,
        found.p99_ttft_ms,
        found.mean_tpot_ms,
        found.mean_itl_ms,
        sum(map(len, found.itls)) / found.completed,
        (found.duration - (max(ends) - min(found.start_times))) * 1e3,
        found.total_input_tokens / found.completed,
        found.total_output_tokens / found.completed,
        cpu_run_s,
        cpu_all_s,
    )


def of_record(record: CellRecord, cpu_all_s: float) -> dict[str, Figures]:
    """The ladder's figures by its own definitions and by vLLM's.

    vLLM's clock stops when all answers have ended, its TPOT spreads the time after the first event over all
    tokens but one, and its ITL is the gap between events, however many tokens they carry. It also counts
    events without text, the last one among them, which these records do not hold.
    """
    requests = record.requests
    waits = first_tokens([record])
    first = min(request.sent_ns for request in requests)
    last = max(request.event_ns[-1] for request in requests)
    over = max(request.end_ns for request in requests)
    tokens = sum(map(timing.output_tokens, requests))
    speeds = [speed for request in requests if (speed := timing.decode_tok_s(request)) is not None]
    between_tokens = inter_tokens([record])
    gaps = [(b - a) / 1e6 for request in requests for a, b in pairwise(request.event_ns)]
    ours = Figures(
        timing.whole_batch_tok_s(requests) or 0.0,
        fmean(waits),
        median(waits),
        float(np.percentile(waits, 99)),
        _mean([1e3 / speed for speed in speeds]),
        _mean(between_tokens),
        len(between_tokens) / len(requests),
        0.0,
        fmean(request.prompt_tokens or 0 for request in requests),
        tokens / len(requests),
        record.client["cpu_share"] * (over - first) / 1e9,
        cpu_all_s,
    )
    theirs = ours._replace(
        tok_s=tokens * 1e9 / (over - first),
        tpot_mean_ms=_mean([_tpot_ms(request) for request in requests if timing.output_tokens(request) > 1]),
        itl_mean_ms=_mean(gaps),
        gaps=len(gaps) / len(requests),
        edges_ms=(over - last) / 1e6,
    )
    return {LADDER: ours, BY_VLLM: theirs}


def _mean(values: Sequence[float]) -> float:
    """nan of nothing, as of answers that came in one event."""
    return fmean(values) if values else math.nan


def _tpot_ms(request: RequestRecord) -> float:
    """By vLLM's definition, which leaves answers of one token out."""
    return (request.event_ns[-1] - request.event_ns[0]) / 1e6 / (timing.output_tokens(request) - 1)


def table(found: dict[str, list[Figures]]) -> Iterator[str]:
    """Markdown, a line a figure; ratios are vLLM's to the ladder's by each definition, of medians."""
    middle = {name: Figures(*map(median, zip(*each, strict=True))) for name, each in found.items()}
    controls = [name for name in (AS_VLLM, SAME, OPEN) if name in found]
    yield "| | " + " | ".join([LADDER, BY_VLLM, VLLM, "ratio", "by vLLM's", "spreads", *controls]) + " |"
    yield "|---|" + "---:|" * (6 + len(controls))
    for field, label in ROWS.items():
        ours, same, theirs = (getattr(middle[name], field) for name in (LADDER, BY_VLLM, VLLM))
        spreads = " ".join(_spread([getattr(each, field) for each in found[name]]) for name in (LADDER, VLLM))
        cells = [_number(ours), _number(same), _number(theirs), _ratio(theirs, ours), _ratio(theirs, same)]
        cells += [spreads, *(_number(getattr(middle[name], field)) for name in controls)]
        yield f"| {label} | " + " | ".join(cells) + " |"


def _number(value: float) -> str:
    return "-" if math.isnan(value) else f"{value:,.0f}" if value >= 1000 else f"{value:.2f}"


def _ratio(a: float, b: float) -> str:
    return f"{a / b:.3f}" if b > 0 else "-"


def _spread(values: Sequence[float]) -> str:
    """The largest over the smallest, less 1."""
    return f"{max(values) / min(values) - 1:.1%}" if min(values) > 0 else "-"
