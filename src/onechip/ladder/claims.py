"""Claims: sentences bound to queries in, whether each holds out.

A file of claims (claims.yaml beside a ladder) is a list of

    - text: onechip int4 is 1.16 times as fast as onechip bf16 on one request.
      query: {ask: ratio, arms: [onechip int4, onechip bf16], of: "One request, end to end"}
      expected: "= 1.16"
      tolerance: 0.01

An equality holds if the value lies within the tolerance, by default half a unit of the last digit given. An
inequality between arms of a ladder holds only if the whole 95 % interval does, on repeats enough.
"""

from __future__ import annotations

import math
import operator
import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Literal, NamedTuple

import msgspec
import yaml

from onechip.errors import UsageError
from onechip.ladder.queries import Answer, Query, Results, answer
from onechip.ladder.stats import MIN_REPEATS, Interval

NAME = "claims.yaml"
OWN = "sentences.yaml"
"""What a report says, in the same form (report/folder.py)."""
SLACK = 1e-9
"""Relative: what arithmetic in floating point may lose."""
EXPECTED = re.compile(r"(?P<relation><=|>=|!=|=|<|>)\s*(?P<wanted>.+)")
NUMBER = re.compile(r"(?P<sign>[-−+]?)(?P<digits>\d[\d,]*(?:\.\d+)?)\s*(?P<unit>.*)")
FACTORS: dict[str, dict[str, float]] = {
    "tok/s": {"tok/s": 1},
    "s": {"s": 1, "ms": 1e3, "min": 1 / 60, "h": 1 / 3600},
    "ms": {"ms": 1, "s": 1e-3},
    "bytes": {"bytes": 1, "MiB": 2**-20, "GiB": 2**-30},
    "J": {"J": 1},
    "%": {"%": 100},
    "points": {"points": 100},
    "": {"": 1, "×": 1, "x": 1, "%": 100},
}
"""Unit of an answer -> units in which a claim may give it, and what to multiply the answer with."""
TESTS: dict[str, Callable[[float, float], bool]] = {
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}

Relation = Literal["=", "!=", "<", "<=", ">", ">="]


class Claim(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """One sentence and what it rests on.

    Attributes:
        text: the sentence.
        expected: relation and number or name: "= 2.52", "< 12 %", "= 34 min", "= onechip int4".
        tolerance: how far from there the value may lie, in the unit of `expected`.
    """

    text: str
    query: Query
    expected: str
    tolerance: float | None = None


class Verdict(NamedTuple):
    """Whether a claim holds, and in one sentence why or why not."""

    claim: Claim
    holds: bool
    why: str


class Expected(NamedTuple):
    """`Claim.expected`, read: `number` in `unit`, with `last` one unit of its last digit; None if a name."""

    relation: Relation
    wanted: str
    number: float | None
    unit: str
    last: float


def load(path: Path) -> list[Claim]:
    """The claims of a file.

    Raises:
        UsageError: it cannot be read, is no YAML, or no list of claims.
    """
    try:
        raw = yaml.safe_load(path.read_text("utf-8"))
    except OSError as error:
        raise UsageError(f"{path} cannot be read: {error.strerror}.") from None
    except UnicodeDecodeError:
        raise UsageError(f"{path} is not text in UTF-8.") from None
    except yaml.YAMLError as error:
        hint = "what begins with > or ! must stand in quotes"
        raise UsageError(f"{path} is no YAML ({_on_one_line(error)}); {hint}.") from None
    if not isinstance(raw, list):
        raise UsageError(f"{path} must be a list of claims, each with text, query and expected.")
    claims = [_claim(entry, f"{path}, claim {number}") for number, entry in enumerate(raw, start=1)]
    if not claims:
        raise UsageError(f"{path} holds no claim.")
    return claims


def dump(claims: Sequence[Claim]) -> str:
    """The same as a file's text."""
    entries = msgspec.to_builtins(list(claims))
    return yaml.safe_dump(entries, allow_unicode=True, sort_keys=False, width=100) if entries else "[]\n"


def judge(claim: Claim, results: Results) -> Verdict:
    """Evaluates one claim; a query that results cannot answer does not hold either."""
    try:
        expected = read(claim.expected)
        found = answer(claim.query, results)
        return _judged(claim, expected, found)
    except UsageError as error:
        return Verdict(claim, False, f"it cannot be checked: {error.message}")


def read(text: str) -> Expected:
    """Takes `Claim.expected` apart; raises UsageError."""
    match = EXPECTED.fullmatch(text.strip())
    if match is None:
        raise UsageError(f"expected: {text!r} has no relation; begin with =, !=, <, <=, > or >=.")
    relation: Any = match["relation"]
    wanted = match["wanted"].strip()
    number = NUMBER.fullmatch(wanted)
    if number is None or number["unit"] not in {unit for units in FACTORS.values() for unit in units}:
        return Expected(relation, wanted, None, "", 0.0)
    digits = number["digits"].replace(",", "")
    value = float(digits) * (-1 if number["sign"] in ("-", "−") else 1)
    return Expected(relation, wanted, value, number["unit"], 10.0 ** -len(digits.partition(".")[2]))


def _judged(claim: Claim, expected: Expected, found: Answer) -> Verdict:
    if isinstance(found.value, str) or expected.number is None:
        return _named(claim, expected, found)
    factor = FACTORS.get(found.unit, {}).get(expected.unit)
    if factor is None:
        units = ", ".join(filter(None, FACTORS.get(found.unit, {}))) or "no unit"
        raise UsageError(
            f"expected: {claim.expected!r}: the value is in {found.unit or 'no unit'}; give {units}."
        )
    value = found.value * factor
    said = f"the value is {_written(value, expected)}{_basis(found)}"
    if expected.relation in ("=", "!="):
        tolerance = expected.last / 2 if claim.tolerance is None else claim.tolerance
        near = abs(value - expected.number) <= tolerance + SLACK * max(1.0, abs(expected.number))
        if near and expected.relation == "=" and not _in_text(claim.text, expected):
            return Verdict(claim, False, f"its text does not say {expected.wanted}; {said}")
        return Verdict(claim, near == (expected.relation == "="), said)
    return _ordered(claim, expected, found, factor, said)


def _ordered(claim: Claim, expected: Expected, found: Answer, factor: float, said: str) -> Verdict:
    """An inequality: of a value that was tested, the whole interval must lie there."""
    assert expected.number is not None
    assert not isinstance(found.value, str)
    slack = claim.tolerance or 0.0
    bound = expected.number + (slack if expected.relation in ("<", "<=") else -slack)
    test = TESTS[expected.relation]
    if found.tested and (found.interval is None or not found.enough):
        return Verdict(claim, False, f"{said}, but no claim rests on fewer than {MIN_REPEATS} repeats an arm")
    if not test(found.value * factor, bound):
        return Verdict(claim, False, said)
    if found.interval is None or not found.tested:
        return Verdict(claim, True, said)
    ends = Interval(found.interval.low * factor, found.interval.high * factor)
    said += f", 95 % interval {_written(ends.low, expected)} to {_written(ends.high, expected)}"
    whole = test(ends.low, bound) and test(ends.high, bound)
    return Verdict(claim, whole, said if whole else f"{said}, which does not lie wholly there")


def _named(claim: Claim, expected: Expected, found: Answer) -> Verdict:
    if not isinstance(found.value, str):
        raise UsageError(f"expected: {claim.expected!r} must give a number; the value is {found.value:.6g}.")
    if expected.relation not in ("=", "!="):
        raise UsageError(f"expected: {claim.expected!r}: a name is = or !=; the value is {found.value}.")
    same = found.value == expected.wanted
    return Verdict(claim, same == (expected.relation == "="), f"the value is {found.value}{_basis(found)}")


def _in_text(text: str, expected: Expected) -> bool:
    """Whether the sentence itself gives the number; thousands may be separated in either."""
    match = NUMBER.fullmatch(expected.wanted)
    digits = match["digits"].replace(",", "") if match else ""
    return digits in re.findall(r"\d+(?:\.\d+)?", re.sub(r"(?<=\d),(?=\d{3})", "", text))


def _written(value: float, expected: Expected) -> str:
    """One digit more than the claim gives."""
    decimals = 1 + max(0, round(-math.log10(expected.last)))
    return f"{value:,.{decimals}f}" + (f" {expected.unit}" if expected.unit else "")


def _basis(found: Answer) -> str:
    return f" ({found.basis})" if found.basis else ""


def _claim(entry: Any, where: str) -> Claim:
    try:
        claim = msgspec.convert(entry, Claim)
        read(claim.expected)
    except msgspec.ValidationError as error:
        raise UsageError(f"{where}: {str(error).replace('`', chr(39))}.") from None
    except UsageError as error:
        raise UsageError(f"{where}: {error.message}") from None
    if claim.tolerance is not None and not claim.tolerance >= 0:
        raise UsageError(f"{where}: tolerance {claim.tolerance:g} must be 0 or more.")
    return claim


def _on_one_line(error: yaml.YAMLError) -> str:
    return " ".join(str(error).split())
