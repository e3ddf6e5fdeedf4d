"""Who wins a row: each arm's figure and the evidence between pairs of arms in, one verdict per row out.

A medal says that the leader's difference to every arm that can be compared with it is established; an arm
that is behind and has too few repeats for that is named instead. For a medal, both intervals of each
of these comparisons must exclude "no difference", and the row's p, the largest of them, must stay below 0.05
after Holm's correction over all rows of its family that can be tested.

Only arms that were given the same work are compared: those of the largest group, or, of groups as large as
each other, of the one with the best value. The others are named.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Literal

import msgspec

from onechip.ladder.answers import Pair
from onechip.ladder.figures import Better, Contrast, Place
from onechip.ladder.stats import ALPHA, Paired, Ratio, holm

Outcome = Literal["medal", "level", "tie", "not separated", "too few repeats", "no contest", "no test"]
Family = Literal["speed", "accuracy", "none"]


class Entry(msgspec.Struct, frozen=True):
    """One arm in one row.

    Attributes:
        value: in the row's unit; None where there is none, and `remark` says why.
        n: repeats or questions behind it.
        remark: "", "UNSTABLE", "invalid", "not run", "not available".
        work: number of the group of arms that were given the same work in this row, 0-based (work.groups).
    """

    arm: str
    value: float | None
    n: int = 0
    remark: str = ""
    work: int = 0


class Verdict(msgspec.Struct, frozen=True):
    """What a row shows.

    Attributes:
        outcome: "medal": the leader beats each other arm that is not `aside`. "level": the scores that are
            not separated are shown to lie within the margin of the leader's. "tie": equal counts. "no
            contest": fewer than two arms have the figure for the same work. "no test": a count that is shown
            without one.
        leader: arm with the best value of those that are compared; None if no arm has one.
        runner_up: the next best arm, of those that are not `aside` where there are any.
        rivals: the arms that the leader is not separated from; none where only Holm took the medal away.
        aside: arms behind the leader that have too few repeats to be compared with it.
        unlike: arms whose figure is of other work than the leader's, best first; it is compared with none.
        p, adjusted_p: largest p of the leader against another arm, and the same after Holm; None where
            nothing is tested.
    """

    outcome: Outcome
    leader: str | None = None
    runner_up: str | None = None
    rivals: tuple[str, ...] = ()
    aside: tuple[str, ...] = ()
    unlike: tuple[str, ...] = ()
    p: float | None = None
    adjusted_p: float | None = None


class Row(msgspec.Struct, frozen=True):
    """One row of the medal table; `family` says which rows share a correction."""

    place: Place
    figure: str
    label: str
    unit: str
    better: Better
    family: Family
    entries: tuple[Entry, ...]
    verdict: Verdict = Verdict("no contest")


class Evidence(msgspec.Struct, frozen=True):
    """What one pair of arms shows in one row."""

    enough: bool
    separated: bool
    p: float
    level: bool = False


def evidence_of_ratio(ratio: Ratio) -> Evidence:
    return Evidence(ratio.enough, ratio.separated, 1.0 if ratio.p is None else ratio.p)


def evidence_of_answers(paired: Paired) -> Evidence:
    excluded = not paired.interval.holds(0.0) and not paired.adjusted.holds(0.0)
    return Evidence(True, excluded and paired.p < ALPHA, paired.p, paired.level)


class Court:
    """The evidence of a ladder, looked up by row and two arms."""

    def __init__(self, contrasts: Iterable[Contrast], pairs: Iterable[Pair]) -> None:
        self._ratios = {(c.place, c.figure, c.a, c.b): c.ratio for c in contrasts}
        self._pairs = {(p.variant, frozenset((p.a, p.b))): p.paired for p in pairs}

    def evidence(self, row: Row, a: str, b: str) -> Evidence:
        """Between two arms that both have a value in the row, in either order."""
        if row.family == "accuracy":
            paired = self._pairs.get((row.place.variant, frozenset((a, b))))
            return Evidence(True, False, 1.0) if paired is None else evidence_of_answers(paired)
        ratio = self._ratios.get((row.place, row.figure, a, b)) or self._ratios[row.place, row.figure, b, a]
        return evidence_of_ratio(ratio)


def award(rows: Sequence[Row], court: Court) -> list[Row]:
    """Give each row its verdict; `rows` come without one."""
    judged = [msgspec.structs.replace(row, verdict=_judge(row, court)) for row in rows]
    for family in ("speed", "accuracy"):
        tested = [i for i, row in enumerate(judged) if row.family == family and row.verdict.p is not None]
        raw = [judged[i].verdict.p or 0.0 for i in tested]
        for i, adjusted in zip(tested, holm(raw), strict=True):
            judged[i] = msgspec.structs.replace(judged[i], verdict=_corrected(judged[i].verdict, adjusted))
    return judged


def _judge(row: Row, court: Court) -> Verdict:
    """The verdict before correction."""
    known = [entry for entry in row.entries if entry.value is not None]
    ranked = sorted(known, key=lambda entry: entry.value or 0.0, reverse=row.better == "higher")
    if not ranked:
        return Verdict("no contest")
    compared = _comparable(ranked)
    unlike = tuple(entry.arm for entry in ranked if entry not in compared)
    return msgspec.structs.replace(_compare(row, compared, court), unlike=unlike)


def _comparable(ranked: Sequence[Entry]) -> list[Entry]:
    """The largest group of arms that were given the same work; the first, if several are as large."""
    groups: dict[int, list[Entry]] = {}
    for entry in ranked:
        groups.setdefault(entry.work, []).append(entry)
    return max(groups.values(), key=len)


def _compare(row: Row, ranked: Sequence[Entry], court: Court) -> Verdict:
    """The verdict over arms that were given the same work, best first."""
    leader = ranked[0].arm
    if len(ranked) == 1:
        return Verdict("no contest", leader)
    runner_up = ranked[1].arm
    if row.family == "none":
        tied = tuple(entry.arm for entry in ranked[1:] if entry.value == ranked[0].value)
        return Verdict("tie" if tied else "no test", leader, runner_up, tied)
    met = {entry.arm: court.evidence(row, leader, entry.arm) for entry in ranked[1:]}
    duels = {arm: duel for arm, duel in met.items() if duel.enough}
    aside = tuple(arm for arm in met if arm not in duels)
    if not duels:
        return Verdict("too few repeats", leader, runner_up)
    runner_up = next(iter(duels))
    p = max(duel.p for duel in duels.values())
    rivals = tuple(arm for arm, duel in duels.items() if not duel.separated)
    if not rivals:
        return Verdict("medal", leader, runner_up, (), aside, p=p)
    outcome: Outcome = "level" if all(duels[arm].level for arm in rivals) else "not separated"
    return Verdict(outcome, leader, runner_up, rivals, aside, p=p)


def _corrected(verdict: Verdict, adjusted: float) -> Verdict:
    """The verdict after Holm's correction, which can take a medal away but not give one."""
    if verdict.outcome == "medal" and adjusted >= ALPHA:
        return msgspec.structs.replace(verdict, outcome="not separated", adjusted_p=adjusted)
    return msgspec.structs.replace(verdict, adjusted_p=adjusted)
