"""The timing definitions: raw request records in, seconds and tokens per second out. Pure.

A figure that the records cannot give is None, never a guess. TIMING_VERSION in records.py is raised with each
change here.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise

from onechip.ladder.records import RequestRecord

NS_PER_S = 1_000_000_000
NS_PER_MS = 1_000_000


def output_tokens(request: RequestRecord) -> int:
    """The engine's final usage, else our own count, else what its events carried."""
    return request.output_tokens or request.counted_tokens or sum(request.event_tokens)


def ttft_ms(request: RequestRecord) -> float | None:
    """Request's first byte sent -> first event with generated content, in ms."""
    if not request.event_ns:
        return None
    return (request.event_ns[0] - request.sent_ns) / NS_PER_MS


def end_to_end_tok_s(request: RequestRecord) -> float | None:
    """Output tokens / (last content event - request sent)."""
    if not request.event_ns:
        return None
    return output_tokens(request) * NS_PER_S / (request.event_ns[-1] - request.sent_ns)


def decode_tok_s(request: RequestRecord) -> float | None:
    """(Output tokens - tokens of the first content event) / (last - first content event)."""
    if len(request.event_ns) < 2 or request.event_ns[-1] == request.event_ns[0]:
        return None
    tokens = output_tokens(request) - request.event_tokens[0]
    return tokens * NS_PER_S / (request.event_ns[-1] - request.event_ns[0])


def inter_token_ms(request: RequestRecord) -> list[float]:
    """Gaps between tokens in ms: an event with n tokens gives n gaps of 1/n of its distance to the one
    before.

    The distance of an event without tokens is added to that of the next one with some.
    """
    gaps: list[float] = []
    waited = 0
    for (before, now), tokens in zip(pairwise(request.event_ns), request.event_tokens[1:], strict=True):
        waited += now - before
        if tokens > 0:
            gaps.extend([waited / NS_PER_MS / tokens] * tokens)
            waited = 0
    return gaps


def whole_batch_tok_s(requests: Sequence[RequestRecord]) -> float | None:
    """All output tokens / (first send -> last content event), ramp and tail included."""
    done = [request for request in requests if request.event_ns]
    if not done:
        return None
    span = max(request.event_ns[-1] for request in done) - min(request.sent_ns for request in done)
    return sum(output_tokens(request) for request in done) * NS_PER_S / span


def full_window(requests: Sequence[RequestRecord], level: int) -> tuple[int, int] | None:
    """Start and end (ns) of the time in which all `level` slots of a closed loop were busy; None if there was
    none.

    It opens when the last slot sends its first request. Each completion but the last `level` of them is
    followed by a send in the same slot, so it closes with the first of those last ones.
    """
    done = [request for request in requests if request.event_ns]
    if len(done) < level:
        return None
    start = sorted(request.sent_ns for request in done)[level - 1]
    end = sorted(request.event_ns[-1] for request in done)[len(done) - level]
    return (start, end) if end > start else None


def full_window_tok_s(requests: Sequence[RequestRecord], level: int) -> float | None:
    """Output tokens per second while all `level` slots are busy, tokens credited at their events' time."""
    window = full_window(requests, level)
    if window is None:
        return None
    start, end = window
    tokens = sum(
        count
        for request in requests
        for ns, count in zip(request.event_ns, request.event_tokens, strict=True)
        if start < ns <= end
    )
    return tokens * NS_PER_S / (end - start)


def geometric_mean(values: Sequence[float]) -> float | None:
    """exp(mean(log x)); None of nothing."""
    if not values:
        return None
    return math.exp(sum(math.log(value) for value in values) / len(values))
