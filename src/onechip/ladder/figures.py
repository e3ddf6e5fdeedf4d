"""Figures of cells: valid cell records in; measures with their spread, latencies and ratios between arms out.

The unit is one repeat of one cell. A repeat that does not give a figure (a whole text in one event has no
decode speed) is left out, never guessed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import combinations
from statistics import median
from typing import Literal, NamedTuple

import msgspec
import numpy as np

from onechip.ladder import stats, timing
from onechip.ladder.records import Cell, CellRecord, RequestRecord

Better = Literal["higher", "lower"]


class Kind(NamedTuple):
    """How a figure is called, in what unit it is kept, and which way is better."""

    label: str
    unit: str
    better: Better


KINDS: dict[str, Kind] = {
    "spawn_to_port_s": Kind("spawn to port open", "s", "lower"),
    "port_to_healthy_s": Kind("port open to healthy", "s", "lower"),
    "healthy_to_token_s": Kind("healthy to first token", "s", "lower"),
    "total_s": Kind("start to first token", "s", "lower"),
    "resident_bytes": Kind("resident memory after the first token", "bytes", "lower"),
    "resident_peak_bytes": Kind("peak resident memory", "bytes", "lower"),
    "own_peak_bytes": Kind("peak own memory", "bytes", "lower"),
    "device_bytes": Kind("device memory after the first token", "bytes", "lower"),
    "device_peak_bytes": Kind("peak device memory", "bytes", "lower"),
    "end_to_end_tok_s": Kind("end to end", "tok/s", "higher"),
    "decode_tok_s": Kind("decode", "tok/s", "higher"),
    "whole_batch_tok_s": Kind("whole batch", "tok/s", "higher"),
    "full_window_tok_s": Kind("full window", "tok/s", "higher"),
    "ttft_ms": Kind("time to first token", "ms", "lower"),
    "inter_token_ms": Kind("between tokens", "ms", "lower"),
    "gpu_j_per_token": Kind("GPU energy per output token", "J", "lower"),
    "cpu_j_per_token": Kind("processor energy per output token", "J", "lower"),
}

START = (
    "spawn_to_port_s",
    "port_to_healthy_s",
    "healthy_to_token_s",
    "total_s",
    "resident_bytes",
    "resident_peak_bytes",
    "own_peak_bytes",
    "device_bytes",
    "device_peak_bytes",
)
ENERGY = ("gpu_j", "cpu_j")
QUANTILES = tuple(round(0.02 * step, 2) for step in range(51))
"""Of the waits that a Latency keeps, from the shortest to the longest."""
ALONE: dict[str, Callable[[RequestRecord], float | None]] = {
    "end_to_end_tok_s": timing.end_to_end_tok_s,
    "decode_tok_s": timing.decode_tok_s,
    "ttft_ms": timing.ttft_ms,
}


class Place(NamedTuple):
    """Where in the ladder a figure stands."""

    job: str
    variant: str
    level: int

    @classmethod
    def of(cls, cell: Cell) -> Place:
        return cls(cell.job, cell.variant, cell.level)


class Measure(msgspec.Struct, frozen=True):
    """One figure of one arm at one place.

    Attributes:
        figure: a key of KINDS, which gives its unit.
        headline: the number that tables show.
        values: one per valid repeat that gives the figure.
        spread: of `values`.
    """

    arm: str
    place: Place
    figure: str
    headline: float
    values: tuple[float, ...]
    spread: stats.Spread


class Latency(msgspec.Struct, frozen=True):
    """Percentiles in ms over all requests (ttft_ms) or tokens (inter_token_ms) of the valid repeats.

    They describe and test nothing. p95 and p99 are None where there are fewer than 20 and 100 samples.
    `quantiles` are at QUANTILES, for drawing.
    """

    arm: str
    place: Place
    figure: str
    n: int
    p50: float
    p90: float
    p95: float | None
    p99: float | None
    quantiles: tuple[float, ...]


class Contrast(msgspec.Struct, frozen=True):
    """Ratio of a figure between two arms, a over b."""

    place: Place
    figure: str
    a: str
    b: str
    ratio: stats.Ratio


class Repeats(NamedTuple):
    """One figure over repeats: `values` one per repeat that gives it, `headline` the number shown."""

    figure: str
    values: tuple[float, ...]
    headline: float


Places = dict[tuple[str, Place], list[CellRecord]]
"""(arm, place) -> its valid records."""


def places(records: Iterable[CellRecord]) -> Places:
    """Valid records by arm and place, repeats in order."""
    found: Places = {}
    for record in records:
        if not record.invalid:
            cell = record.cell
            found.setdefault((cell.arm, Place.of(cell)), []).append(record)
    for group in found.values():
        group.sort(key=lambda record: record.cell.repeat)
    return found


def measures(found: Places) -> Iterator[Measure]:
    """Every figure of every arm at every place, accuracy aside."""
    for (arm, place), records in found.items():
        for repeats in _repeats(place, records):
            spread = stats.describe(repeats.values)
            yield Measure(arm, place, repeats.figure, repeats.headline, repeats.values, spread)


def contrasts(known: Sequence[Measure], arms: Sequence[str], found: Places) -> Iterator[Contrast]:
    """Every figure between every two arms that both have it; the later arm over the earlier one.

    Args:
        known: of the records in `found`.
    """
    table = {(m.place, m.figure, m.arm): m for m in known}
    blocks = {key: _by_block(records) for key, records in found.items()}
    for place, figure in dict.fromkeys((m.place, m.figure) for m in known):
        for b, a in combinations(arms, 2):
            one, other = table.get((place, figure, a)), table.get((place, figure, b))
            if one is not None and other is not None:
                in_blocks = (blocks.get((arm, place), {}).get(figure, ()) for arm in (a, b))
                ratio = stats.compare_blocks(*in_blocks) or stats.compare(one.values, other.values)
                yield Contrast(place, figure, a, b, ratio)


def _by_block(records: Iterable[CellRecord]) -> dict[str, list[tuple[int, float]]]:
    """Figure -> (block, value) of each repeat that ran in one of the blocks of a comparison."""
    table: dict[str, list[tuple[int, float]]] = {}
    for record in records:
        if record.cell.block:
            for figure, value in of_cell(record).items():
                table.setdefault(figure, []).append((record.cell.block, value))
    return table


def latencies(found: Places) -> Iterator[Latency]:
    """Percentiles of the waits in job `sweep`."""
    for (arm, place), records in found.items():
        if place.job == "sweep":
            for figure, waits in (
                ("ttft_ms", first_tokens(records)),
                ("inter_token_ms", inter_tokens(records)),
            ):
                if waits:
                    yield _latency(arm, place, figure, waits)


def _latency(arm: str, place: Place, figure: str, waits: Sequence[float]) -> Latency:
    p50, p90, p95, p99 = (float(p) for p in np.percentile(waits, [50, 90, 95, 99]))
    n = len(waits)
    drawn = tuple(round(float(value), 4) for value in np.quantile(waits, QUANTILES))
    return Latency(
        arm, place, figure, n, p50, p90, p95 if n >= 20 else None, p99 if n >= 100 else None, drawn
    )


def of_cell(record: CellRecord) -> dict[str, float]:
    """Every figure of one valid cell, accuracy aside: a key of KINDS -> its value."""
    place = Place.of(record.cell)
    return {found.figure: found.headline for found in _repeats(place, [record])}


def _repeats(place: Place, records: Sequence[CellRecord]) -> list[Repeats]:
    if place.job == "start":
        return start_figures(records)
    if place.job == "acc":
        return []
    speeds = alone_figures(records) if place.variant == "alone" else batch_figures(records)
    return [*speeds, *energy_figures(records)]


def energy_figures(records: Sequence[CellRecord]) -> list[Repeats]:
    """Joules per output token of a whole cell, of all GPUs and of all processor packages."""
    return _collect(
        {f"{name}_per_token": [_per_token(record, name) for record in records] for name in ENERGY}
    )


def _per_token(record: CellRecord, name: str) -> float | None:
    energy, tokens = record.measured.get(name), sum(map(timing.output_tokens, record.requests))
    return energy / tokens if energy is not None and tokens else None


def start_figures(records: Sequence[CellRecord]) -> list[Repeats]:
    """Stretches of the start in seconds, and memory in bytes, as far as they were measured."""
    return _collect(
        {name: [record.measured[name] for record in records if name in record.measured] for name in START}
    )


def alone_figures(records: Sequence[CellRecord]) -> list[Repeats]:
    """Requests one after the other.

    A repeat's value is the geometric mean over its prompts; the headline is the geometric mean of each
    prompt's median over the repeats.
    """
    found = []
    for name, formula in ALONE.items():
        tables = [table for record in records if (table := _by_prompt(record, formula)) is not None]
        values = [
            mean for table in tables if (mean := timing.geometric_mean(list(table.values()))) is not None
        ]
        prompts = set[int]().union(*tables)
        medians = [median(table[prompt] for table in tables if prompt in table) for prompt in sorted(prompts)]
        headline = timing.geometric_mean(medians)
        if headline is not None:
            found.append(Repeats(name, tuple(values), headline))
    return found


def batch_figures(records: Sequence[CellRecord]) -> list[Repeats]:
    """Requests at once: two aggregate speeds, and each repeat's median waits; the headline is the median."""
    columns: dict[str, list[float | None]] = {}
    for record in records:
        requests, level = record.requests, record.cell.level
        columns.setdefault("whole_batch_tok_s", []).append(timing.whole_batch_tok_s(requests))
        columns.setdefault("full_window_tok_s", []).append(timing.full_window_tok_s(requests, level))
        columns.setdefault("ttft_ms", []).append(_median(first_tokens([record])))
        columns.setdefault("inter_token_ms", []).append(_median(inter_tokens([record])))
    return _collect(columns)


def first_tokens(records: Iterable[CellRecord]) -> list[float]:
    """TTFT in ms of every request that has one."""
    waits = (timing.ttft_ms(request) for record in records for request in record.requests)
    return [wait for wait in waits if wait is not None]


def inter_tokens(records: Iterable[CellRecord]) -> list[float]:
    """Gap in ms before every token but the first event's."""
    return [
        gap for record in records for request in record.requests for gap in timing.inter_token_ms(request)
    ]


def same_texts(records: Sequence[CellRecord]) -> tuple[int, int] | None:
    """How many prompts got one text in every repeat, and how many there are; None below two repeats."""
    if len(records) < 2:
        return None
    texts: dict[int, set[str]] = {}
    for record in records:
        for request in record.requests:
            texts.setdefault(_prompt(request), set()).add(
                f"{request.extra.get('reasoning', '')}\0{request.text}"
            )
    return sum(len(found) == 1 for found in texts.values()), len(texts)


def _collect(columns: Mapping[str, Sequence[float | None]]) -> list[Repeats]:
    """Columns with at least one figure; what is not above 0 has no logarithm, and is no figure."""
    known = {name: [value for value in column if value and value > 0] for name, column in columns.items()}
    return [Repeats(name, tuple(values), median(values)) for name, values in known.items() if values]


def _by_prompt(
    record: CellRecord, formula: Callable[[RequestRecord], float | None]
) -> dict[int, float] | None:
    """A figure of each prompt; None if a prompt lacks it, as a mean over other prompts is another figure."""
    table = {_prompt(request): formula(request) for request in record.requests}
    known = {prompt: value for prompt, value in table.items() if value and value > 0}
    return known if len(known) == len(table) else None


def _prompt(request: RequestRecord) -> int:
    return int(request.extra.get("question", request.index))


def _median(values: list[float]) -> float | None:
    return median(values) if values else None
