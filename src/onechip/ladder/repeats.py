"""How often a cell is repeated: a plan and the records so far in, whether one more repeat is needed out.

The rule is in the plan before the ladder begins, and looks at nothing but the records: a ladder that was
killed decides as one that was not.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from onechip.ladder import stats, timing
from onechip.ladder.figures import Place
from onechip.ladder.plan import REPEATED, Plan
from onechip.ladder.records import CellRecord


def speed(record: CellRecord) -> float | None:
    """The figure of a cell that its repeats are judged by, tok/s: end to end of requests one after the other
    (geometric mean over them), else of the whole batch. None if the cell does not give it."""
    if record.cell.level > 1 or record.cell.job == "sweep":
        return timing.whole_batch_tok_s(record.requests)
    speeds = [found for request in record.requests if (found := timing.end_to_end_tok_s(request))]
    return timing.geometric_mean(speeds)


def needed(plan: Plan, records: Iterable[CellRecord], arm: str, place: Place, repeat: int) -> bool:
    """Whether a place of an arm gets this repeat; both arms of a comparison decide together.

    Args:
        records: of the ladder so far.
    """
    if repeat < plan.repeats:
        return True
    if repeat >= plan.most:
        return False
    decided = repeat - repeat % plan.quad if plan.compare else repeat
    arms = [each.name for each in plan.arms] if plan.compare else [arm]
    own: dict[str, list[CellRecord]] = {name: [] for name in arms}
    for record in records:
        cell = record.cell
        if cell.arm in own and Place.of(cell) == place and cell.repeat < decided:
            own[cell.arm].append(record)
    return any(_wide(plan, found) for found in own.values())


def places(records: Iterable[CellRecord]) -> list[Place]:
    """Where cells are repeated, as far as records tell."""
    found = (Place.of(r.cell) for r in records if r.cell.job in REPEATED)
    return list(dict.fromkeys(found))


def _wide(plan: Plan, records: Sequence[CellRecord]) -> bool:
    """Whether the valid repeats so far are too few or too far apart; more cannot help where none is valid or
    none gives a figure."""
    valid = [record for record in records if not record.invalid]
    values = [value for record in valid if (value := speed(record))]
    if not values:
        return False
    if len(values) < plan.repeats:
        return True
    half_width = stats.describe(values).half_width
    return half_width is None or half_width > plan.half_width
