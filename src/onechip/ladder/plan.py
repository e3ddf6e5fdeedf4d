"""What a ladder is asked to do: the options of the command line in, one frozen plan out.

It is saved in the manifest, and `resume` reads it from there.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from onechip.errors import UsageError
from onechip.ladder.records import Arm, JobName

JOBS: tuple[JobName, ...] = ("start", "one", "sweep", "acc")
DEFAULT_ENGINES = "onechip:bf16,onechip:int4"
"""In the words of --engines (arms.py)."""
ACC_SETS = ("acorn", "gsm8k", "bfcl")
LEVELS = (1, 2, 4, 8, 16, 32, 64)
SHAPES = ((512, 128), (128, 512))
REPEATS = 6
"""Of a cell of `one` and `sweep`: five repeats could never reach p < 0.05."""


WAVES = 3
"""Of requests in a cell of the sweep, at the least."""
MOST_AT_ONCE = 1024
"""Of requests: a client in one process would measure itself beyond."""
MOST_TOKENS = 262_144
"""Of one request, in and out: the longest context of any Gemma 4."""
MOST_REPEATS = 1000
MOST_WAVES = 64
MOST_QUESTIONS = 1_000_000
"""More than any set has."""
MOST_SEED = 2**32 - 1
ONE_AT_ONCE = 4
"""Requests together in job `one`, variant "four"."""
PROMPT_ROOM = 1024
"""Tokens that the longest prompt of `one` and `acc` may take, declared tools and template included."""
TEMPLATE_ROOM = 64
"""Tokens that a chat template may put around a prompt of the sweep."""
MOST_ANSWER = 2048
"""Output limit of the question sets that are not acorn's (data.py)."""


class Limits(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Deadlines in seconds.

    Attributes:
        stall_s: no byte for this long fails a request.
        request_s, cell_s, job_s, ladder_s: the whole of each. A job's remaining cells are then recorded as
            invalid; a ladder past its own stops and can be resumed.
        start_s: from spawning an engine to its first token. The longest one known is 2,055 s (vLLM, a TPU).
    """

    stall_s: float = 120.0
    request_s: float = 900.0
    cell_s: float = 1800.0
    job_s: float = 6 * 3600.0
    ladder_s: float = 48 * 3600.0
    start_s: float = 3600.0


class Plan(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Everything that decides what is asked of the engines.

    Attributes:
        levels, shapes: of the sweep; a shape is (input tokens, output tokens).
        repeats: of each sweep cell.
        waves: least requests in a sweep cell, in multiples of its level. Two is the least that gives the
            full-window figure slots that were refilled while the others decoded; with three the middle wave
            has neither ramp nor tail.
        least_cell_s: about the least seconds of a sweep cell; see jobs/sweep.py.
        one_repeats, one_tokens: repeats and output tokens of job `one`.
        acc: question sets; acc_limit: only the first so many questions of each; acc_level: requests at once.
        acc_block: questions in one cell of `acc`, the most that a kill can lose.
        acc_tokens: output limit per question of the acorn sets (the others state their own).
        seed: of all prompts.
    """

    model: str
    arms: tuple[Arm, ...]
    jobs: tuple[JobName, ...] = JOBS
    quick: bool = False
    levels: tuple[int, ...] = LEVELS
    shapes: tuple[tuple[int, int], ...] = SHAPES
    repeats: int = REPEATS
    waves: int = WAVES
    least_cell_s: float = 5.0
    one_repeats: int = REPEATS
    one_tokens: int = 256
    acc: tuple[str, ...] = ("acorn",)
    acc_limit: int | None = None
    acc_level: int = 1
    acc_block: int = 20
    acc_tokens: int = 160
    data: str | None = None
    seed: int = 1
    limits: Limits = Limits()

    @property
    def at_once(self) -> int:
        """The most requests in flight at any time."""
        of_jobs = {"one": ONE_AT_ONCE, "sweep": max(self.levels, default=1), "acc": self.acc_level}
        return max((of_jobs[job] for job in self.jobs if job in of_jobs), default=1)

    @property
    def longest(self) -> int:
        """Tokens, prompt and output together, that the longest request may need."""
        of_jobs = {
            "one": PROMPT_ROOM + self.one_tokens,
            "sweep": TEMPLATE_ROOM + max(map(sum, self.shapes), default=0),
            "acc": PROMPT_ROOM + (self.acc_tokens if self.acc == ("acorn",) else MOST_ANSWER),
        }
        return max((of_jobs[job] for job in self.jobs if job in of_jobs), default=PROMPT_ROOM)


QUICK: dict[str, Any] = {
    "levels": (1, 8, 64),
    "shapes": ((128, 32), (32, 128)),
    "waves": 2,
    "least_cell_s": 1.0,
    "one_tokens": 128,
}
"""What --quick changes where the command line does not. Repeats stay, or nothing could be claimed."""


def cuts(plan: Plan) -> list[str]:
    """What was cut short, for the report, one sentence each; empty for a whole ladder."""
    notes: list[str] = []
    if plan.quick and "sweep" in plan.jobs:
        levels = ", ".join(map(str, plan.levels))
        shapes = " and ".join(f"{i}/{o}" for i, o in plan.shapes)
        notes.append(
            f"--quick: the sweep ran levels {levels} and shapes {shapes} with {plan.waves} waves of requests;"
            " a whole ladder runs levels 1 to 64 and shapes 512/128 and 128/512 with three."
        )
    if plan.quick and "one" in plan.jobs:
        notes.append(f"--quick: job `one` wrote {plan.one_tokens} tokens a prompt instead of 256.")
    if plan.repeats < REPEATS:
        notes.append(f"{plan.repeats} repeats a cell: with fewer than {REPEATS} nothing can be claimed.")
    if plan.waves < WAVES and "sweep" in plan.jobs and not plan.quick:
        notes.append(f"The sweep's cells have {plan.waves} waves of requests instead of {WAVES}.")
    if plan.limits.job_s < Limits().job_s:
        notes.append(f"A job of one engine was given {plan.limits.job_s / 60:g} minutes (--job-minutes).")
    if plan.acc_limit is not None and "acc" in plan.jobs:
        notes.append(f"Job `acc` asked only the first {plan.acc_limit} questions of each set.")
    return notes


def check(plan: Plan) -> Plan:
    """The plan itself.

    Raises:
        UsageError: a value cannot be run; the message names the option, the value and what would do.
    """
    _check_names("--jobs", plan.jobs, JOBS, "job")
    _check_names("--acc", plan.acc, ACC_SETS, "question set")
    levels = ",".join(map(str, plan.levels))
    if not all(1 <= level <= MOST_AT_ONCE for level in plan.levels):
        raise UsageError(
            f"--levels {levels}: each level is a number of requests at once, 1 to {MOST_AT_ONCE}."
        )
    shapes = ",".join(f"{tokens_in}/{tokens_out}" for tokens_in, tokens_out in plan.shapes)
    if not all(i >= 8 and o >= 2 and i + o <= MOST_TOKENS for i, o in plan.shapes):
        raise UsageError(
            f"--shapes {shapes}: a shape is IN/OUT, 8 or more in and 2 or more out, {MOST_TOKENS} together at"
            " the most."
        )
    _check_range("--repeats", plan.repeats, 1, MOST_REPEATS)
    _check_range("--acc-limit", plan.acc_limit, 1, MOST_QUESTIONS)
    _check_range("--acc-level", plan.acc_level, 1, MOST_AT_ONCE)
    _check_range("--seed", plan.seed, 0, MOST_SEED)
    _check_range("--cell-seconds", plan.least_cell_s, 0, plan.limits.cell_s)
    _check_range("--waves", plan.waves, 1, MOST_WAVES)
    _check_range("--one-tokens", plan.one_tokens, 2, MOST_TOKENS)
    _check_range("--job-minutes", plan.limits.job_s / 60, 0.1, plan.limits.ladder_s / 60)
    if not 0 < plan.limits.stall_s <= plan.limits.request_s:
        raise UsageError(
            f"--stall {plan.limits.stall_s:g}: give seconds, more than 0 and at most"
            f" {plan.limits.request_s:g} (the deadline of a whole request)."
        )
    return plan


def _check_names(option: str, given: Sequence[str], known: Sequence[str], what: str) -> None:
    names = ", ".join(known)
    if not given:
        raise UsageError(f"{option} names no {what}; the {what}s are {names}.")
    for name in given:
        if name not in known:
            raise UsageError(f"{option} {name}: there is no such {what}; the {what}s are {names}.")


def _check_range(option: str, value: float | None, least: float, most: float) -> None:
    """Whether a number that was given lies within both bounds; nan lies nowhere."""
    if value is not None and not least <= value <= most:
        raise UsageError(f"{option} {value}: give {least} to {most:.0f}.")
