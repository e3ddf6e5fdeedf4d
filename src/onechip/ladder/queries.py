"""Questions to results that have one answer: a query in, a number or a name with its 95 % interval out.

A report's sentences and the claims of a person (claims.py) are made of the same queries. They are answered
from a ladder's summary, or from a published comparison.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import permutations
from typing import Literal, NamedTuple, Protocol

import msgspec

from onechip.errors import UsageError
from onechip.ladder.stats import Interval

AskFor = Literal["value", "ratio", "difference", "spread", "farthest", "winner", "wins", "cells", "invalid"]
NOBODY = "nobody"
"""The winner of a row in which no difference is established."""


class Query(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """One question.

    Attributes:
        ask: value: an arm's figure. ratio: first arm's figure over the second's. difference: first less
            second. spread: largest over smallest, less 1. farthest: how far, relative, any arm lies from the
            first. winner: the arm whose difference to all others is established. wins: rows that an arm wins.
            cells, invalid: how many there are.
        arms: names; a number among the two of a ratio is quoted as it is. None: all that have the figure.
        of: which figure: the label of a row ("Four at once"), or "JOB VARIANT at LEVEL: FIGURE".
    """

    ask: AskFor
    arms: tuple[str | float, ...] = ()
    of: str = ""


class Answer(NamedTuple):
    """What a query found.

    Attributes:
        value: a number in `unit`, or a name.
        unit: "tok/s", "s", "ms", "bytes", "%" (a share of 1), "points" (a difference of shares), "" (a plain
            number or ratio).
        interval: 95 %, in the same unit; None where results have none.
        tested: whether there are repeats, or questions, behind a comparison; a published figure has none.
        enough: whether these are enough for a claim of difference.
        basis: the figures that it was computed from, in words.
    """

    value: float | str
    unit: str = ""
    interval: Interval | None = None
    tested: bool = False
    enough: bool = True
    basis: str = ""


class Known(NamedTuple):
    """One arm's figure as results hold it."""

    arm: str
    value: float
    unit: str
    interval: Interval | None = None


class Duel(NamedTuple):
    """First arm over second, or less it; fields as in Answer."""

    value: float
    unit: str
    interval: Interval | None
    enough: bool


class Results(Protocol):
    """Where answers come from. Methods raise UsageError where there is no such figure or arm."""

    def arms(self, of: str) -> Sequence[str]:
        """Arms that have the figure, in order."""

    def known(self, arm: str, of: str) -> Known:
        """An arm's figure."""

    def ratio(self, a: str, b: str, of: str) -> Duel | None:
        """a over b as tested; None where results hold plain numbers."""

    def difference(self, a: str, b: str, of: str) -> Duel | None:
        """a less b as tested; None where results hold plain numbers."""

    def winner(self, of: str) -> Answer: ...

    def wins(self, arm: str) -> Answer: ...

    def count(self, what: Literal["cells", "invalid"]) -> Answer: ...


def answer(query: Query, results: Results) -> Answer:
    """Evaluates a query.

    Raises:
        UsageError: it names an arm or a figure that there is not, or too few or too many arms.
    """
    if query.ask in ("cells", "invalid"):
        return results.count(query.ask)
    if query.ask == "wins":
        (arm,) = _names(query, 1)
        return results.wins(arm)
    if query.ask == "winner":
        return results.winner(query.of)
    return _MADE[query.ask](query, results)


def _value(query: Query, results: Results) -> Answer:
    (arm,) = _names(query, 1)
    found = results.known(arm, query.of)
    return Answer(found.value, found.unit, found.interval, basis=_said(found))


def _ratio(query: Query, results: Results) -> Answer:
    a, b = (_operand(arm, query, results) for arm in _operands(query, 2))
    quoted = any(isinstance(arm, float | int) for arm in query.arms)
    duel = None if quoted else results.ratio(a.arm, b.arm, query.of)
    value = a.value / b.value if duel is None else duel.value
    return _of_duel(value, "", duel, (a, b))


def _difference(query: Query, results: Results) -> Answer:
    a, b = (results.known(arm, query.of) for arm in _names(query, 2))
    duel = results.difference(a.arm, b.arm, query.of)
    unit = "points" if a.unit == "%" else a.unit
    return _of_duel(a.value - b.value if duel is None else duel.value, unit, duel, (a, b))


def _spread(query: Query, results: Results) -> Answer:
    """By the ratios of all pairs: whatever is the largest, its interval counts."""
    found = sorted(_several(query, results, 2), key=lambda known: known.value)
    duels = [results.ratio(a.arm, b.arm, query.of) for a, b in permutations(found, 2)]
    return _of_ratios(found[-1].value / found[0].value - 1, duels, (found[-1], found[0]), lambda r: r - 1)


def _farthest(query: Query, results: Results) -> Answer:
    found = _several(query, results, 1)
    first = found[0]
    others = found[1:] or [results.known(a, query.of) for a in results.arms(query.of) if a != first.arm]
    if not others:
        raise UsageError(f"there is no other arm than {first.arm!r} with {query.of!r}.")
    far = max(others, key=lambda known: abs(known.value / first.value - 1))
    duels = [results.ratio(other.arm, first.arm, query.of) for other in others]
    return _of_ratios(abs(far.value / first.value - 1), duels, (far, first), lambda r: abs(r - 1))


_MADE: dict[str, Callable[[Query, Results], Answer]] = {
    "value": _value,
    "ratio": _ratio,
    "difference": _difference,
    "spread": _spread,
    "farthest": _farthest,
}


def _of_duel(value: float, unit: str, found: Duel | None, of: tuple[Known, Known]) -> Answer:
    basis = " and ".join(map(_said, of))
    if found is None:
        return Answer(value, unit, basis=basis)
    return Answer(value, unit, found.interval, True, found.enough, basis)


def _of_ratios(
    value: float, duels: Sequence[Duel | None], of: tuple[Known, Known], distance: Callable[[float], float]
) -> Answer:
    """A distance that is the largest of several, and the interval in which it lies."""
    tested = [found for found in duels if found is not None]
    bounds = [
        (0.0 if found.interval.holds(1.0) else min(ends), max(ends))
        for found in tested
        if found.interval is not None
        for ends in [(distance(found.interval.low), distance(found.interval.high))]
    ]
    interval = Interval(max(low for low, _ in bounds), max(high for _, high in bounds)) if bounds else None
    return Answer(
        value,
        "",
        interval if len(bounds) == len(duels) else None,
        bool(tested),
        all(found.enough for found in tested),
        " and ".join(map(_said, of)),
    )


def _operands(query: Query, count: int) -> tuple[str | float, ...]:
    if len(query.arms) != count:
        named = ", ".join(map(str, query.arms)) or "none"
        arms = "one arm" if count == 1 else f"{count} arms"
        raise UsageError(f"{query.ask} takes {arms}, not {len(query.arms)} ({named}).")
    return query.arms


def _names(query: Query, count: int) -> tuple[str, ...]:
    return tuple(_name(arm, query) for arm in _operands(query, count))


def _name(arm: str | float, query: Query) -> str:
    if not isinstance(arm, str):
        raise UsageError(
            f"{query.ask} takes names of arms, not a number ({arm:g}); only a ratio takes numbers."
        )
    return arm


def _operand(arm: str | float, query: Query, results: Results) -> Known:
    if isinstance(arm, str):
        return results.known(arm, query.of)
    if not arm > 0:
        raise UsageError(f"a number in a ratio must be above 0, not {arm:g}.")
    return Known("", float(arm), "")


def _several(query: Query, results: Results, least: int) -> list[Known]:
    names = [_name(arm, query) for arm in query.arms]
    found = [results.known(arm, query.of) for arm in names or results.arms(query.of)]
    if len(found) < least:
        raise UsageError(f"{query.ask} takes {least} arms at the least, and {query.of!r} has fewer.")
    return found


def _said(found: Known) -> str:
    number = f"{found.value:,.6g}"
    if found.unit == "%":
        number = f"{100 * found.value:.1f}"
    return " ".join(filter(None, [found.arm, number, found.unit]))
