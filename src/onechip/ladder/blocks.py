"""The order of a ladder: a plan in, the blocks in which its arms run out.

A block is one start of one arm with what is measured on it. Without `--compare` each arm has one block, one
arm after the other. With it the two arms run as A B B A, again and again: the mean place of both arms is then
the same in every four blocks, so a linear drift of the machine falls on both alike.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from onechip.ladder.plan import BLOCKS, REPEATED, Plan
from onechip.ladder.records import JobName

ORDER = (0, 1, 1, 0)


@dataclass(frozen=True, slots=True)
class Block:
    """One start of one arm.

    Attributes:
        number: Cell.block of what is measured in it.
        cold, warm: which starts are recorded; a cold one is followed by a warm one unless `warm` is None.
        warm: Cell.repeat of the warm start; None if it is not recorded.
        jobs: what is run, in order.
        repeats: of the jobs in REPEATED.
        last: whether the arm has no block after it.
    """

    number: int
    arm: str
    cold: bool
    warm: int | None
    jobs: tuple[JobName, ...]
    repeats: range
    last: bool


def blocks(plan: Plan) -> Iterator[Block]:
    """All blocks that a ladder may run, in order; which of the later ones are needed depends on the repeats
    before (repeats.needed)."""
    yield from _compared(plan) if plan.compare else _one_after_the_other(plan)


def _one_after_the_other(plan: Plan) -> Iterator[Block]:
    starts = "start" in plan.jobs
    jobs = tuple(job for job in plan.jobs if job != "start")
    for arm in plan.arms:
        yield Block(0, arm.name, starts, 0 if starts else None, jobs, range(plan.most), last=True)


def _compared(plan: Plan) -> Iterator[Block]:
    """Cold starts and questions first, as they would put unequal times between the blocks of A and B."""
    starts, asked = "start" in plan.jobs, "acc" in plan.jobs
    if starts or asked:
        for arm in plan.arms:
            jobs: tuple[JobName, ...] = ("acc",) if asked else ()
            yield Block(0, arm.name, starts, None, jobs, range(0), last=False)
    timed = tuple(job for job in plan.jobs if job in REPEATED)
    if not timed and not starts:
        return
    count = BLOCKS * plan.most // plan.quad
    for position in range(count):
        quad, place = divmod(position, BLOCKS)
        own = 2 * quad + ORDER[:place].count(ORDER[place])
        repeats = range(own * plan.per_start, (own + 1) * plan.per_start)
        yield Block(
            position + 1,
            plan.arms[ORDER[place]].name,
            False,
            own if starts else None,
            timed,
            repeats,
            last=position >= count - 2,
        )
