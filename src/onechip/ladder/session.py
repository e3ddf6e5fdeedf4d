"""An arm that is up and answers: all that a job needs to know to ask it something."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from onechip.ladder import prompts
from onechip.ladder.checkpoint import TokenCounter
from onechip.ladder.client import Deadlines
from onechip.ladder.meters import Meter
from onechip.ladder.plan import Plan
from onechip.ladder.probe import Features
from onechip.ladder.records import Arm
from onechip.ladder.target import Target


@dataclass(frozen=True, slots=True)
class Session:
    """One arm between its start and its stop.

    Attributes:
        recipe: how to make prompts of exact length; None if there is no way (only the sweep needs one).
        shapes: of the sweep as run, (input tokens, output tokens).
        counts: of requests in the sweep's cells, by jobs.sweep.place.
        counter: the checkpoint's own tokenizer, None where unknown.
        tick: called about once a second while a load runs.
        block: Cell.block of what is measured.
        meter: of its memory and energy; None where the ladder did not start it.
    """

    plan: Plan
    arm: Arm
    target: Target
    features: Features
    recipe: prompts.Recipe | None
    shapes: tuple[tuple[int, int], ...]
    counts: Mapping[str, int]
    counter: TokenCounter | None
    tick: Callable[[], None]
    block: int = 0
    meter: Meter | None = None

    @property
    def deadlines(self) -> Deadlines:
        limits = self.plan.limits
        return Deadlines(limits.stall_s, limits.request_s, limits.cell_s)
