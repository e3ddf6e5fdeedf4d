"""When a cell must not be counted: its records and the client's cost in, one sentence a reason out.

docs/reading-a-report.md lists the rules for readers; each sentence has the first request that broke one.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from itertools import pairwise
from statistics import median_low

from msgspec.structs import replace

from onechip.ladder.records import Cell, CellRecord, RequestRecord
from onechip.ladder.watch import Seen

MOST_LAG_MS = 5.0
MOST_CPU_SHARE = 0.8
SHORTEST_JUDGED_S = 0.5
"""Of shorter loads the client's share of a core says nothing: its own start and end are most of it."""
MOST_COUNTED = 1.1
"""Our count of a text over the engine's."""
CHANCE_TOKENS = 4
"""Two random prompts may begin with a few equal words; a real prefix hit is one block, 16 tokens or more."""

STANDS_S = 0.25
"""Shorter silences are no compiler's, and cost a cell too little to matter."""
STANDS = 5.0
"""A silence so many times as long as those that a cell has by its nature is none of them."""
MOST_STANDS = 3
"""Behind so many silences the longest is the cell's way: a new shape may compile more than one program."""

LOG_CHARACTERS = 200

SHORT = "had another output length"
UNHELD = " It has no field that holds an answer to a length, so it stops when the model does."


def reasons(
    records: Sequence[RequestRecord],
    client: dict[str, float],
    shared_tokens: int | None,
    held: bool = True,
) -> list[str]:
    """Why a timed cell is invalid; empty if it is valid.

    Args:
        shared_tokens: where prompts are meant to be unique, how many tokens all of them share (BOS, chat
            template); None where they are not meant to be.
        held: whether the engine can be told not to stop before the length that was asked for.
    """
    found = [*failures(records), *_lengths(records, held), *_counts(records), *_bottleneck(records, client)]
    if not any(record.error for record in records):
        found += _standstill(records)
    if shared_tokens is not None:
        found += _prefix_hits(records, shared_tokens + CHANCE_TOKENS)
    return found


def failures(records: Sequence[RequestRecord]) -> list[str]:
    """Requests that failed; the only rule for cells whose time does not matter (acc)."""
    failed = [record for record in records if record.error is not None]
    return _said(failed, len(records), "failed", (record.error or "" for record in failed))


def happened(seen: Seen, requests: int, shared_tokens: int | None) -> list[str]:
    """What an engine did while a timed cell ran that it must not do then, as far as it shows from outside.

    Args:
        requests: of the cell.
        shared_tokens: see `reasons`.
    """
    found = []
    if seen.restarted is not None:
        found.append(f"The engine was restarted during the measurement: {seen.restarted}.")
    if seen.compiled:
        found.append(
            f"The engine compiled during the measurement: {seen.compiled:.0f} programs by its own counter."
        )
    elif seen.log is not None:
        found.append(f"The engine compiled during the measurement; its log says: {seen.log[:LOG_CHARACTERS]}")
    most = None if shared_tokens is None else requests * (shared_tokens + CHANCE_TOKENS)
    if most is not None and (seen.from_cache or 0) > most:
        found.append(
            f"The cell hit the engine's prefix cache: by its own counter {seen.from_cache:.0f} prompt tokens"
            f" came from it, where {requests} prompts share {most} at the most."
        )
    return found


def hopeless(cell: Cell, records: Iterable[CellRecord]) -> bool:
    """Whether another repeat of a cell, whose engine cannot be held to a length, broke its length before."""
    same = replace(cell, repeat=0)
    return any(
        replace(record.cell, repeat=0) == same and any(SHORT in reason for reason in record.invalid)
        for record in records
    )


def _standstill(records: Sequence[RequestRecord]) -> list[str]:
    """Whether once nothing came from any stream for far longer than is this cell's way, as while an engine
    compiles.

    Only silences count in which every request in flight has begun to answer: while one waits for its first
    token the engine may be reading prompts, and some read them for seconds and let all others wait.
    """
    lengths = sorted(_silences(records), reverse=True)
    usual = lengths[min(MOST_STANDS, len(lengths) - 1)] if len(lengths) > 1 else math.inf
    if not lengths or lengths[0] < max(STANDS_S * 1e9, STANDS * usual):
        return []
    return [
        f"The engine stood still, as when it compiles: for {lengths[0] / 1e9:.2f} s no token came on any"
        f" stream, where silences of {usual / 1e9:.2f} s are this cell's way."
    ]


def _silences(records: Sequence[RequestRecord]) -> list[int]:
    """Nanoseconds between two things that happened on any stream while requests ran, none without a token."""
    begun = [record for record in records if record.event_ns]
    steps = [(at, 0, 0) for record in begun for at in record.event_ns]
    steps += [(record.event_ns[0], 0, -1) for record in begun]
    steps += [(record.sent_ns, 1, 1) for record in records]
    steps += [(record.end_ns, -1, 0 if record.event_ns else -1) for record in records]
    found, running, waiting = [], 0, 0
    for (at, change, wait), (later, _, _) in pairwise(sorted(steps)):
        running += change
        waiting += wait
        if running > 0 and waiting == 0:
            found.append(later - at)
    return found


def _lengths(records: Sequence[RequestRecord], held: bool) -> list[str]:
    found: list[str] = []
    done = [record for record in records if record.error is None]
    for what in ("prompt", "output"):
        pairs = [
            (getattr(record, f"asked_{what}_tokens"), getattr(record, f"{what}_tokens")) for record in done
        ]
        wrong = [(asked, got) for asked, got in pairs if asked is not None and asked != got]
        more = UNHELD if what == "output" and not held else ""
        details = (f"asked for {asked} {what} tokens, got {_number(got)}.{more}" for asked, got in wrong)
        found += _said(wrong, len(records), f"had another {what} length", details)
    return found


def _counts(records: Sequence[RequestRecord]) -> list[str]:
    wrong = [record for record in records if record.asked_output_tokens and "count_mismatch" in record.extra]
    details = (str(record.extra["count_mismatch"]) for record in wrong)
    return _said(wrong, len(records), "had contradicting token counts", details) + _understated(records)


def _understated(records: Sequence[RequestRecord]) -> list[str]:
    """Whether the engine's counts are too low for its texts, by our own tokenizer.

    A text has more than one tokenization, and a text of odd tokens may have far more of ours: the median
    decides. A replacement character stands for one byte and has three, so texts with any are left out.
    """
    ratios = [
        record.counted_tokens / record.output_tokens
        for record in records
        if record.asked_output_tokens and record.output_tokens and record.counted_tokens
        if "\ufffd" not in record.text
    ]
    if not ratios or median_low(ratios) <= MOST_COUNTED:
        return []
    more = median_low(ratios) - 1
    return [f"Its usage is too low: by our tokenizer its texts have {more:.0%} more tokens than it says."]


def _prefix_hits(records: Sequence[RequestRecord], most: int) -> list[str]:
    hits = [record for record in records if (record.cached_tokens or 0) > most]
    details = (f"{record.cached_tokens} prompt tokens came from the cache." for record in hits)
    return _said(hits, len(records), "hit the engine's prefix cache", details)


def _bottleneck(records: Sequence[RequestRecord], client: dict[str, float]) -> list[str]:
    found: list[str] = []
    lag, share = client.get("loop_lag_p99_ms", 0.0), client.get("cpu_share", 0.0)
    if lag > MOST_LAG_MS:
        found.append(
            f"The client was the bottleneck: p99 of its loop lag was {lag:.1f} ms (limit {MOST_LAG_MS:g})."
        )
    if share > MOST_CPU_SHARE and _span_s(records) > SHORTEST_JUDGED_S:
        found.append(
            f"The client was the bottleneck: it used {share:.0%} of a core (limit {MOST_CPU_SHARE:.0%})."
        )
    late = int(client.get("late_sends", 0))
    if late:
        worst = client.get("worst_send_ms", 0.0)
        found.append(
            f"{late} requests were sent late, the worst {worst:.1f} ms after its slot was free (limit 5)."
        )
    return found


def _span_s(records: Sequence[RequestRecord]) -> float:
    if not records:
        return 0.0
    return (max(record.end_ns for record in records) - min(record.sent_ns for record in records)) / 1e9


def _said(wrong: Sequence[object], total: int, what: str, details: Iterable[str]) -> list[str]:
    """One sentence for all requests with the same fault, with the first one's detail."""
    if not wrong:
        return []
    return [f"{len(wrong)} of {total} requests {what}: {next(iter(details))}"]


def _number(value: int | None) -> str:
    return "no count" if value is None else str(value)
