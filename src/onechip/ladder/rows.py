"""The rows of the medal table: records, measures and scores in, one row per task out, without verdicts."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

import msgspec

from onechip.ladder import figures, work
from onechip.ladder.answers import Score
from onechip.ladder.figures import KINDS, Measure, Place, Places
from onechip.ladder.medals import Entry, Row
from onechip.ladder.records import CellRecord
from onechip.ladder.usage import PEAK_PLACE

ONE = (
    ("end_to_end_tok_s", "One request, end to end"),
    ("decode_tok_s", "One request, decode"),
    ("ttft_ms", "One request, first token"),
)
MEMORY = (
    ("resident_peak_bytes", "Peak resident memory", "resident_bytes", "Resident memory"),
    ("device_peak_bytes", "Peak device memory", "device_bytes", "Device memory"),
)
"""The peak over all cells; else, in a ladder without any, what was taken after the first token."""


class Task(NamedTuple):
    """A row of speed or memory before it is filled."""

    place: Place
    figure: str
    label: str


def table(
    arms: Sequence[str], records: Sequence[CellRecord], measures: Iterable[Measure], scores: Iterable[Score]
) -> list[Row]:
    """Every row for which some arm has a figure, or an invalid cell.

    Args:
        arms: columns, in order.
        records: all of the ladder's, invalid ones included.
        measures, scores: of the valid ones.
    """
    places = dict.fromkeys(Place.of(r.cell) for r in records)
    measures, remarks = list(measures), _remarks(records)
    tasks = [*_tasks(list(places)), *_memory_tasks(list(places), measures)]
    speed = [_speed_row(task, arms, measures, remarks) for task in tasks]
    accuracy = _accuracy_rows(arms, places, scores, remarks)
    rows = [*speed, *accuracy, *_text_rows(arms, figures.places(records), remarks)]
    memory = [row for row in rows if row.unit == "bytes"]
    groups = work.groups(records)
    ordered = [*(row for row in rows if row.unit != "bytes"), *memory]
    return [_with_work(row, groups) for row in ordered if _shown(row)]


def _tasks(places: Sequence[Place]) -> Iterator[Task]:
    """Speed, in the order in which a reader asks."""
    for place in _starts(places):
        yield Task(place, "total_s", f"Start, {place.variant} cache")
    for place in places:
        if place.job == "one" and place.variant == "alone":
            for figure, label in ONE:
                yield Task(place, figure, label)
    for place in places:
        if place.job == "one" and place.variant != "alone":
            yield Task(place, "whole_batch_tok_s", f"{place.variant.capitalize()} at once")
    yield from _sweep_tasks([place for place in places if place.job == "sweep"])


def _starts(places: Sequence[Place]) -> list[Place]:
    """Cold before warm."""
    return [place for variant in ("cold", "warm") for place in places if place[:2] == ("start", variant)]


def _memory_tasks(places: Sequence[Place], measures: Sequence[Measure]) -> Iterator[Task]:
    peaks = {m.figure for m in measures if m.place == PEAK_PLACE}
    for peak, label, first, first_label in MEMORY:
        if peak in peaks:
            yield Task(PEAK_PLACE, peak, label)
        else:
            yield from (Task(place, first, first_label) for place in _starts(places)[-1:])


def _sweep_tasks(places: Sequence[Place]) -> Iterator[Task]:
    """The lowest and the highest level of each shape."""
    for variant in dict.fromkeys(place.variant for place in places):
        levels = sorted(place.level for place in places if place.variant == variant)
        for level in dict.fromkeys((levels[0], levels[-1])):
            label = f"{level} request{'s' if level > 1 else ''}, {lengths(variant)}"
            yield Task(Place("sweep", variant, level), "whole_batch_tok_s", label)


def lengths(variant: str) -> str:
    """A sweep's shape in words: "512/128" is 512 tokens in, 128 out."""
    before, _, after = variant.partition("/")
    return f"{before} in, {after} out"


Remarks = dict[tuple[str, Place], str]


def _remarks(records: Iterable[CellRecord]) -> Remarks:
    """Why an arm may have no figure at a place: all of its cells are invalid, or they do not give it."""
    remarks: Remarks = {}
    for record in records:
        key = (record.cell.arm, Place.of(record.cell))
        remarks[record.cell.arm, PEAK_PLACE] = "not available"
        if not record.invalid:
            remarks[key] = "not available"
        else:
            remarks.setdefault(key, "invalid")
    return remarks


def _speed_row(task: Task, arms: Sequence[str], measures: Iterable[Measure], remarks: Remarks) -> Row:
    found = {m.arm: m for m in measures if m.place == task.place and m.figure == task.figure}
    entries = []
    for arm in arms:
        if arm in found:
            spread = found[arm].spread
            remark = "UNSTABLE" if spread.unstable else ""
            entries.append(Entry(arm, found[arm].headline, spread.n, remark))
        else:
            entries.append(Entry(arm, None, 0, remarks.get((arm, task.place), "not run")))
    kind = KINDS[task.figure]
    return Row(task.place, task.figure, task.label, kind.unit, kind.better, "speed", tuple(entries))


def _accuracy_rows(
    arms: Sequence[str], places: Iterable[Place], scores: Iterable[Score], remarks: Remarks
) -> Iterator[Row]:
    for place in places:
        if place.job == "acc":
            found = {score.arm: score for score in scores if score.variant == place.variant}
            entries = tuple(
                Entry(arm, found[arm].score, found[arm].n)
                if arm in found
                else Entry(arm, None, 0, remarks.get((arm, place), "not run"))
                for arm in arms
            )
            yield Row(place, "score", f"Accuracy, {place.variant}", "%", "higher", "accuracy", entries)


def _text_rows(arms: Sequence[str], places: Places, remarks: Remarks) -> Iterator[Row]:
    """How many prompts of job `one` get the same text in every repeat."""
    alone = {arm: (place, found) for (arm, place), found in places.items() if place.variant == "alone"}
    if not alone:
        return
    place = next(iter(alone.values()))[0]
    entries = []
    for arm in arms:
        same = figures.same_texts(alone[arm][1]) if arm in alone else None
        missing = Entry(arm, None, 0, remarks.get((arm, place), "not run"))
        entries.append(missing if same is None else Entry(arm, *same))
    yield Row(place, "same_texts", "Repeats its own text", "prompts", "higher", "none", tuple(entries))


def _with_work(row: Row, groups: Mapping[Place, work.Groups]) -> Row:
    """The row with the number of each arm's group at its place; a start has no groups."""
    number = {arm: at for at, arms in enumerate(groups.get(row.place, ())) for arm in arms}
    entries = tuple(msgspec.structs.replace(entry, work=number.get(entry.arm, 0)) for entry in row.entries)
    return msgspec.structs.replace(row, entries=entries)


def _shown(row: Row) -> bool:
    """Whether some arm has a figure, or broke a rule; memory is known of starts that came up only."""
    broken = row.unit != "bytes" and any(entry.remark == "invalid" for entry in row.entries)
    return broken or any(entry.value is not None for entry in row.entries)
