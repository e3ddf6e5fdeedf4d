"""Job `sweep`: a closed loop at each level and shape, repeated; unique prompts, outputs of exact length."""

from __future__ import annotations

from functools import partial

from onechip.ladder.jobs.task import Ask, Task, definition
from onechip.ladder.plan import Plan
from onechip.ladder.prompts import make
from onechip.ladder.records import Cell
from onechip.ladder.session import Session

WARM_TOKENS = 4


def request_count(plan: Plan, level: int) -> int:
    """Requests in a cell: whole waves, so that no slot is idle before the last wave ends (see Plan.waves)."""
    waves = max(plan.waves, -(-plan.least_requests // level))
    return waves * level


def tasks(session: Session) -> list[Task]:
    """Repeats outermost, so that a slow drift of the machine falls on all levels and shapes alike."""
    plan, recipe = session.plan, session.recipe
    assert recipe is not None
    made: list[Task] = []
    for repeat in range(plan.repeats):
        for tokens_in, tokens_out in session.shapes:
            for level in plan.levels:
                name = f"{tokens_in}/{tokens_out}"
                count = request_count(plan, level)
                what = definition(
                    recipe=recipe.sha256, seed=plan.seed, count=count, ignore_eos=session.features.ignore_eos
                )
                cell = Cell(session.arm.name, "sweep", name, level, repeat, what)
                asks = partial(_asks, session, (tokens_in, tokens_out), f"{level}/{repeat}", count)
                warm = partial(_asks, session, (tokens_in, WARM_TOKENS), f"{level}/warm-up", level)
                made.append(
                    Task(cell, asks, shared_tokens=recipe.overhead, warm_up=(f"{name} at {level}", warm))
                )
    return made


def _asks(session: Session, shape: tuple[int, int], where: str, count: int) -> list[Ask]:
    assert session.recipe is not None
    tokens_in, tokens_out = shape
    made: list[Ask] = []
    for index in range(count):
        prompt = make(
            session.recipe, tokens_in, f"{session.plan.seed}/{tokens_in}/{tokens_out}/{where}/{index}"
        )
        body = session.features.fields(tokens_out, fixed=True) | prompt.fields
        made.append(Ask(prompt.path, body, prompt.sha256, tokens_in, tokens_out))
    return made
