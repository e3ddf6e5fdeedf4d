"""Job `sweep`: a closed loop at each level and shape, repeated; unique prompts, outputs of exact length."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import partial

from onechip.errors import LadderError
from onechip.ladder.client import Load
from onechip.ladder.jobs.task import Ask, Task, definition, prepared
from onechip.ladder.plan import MOST_WAVES
from onechip.ladder.prompts import make
from onechip.ladder.records import Cell
from onechip.ladder.session import Session

WARM_TOKENS = 4
SMALLEST_SIDE = 8
"""Tokens in or out; shapes are not halved below it."""


def fit_shapes(
    shapes: Sequence[tuple[int, int]], context: int | None
) -> tuple[list[tuple[int, int]], list[str]]:
    """The sweep's shapes as run, halved until they fit into the context, and a note for each that was.

    Raises:
        LadderError: the context is too short for any sweep.
    """
    fitted: list[tuple[int, int]] = []
    notes: list[str] = []
    for tokens_in, tokens_out in shapes:
        as_run = (tokens_in, tokens_out)
        while context is not None and sum(as_run) > context:
            as_run = (as_run[0] // 2, as_run[1] // 2)
            if min(as_run) < SMALLEST_SIDE:
                raise LadderError(
                    f"The sweep was left out: a context of {context} tokens is too short for shape"
                    f" {tokens_in}/{tokens_out}."
                )
        if as_run != (tokens_in, tokens_out):
            notes.append(
                f"The sweep's shape {tokens_in}/{tokens_out} was run as {as_run[0]}/{as_run[1]}, because the"
                f" context is {context} tokens."
            )
        fitted.append(as_run)
    return fitted, notes


def size(session: Session) -> dict[str, int]:
    """How many requests the cells of each shape and level have, by trying one wave on this arm.

    Whole waves, so that no slot is idle before the last wave ends (see Plan.waves), and so many that a cell
    takes about `Plan.least_cell_s` here: the rate of a cell of a tenth of a second would be mostly noise. All
    arms get the same work, so this is done once in a ladder.
    """
    counts: dict[str, int] = {}
    for shape in session.shapes:
        for level in session.plan.levels:
            prepared(_asks(session, (shape[0], WARM_TOKENS), f"{level}/first", level), level, session)()
            wave_s = _seconds(prepared(_asks(session, shape, f"{level}/size", level), level, session)())
            wanted = math.ceil(session.plan.least_cell_s / wave_s) if wave_s > 0 else 0
            counts[place(shape, level)] = level * max(session.plan.waves, min(wanted, MOST_WAVES))
    return counts


def place(shape: tuple[int, int], level: int) -> str:
    """A shape and level in words: "512/128 at 8"."""
    return f"{shape[0]}/{shape[1]} at {level}"


def tasks(session: Session, repeat: int) -> list[Task]:
    """One repeat of every shape and level, so that a slow drift of the machine falls on all of them alike."""
    return [_task(session, shape, level, repeat) for shape in session.shapes for level in session.plan.levels]


def _task(session: Session, shape: tuple[int, int], level: int, repeat: int) -> Task:
    recipe = session.recipe
    assert recipe is not None
    count = session.counts[place(shape, level)]
    what = definition(
        recipe=recipe.sha256,
        seed=session.plan.seed,
        count=count,
        ignore_eos=session.features.ignore_eos,
    )
    variant = f"{shape[0]}/{shape[1]}"
    cell = Cell(session.arm.name, "sweep", variant, level, repeat, what, session.block)
    where = f"{level}/{repeat}"
    warm = partial(_asks, session, (shape[0], WARM_TOKENS), f"{level}/warm-up", level)
    return Task(
        cell,
        partial(_asks, session, shape, where, count),
        shared_tokens=recipe.overhead,
        warm_up=(place(shape, level), warm),
        unasked=partial(_ask, session, (shape[0], 1), f"{where}/unasked"),
    )


def _asks(session: Session, shape: tuple[int, int], where: str, count: int) -> list[Ask]:
    return [_ask(session, shape, f"{where}/{index}") for index in range(count)]


def _ask(session: Session, shape: tuple[int, int], where: str) -> Ask:
    return ask(session, shape, f"{session.plan.seed}/{shape[0]}/{shape[1]}/{where}")


def ask(session: Session, shape: tuple[int, int], key: str) -> Ask:
    """A request of this shape with the prompt that belongs to `key`."""
    assert session.recipe is not None
    tokens_in, tokens_out = shape
    prompt = make(session.recipe, tokens_in, key)
    body = session.features.fields(tokens_out, fixed=True) | prompt.fields
    return Ask(prompt.path, body, prompt.sha256, tokens_in, tokens_out)


def _seconds(load: Load) -> float:
    """From the first send to the last byte; 0 if a request failed, whose time would say nothing."""
    if any(exchange.error for exchange in load.exchanges):
        return 0.0
    first = min(exchange.sent_ns for exchange in load.exchanges)
    return (max(exchange.end_ns for exchange in load.exchanges) - first) / 1e9
