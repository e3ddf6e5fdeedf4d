"""The held-out questions: a seed in, problems and calls that training never sees out; and their two files."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from onechip.models.tokenizer import Tokenizer
from tools.acorn.calls import Call, bfcl_row, held_out_call, with_suffix
from tools.acorn.draws import Draw
from tools.acorn.greedy import Task
from tools.acorn.problems import Problem, held_out_problem
from tools.acorn.samples import END_OF_TURN, Sampler, called

DATA_DIR = Path(__file__).parents[2] / "src" / "onechip" / "ladder" / "data"
PROBLEMS_FILE = DATA_DIR / "acorn_problems.jsonl"
CALLS_FILE = DATA_DIR / "acorn_calls.jsonl"

SHIPPED_SEED = 987654321
SHIPPED_PROBLEMS = 200
SHIPPED_CALLS = 100

LATE_ROOM = 400
"""Tokens for the last turn of a chat that may overshoot, and for the question and its answer."""

VALIDATION_SEED = 123456789
"""Of the questions that the learning curve is measured on: the shipped ones are looked at only at the end."""


def problems(seed: int, count: int) -> list[Problem]:
    """`count` held-out problems, no question twice."""
    draw, found = Draw(f"problems {seed}"), dict[str, Problem]()
    while len(found) < count:
        made = held_out_problem(draw)
        found.setdefault(made.question, made)
    return list(found.values())


def calls(seed: int, count: int) -> list[Call]:
    """`count` held-out calls, no question twice."""
    draw, found = Draw(f"calls {seed}"), dict[str, Call]()
    while len(found) < count:
        made = held_out_call(draw)
        found.setdefault(made.question, made)
    return list(found.values())


def problem_task(sampler: Sampler, problem: Problem) -> Task:
    return Task(sampler.prompt(problem.question), problem.answer + END_OF_TURN)


def call_task(sampler: Sampler, call: Call) -> Task:
    """As the ladder asks it: with BFCL's suffix on the descriptions."""
    return Task(sampler.prompt(call.question, with_suffix(call).tools), called(call).text)


def late_problem_tasks(tokenizer: Tokenizer, length: int, count: int) -> list[Task]:
    """Held-out problems at the end of chats that leave just enough of `length` tokens for them."""
    sampler, draw = Sampler(), Draw(f"late {length}")

    def is_late(text: str) -> bool:
        return len(tokenizer.encode(text)) > length - LATE_ROOM

    return [
        Task(sampler.late_prompt(draw, problem.question, is_late), problem.answer + END_OF_TURN)
        for problem in problems(VALIDATION_SEED, count)
    ]


def write_shipped() -> None:
    """The two files that the ladder's job `acc` reads by default."""
    made = enumerate(problems(SHIPPED_SEED, SHIPPED_PROBLEMS))
    _write(
        PROBLEMS_FILE,
        ({"id": f"acorn_problem_{n}", "question": each.question, "answer": each.answer} for n, each in made),
    )
    _write(CALLS_FILE, (bfcl_row(n, each) for n, each in enumerate(calls(SHIPPED_SEED, SHIPPED_CALLS))))


def _write(path: Path, rows: Iterable[dict[str, Any]]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")


if __name__ == "__main__":
    write_shipped()
