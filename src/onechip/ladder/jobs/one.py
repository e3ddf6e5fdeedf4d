"""Job `one`: six chat prompts one after the other, greedy, several times over; then four at once."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

from onechip.ladder.jobs.task import Ask, Task, definition
from onechip.ladder.plan import ONE_AT_ONCE
from onechip.ladder.prompts import ONE_PROMPTS, digest
from onechip.ladder.records import Cell
from onechip.ladder.session import Session

WARM_TOKENS = 8
WARM_PROMPT = "Say a few words about the weather."


def tasks(session: Session, repeat: int) -> list[Task]:
    """One repeat of `alone` (level 1) and of `four` (level 4, the first four prompts)."""
    what = definition(prompts=ONE_PROMPTS, tokens=session.plan.one_tokens, fixed=session.features.ignore_eos)
    made: list[Task] = []
    for variant, level, numbers in (
        ("alone", 1, range(len(ONE_PROMPTS))),
        ("four", ONE_AT_ONCE, range(ONE_AT_ONCE)),
    ):
        cell = Cell(session.arm.name, "one", variant, level, repeat, what, session.block)
        warm_up = (variant, partial(_warm_up, session, level))
        made.append(Task(cell, partial(_asks, session, numbers), warm_up=warm_up))
    return made


def _asks(session: Session, numbers: Sequence[int]) -> list[Ask]:
    tokens = session.plan.one_tokens
    fixed = tokens if session.features.ignore_eos else None
    return [
        Ask(
            "/v1/chat/completions",
            session.features.fields(tokens, fixed=True) | (fields := _chat(ONE_PROMPTS[number])),
            digest(fields),
            asked_output_tokens=fixed,
            extra={"question": number},
        )
        for number in numbers
    ]


def _warm_up(session: Session, level: int) -> list[Ask]:
    fields = _chat(WARM_PROMPT)
    body = session.features.fields(WARM_TOKENS, fixed=True) | fields
    return [Ask("/v1/chat/completions", body, digest(fields))] * level


def _chat(text: str) -> dict[str, Any]:
    return {"messages": [{"role": "user", "content": text}]}
