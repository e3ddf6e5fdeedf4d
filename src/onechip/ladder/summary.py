"""The summary of a ladder: manifest and cell records in, every figure and verdict of its report out.

It is computed from the records alone and holds all that a report shows, so that two reports cannot disagree.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import groupby

import msgspec

from onechip.ladder import answers, figures, medals, prices, rows, stats, usage, work
from onechip.ladder.manifest import Manifest
from onechip.ladder.records import CellRecord

SCHEMA = 1


class InvalidCell(msgspec.Struct, frozen=True):
    """A cell that no figure uses, and why."""

    arm: str
    place: figures.Place
    repeat: int
    reasons: tuple[str, ...]


class Summary(msgspec.Struct, frozen=True):
    """Everything a report shows.

    Attributes:
        manifest: as written by the run.
        arms: names in the ladder's order; the first is the reference that accuracy is compared with.
        timing_versions: of the timing definitions, as found in the cells.
        first_cell, last_cell: wall clock at the start of each, ISO 8601; empty without cells.
        cells: how many were measured, invalid ones included.
        one_block: arms ran one after the other, so drift of the machine between them is in no interval.
        uneven: jobs in which arms were not given the same work, and which were, one sentence each.
        client_worst: the largest reading of each of the client's own costs.
        estimated: arms whose tokens per event were spread by the length of the text.
        rows: the medal table.
        controls: arms that were asked a question set again, against themselves.
        usages, readings: what arms took, and how the machine was meanwhile.
        price: of the machine's chip; None if no price file lists it. costs: at it, of the sweep's tokens.
    """

    manifest: Manifest
    arms: tuple[str, ...]
    timing_versions: tuple[int, ...]
    first_cell: str
    last_cell: str
    cells: int
    one_block: bool
    uneven: tuple[str, ...]
    client_worst: dict[str, float]
    estimated: tuple[str, ...]
    rows: tuple[medals.Row, ...]
    measures: tuple[figures.Measure, ...]
    latencies: tuple[figures.Latency, ...]
    contrasts: tuple[figures.Contrast, ...]
    scores: tuple[answers.Score, ...]
    pairs: tuple[answers.Pair, ...]
    controls: tuple[answers.Control, ...]
    invalid: tuple[InvalidCell, ...]
    usages: tuple[usage.Usage, ...] = ()
    readings: tuple[usage.Reading, ...] = ()
    price: prices.Price | None = None
    costs: tuple[prices.Cost, ...] = ()
    schema: int = SCHEMA

    @property
    def stand_in(self) -> bool:
        """Whether the model is acorn, the small stand-in that ships with the package."""
        return "acorn" in {self.manifest.plan.model, *(arm.model for arm in self.manifest.plan.arms)}

    def ratio(self, place: figures.Place, figure: str, a: str, b: str) -> stats.Ratio | None:
        """How many times arm b's figure arm a's is at a place; None if one of them has none."""
        for c in self.contrasts:
            if (c.place, c.figure) == (place, figure) and {c.a, c.b} == {a, b}:
                return c.ratio if c.a == a else c.ratio.inverse()
        return None

    def paired(self, variant: str, a: str, b: str) -> stats.Paired | None:
        """Arm a against arm b over a question set; None if they were not compared."""
        for p in self.pairs:
            if p.variant == variant and {p.a, p.b} == {a, b}:
                return p.paired if p.a == a else p.paired.inverse()
        return None

    def alike(self, pair: answers.Pair) -> bool:
        """Whether both arms of a pair were given the same work in its question set (limit, thinking)."""
        asked = next(
            row for row in self.rows if row.family == "accuracy" and row.place.variant == pair.variant
        )
        return len({entry.work for entry in asked.entries if entry.arm in (pair.a, pair.b)}) == 1


def summarise(
    manifest: Manifest, cells: Sequence[CellRecord], listed_prices: prices.Prices | None = None
) -> Summary:
    """Compute a ladder's summary.

    Args:
        manifest: of the run; decides the order of arms and the reference, its first.
        cells: the journal's records, in its order. Invalid ones are listed and used for nothing else but the
            machine's readings.
        listed_prices: of chips; None: no costs.
    """
    listed = [arm.name for arm in manifest.plan.arms]
    arms = tuple(dict.fromkeys([*listed, *(record.cell.arm for record in cells)]))
    places = figures.places(cells)
    measures = (*figures.measures(places), *usage.peaks(cells))
    price = None if listed_prices is None else prices.of_machine(listed_prices, manifest.machine)
    contrasts = tuple(figures.contrasts(measures, arms, places))
    sheets = answers.sheets(cells)
    scores = answers.scores(sheets)
    pairs = answers.pairs(sheets, arms)
    table = rows.table(arms, cells, measures, scores)
    return Summary(
        manifest=manifest,
        arms=arms,
        timing_versions=tuple(sorted({record.timing_version for record in cells})),
        first_cell=min((record.started_at for record in cells), default=""),
        last_cell=max((record.started_at for record in cells), default=""),
        cells=len(cells),
        one_block=_one_block([record.cell.arm for record in cells]),
        uneven=tuple(work.sentences(work.groups(cells), {arm.name: arm.probe for arm in manifest.arms})),
        client_worst=_worst(cells),
        estimated=tuple(arm for arm in arms if _estimated(places, arm)),
        rows=tuple(medals.award(table, medals.Court(contrasts, pairs))),
        measures=measures,
        latencies=tuple(figures.latencies(places)),
        contrasts=contrasts,
        scores=scores,
        pairs=pairs,
        controls=answers.controls(cells),
        invalid=tuple(_invalid(record) for record in cells if record.invalid),
        usages=tuple(usage.usages(places)),
        readings=tuple(usage.readings(cells, arms)),
        price=price,
        costs=() if price is None else tuple(prices.costs(measures, price)),
    )


def _one_block(order: Sequence[str]) -> bool:
    """Whether each of several arms ran in one go."""
    blocks = [arm for arm, _ in groupby(order)]
    return len(set(order)) > 1 and len(blocks) == len(set(order))


def _estimated(places: figures.Places, arm: str) -> bool:
    mine = (record for (owner, _), records in places.items() if owner == arm for record in records)
    return any(request.extra.get("tokens_from") == "text" for record in mine for request in record.requests)


def _worst(records: Iterable[CellRecord]) -> dict[str, float]:
    worst: dict[str, float] = {}
    for record in records:
        for name, value in record.client.items():
            worst[name] = max(value, worst.get(name, value))
    return worst


def _invalid(record: CellRecord) -> InvalidCell:
    cell = record.cell
    place = figures.Place(cell.job, cell.variant, cell.level)
    return InvalidCell(cell.arm, place, cell.repeat, tuple(record.invalid))
