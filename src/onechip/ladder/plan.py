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
REPEATED: tuple[JobName, ...] = ("one", "sweep")
"""Jobs whose cells are repeated."""
DEFAULT_ENGINES = "onechip:bf16,onechip:int4"
"""In the words of --engines (arms.py)."""
ACC_SETS = ("acorn", "gsm8k", "bfcl")
LEVELS = (1, 2, 4, 8, 16, 32, 64)
SHAPES = ((512, 128), (128, 512))
REPEATS = 6
"""Of a cell of `one` and `sweep`: five repeats could never reach p < 0.05."""
MANY_REPEATS = 10
"""The least where a claim is corrected for many comparisons: six could not survive Holm's correction for
two."""
MOST_BY_ITSELF = 12
"""Repeats, where they are added until an interval is narrow."""
HALF_WIDTH = 0.02
"""Of an interval that is narrow enough, relative."""
BLOCKS = 4
"""A B B A."""

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
        cool_s: between two starts, until the machine is as idle and as cool as it was before the ladder.
    """

    stall_s: float = 120.0
    request_s: float = 900.0
    cell_s: float = 1800.0
    job_s: float = 6 * 3600.0
    ladder_s: float = 48 * 3600.0
    start_s: float = 3600.0
    cool_s: float = 60.0


class Plan(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Everything that decides what is asked of the engines.

    Attributes:
        levels, shapes: of the sweep; a shape is (input tokens, output tokens).
        repeats: of each cell of `one` and `sweep`, at the least.
        most_repeats: where the interval of a cell's speed is wider than `half_width` (relative, half of it),
            it is repeated until it is not, or has been so often; None: `repeats` and no more.
        compare: the two arms run as A B B A blocks (blocks.py). per_start: repeats in a block.
        pin: cores of the engines, the client has the others; empty: all share all.
        waves: least requests in a sweep cell, in multiples of its level. Two is the least that gives the
            full-window figure slots that were refilled while the others decoded; with three the middle wave
            has neither ramp nor tail.
        least_cell_s: about the least seconds of a sweep cell; see jobs/sweep.py.
        one_tokens: output tokens of job `one`.
        acc: question sets; acc_limit: only the first so many questions of each; acc_level: requests at once.
        acc_block: questions in one cell of `acc`, the most that a kill can lose; more where many are asked at
            once (jobs/acc.py).
        acc_tokens: output limit per question of the acorn sets (the others state their own).
        acc_again: how many times more each arm is asked every set, as a control.
        seed: of all prompts.
    """

    model: str
    arms: tuple[Arm, ...]
    jobs: tuple[JobName, ...] = JOBS
    quick: bool = False
    levels: tuple[int, ...] = LEVELS
    shapes: tuple[tuple[int, int], ...] = SHAPES
    repeats: int = REPEATS
    most_repeats: int | None = None
    half_width: float = HALF_WIDTH
    compare: bool = False
    per_start: int = 1
    pin: tuple[int, ...] = ()
    waves: int = WAVES
    least_cell_s: float = 5.0
    one_tokens: int = 256
    acc: tuple[str, ...] = ("acorn",)
    acc_limit: int | None = None
    acc_level: int = 1
    acc_block: int = 20
    acc_tokens: int = 160
    acc_again: int = 0
    data: str | None = None
    seed: int = 1
    limits: Limits = Limits()

    @property
    def most(self) -> int:
        """Repeats of a cell that there may be."""
        return self.repeats if self.most_repeats is None else self.most_repeats

    @property
    def quad(self) -> int:
        """Repeats of each arm in A B B A."""
        return 2 * self.per_start

    @property
    def claims(self) -> int:
        """Rows of speed in the report, for which claims are corrected together."""
        one = 4 if "one" in self.jobs else 0
        return one + (len(self.shapes) * min(2, len(set(self.levels))) if "sweep" in self.jobs else 0)

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
"""What --quick changes where the command line does not, besides the repeats (usual_repeats)."""


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
    elif plan.repeats < MANY_REPEATS and plan.claims > 1:
        notes.append(
            f"{plan.repeats} repeats a cell: a claim that is corrected for {plan.claims} comparisons should"
            f" rest on {MANY_REPEATS}."
        )
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
    _check_repeats(plan)
    _check_range("--cool-down", plan.limits.cool_s, 0, plan.limits.cell_s)
    _check_range("--acc-limit", plan.acc_limit, 1, MOST_QUESTIONS)
    _check_range("--acc-level", plan.acc_level, 1, MOST_AT_ONCE)
    _check_range("--repeat-acc", plan.acc_again, 0, MOST_REPEATS)
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


def _check_repeats(plan: Plan) -> None:
    said = f"--repeats {repeats_in_words(plan)}"
    if not 1 <= plan.repeats <= plan.most <= MOST_REPEATS:
        raise UsageError(f"{said}: give N, or LEAST-MOST, of 1 to {MOST_REPEATS}.")
    _check_range("--per-start", plan.per_start, 1, MOST_REPEATS)
    if plan.per_start > 1 and not plan.compare:
        raise UsageError(
            f"--per-start {plan.per_start} is for --compare A B; otherwise an arm has one start."
        )
    if plan.compare and (plan.repeats % plan.quad or plan.most % plan.quad):
        raise UsageError(
            f"{said}: A B B A blocks with --per-start {plan.per_start} give each arm {plan.quad} repeats;"
            f" give a multiple of {plan.quad}."
        )


def repeats_in_words(plan: Plan) -> str:
    """In the words of --repeats: "6", "10-12"."""
    return f"{plan.repeats}" if plan.most_repeats is None else f"{plan.repeats}-{plan.most_repeats}"


def usual_repeats(plan: Plan) -> Plan:
    """The plan with the repeats that its claims need (--quick: the fewest that may show anything); with A
    B B A, rounded up to whole ones."""
    least, most = (MANY_REPEATS if plan.claims > 1 else REPEATS), MOST_BY_ITSELF
    if plan.quick:
        least = most = REPEATS
    step = plan.quad if plan.compare and plan.per_start > 0 else 1
    least, most = (-(-number // step) * step for number in (least, most))
    return msgspec.structs.replace(plan, repeats=least, most_repeats=most if most > least else None)


def design(plan: Plan) -> list[str]:
    """How the ladder is going to be run, said before it begins, one sentence each."""
    names = [arm.name for arm in plan.arms]
    told = []
    if plan.compare:
        a, b = names
        each = "one repeat" if plan.per_start == 1 else f"{plan.per_start} repeats"
        told.append(
            f"Order: A B B A, again and again, with A {a} and B {b}; each block is a start of its own with"
            f" {each} of each cell."
        )
    elif len(names) > 1:
        told.append("Order: one arm after the other, each in one block.")
    if plan.claims:
        more = (
            f"at least {plan.repeats}, then more until the half-width of the interval of its speed is at most"
            f" {plan.half_width:.0%}, and at most {plan.most_repeats}"
        )
        told.append(f"Repeats of a cell: {plan.repeats if plan.most_repeats is None else more}.")
    return told


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
