"""How large a JSON schema may be, so that it is compiled in seconds and with little memory."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from fractions import Fraction
from math import lcm
from typing import Any

from onechip.models.schema_merge import ANNOTATIONS

MAX_TEXT = 1_000_000
"""Characters of a schema as JSON."""

MAX_OBJECTS = 10_000
"""Of a schema. A chain of references through so many takes 0.3 s, 50 MB and 64 MB of stack."""

MAX_MEMBERS = 2_000
"""Of one object. Where all of them are optional, the parser has four items for each at once."""

MAX_REMAINDERS = 100_000
"""Of all that stands in `multipleOf`, and of their least common multiple: 0.4 s and 42 MB."""

MAX_PATTERNS = 8
"""Different patterns in a schema whose parts hold together: where one text must satisfy 30, llguidance takes
gigabytes and does not notice.
"""

MAX_PATTERN_PROPERTIES = 32
"""Of one object: each is compared with each."""

_BESIDE = ANNOTATIONS | {"$anchor", "type"}
"""Keywords beside $ref, anyOf and oneOf that add nothing for texts."""

_DATA = ("const", "enum", "default", "examples", "example")
"""Keywords whose values are no schemas."""

MAX_NUMBER = 2**53
"""llguidance reads numbers as doubles: a whole number beyond this may become another one."""

MAX_INT64 = 2**63 - 1
"""The `maximum` of many schemas, and the largest that llguidance keeps to."""

_ENDLESS = 512 - 2**63
"""A number that a double rounds to -2**63, or one below that as a bound or beside `"type": "integer"`, sends
llguidance 1.9.1 into a recursion that ends the process.
"""

_BOUNDS = ("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf")

_NAMES = ("properties", "patternProperties", "dependentSchemas", "$defs", "definitions")
"""Keywords whose members are called as the client likes, also as a keyword is."""


class SchemaError(ValueError):
    """A JSON schema that answers cannot be held to.

    Args:
        where: the path of the part inside the schema, such as `.properties.city`; "" for all of it.
        reason: what is wrong, without a full stop.
    """

    def __init__(self, where: str, reason: str) -> None:
        super().__init__(f"{where} {reason}".strip())
        self.where = where
        self.reason = reason


def check_limits(schema: Any) -> None:
    """Raises SchemaError if `schema` is too large, or no number is a multiple of its `multipleOf`."""
    length = len(json.dumps(schema))
    if length > MAX_TEXT:
        raise SchemaError("", f"is too large: {length:,} characters, and {MAX_TEXT:,} are the limit")
    for count, (where, node) in enumerate(_objects(schema), 1):
        if count > MAX_OBJECTS:
            raise SchemaError("", f"is too large: at most {MAX_OBJECTS:,} objects may be in it")
        members = node.get("properties")
        if isinstance(members, dict) and len(members) > MAX_MEMBERS:
            raise SchemaError(f"{where}.properties", f"has {len(members):,} members: {MAX_MEMBERS:,} may be")
        named = node.get("patternProperties")
        if isinstance(named, dict) and len(named) > MAX_PATTERN_PROPERTIES:
            reason = f"has {len(named):,} patterns: {MAX_PATTERN_PROPERTIES} may be"
            raise SchemaError(f"{where}.patternProperties", reason)
    check_divisors(schema)
    _check_patterns(schema)


def _check_patterns(schema: Any) -> None:
    """Raises SchemaError if there are many patterns, and parts of the schema hold together."""
    nodes = [node for _, node in _objects(schema)]
    patterns = {str(node[key]) for node in nodes for key in ("pattern", "format") if key in node}
    if len(patterns) > MAX_PATTERNS and any(map(_joins, nodes)):
        reason = f"has {len(patterns):,} patterns and formats: beside allOf, $ref, anyOf or oneOf"
        raise SchemaError("", f"{reason} that other keywords stand with, {MAX_PATTERNS} may be")


def _joins(node: dict[str, Any]) -> bool:
    """Whether two parts of a schema speak of one value."""
    parts = node.get("allOf")
    if isinstance(parts, list) and len(parts) > 1:
        return True
    leading = node.keys() & {"$ref", "anyOf", "oneOf", "allOf"}
    return len(leading) > 1 or bool(leading and node.keys() - leading - _BESIDE)


def _objects(schema: Any) -> Iterator[tuple[str, dict[str, Any]]]:
    """All objects inside, and their paths; not those in data."""
    waiting = [("", schema)]
    while waiting:
        where, node = waiting.pop()
        if isinstance(node, dict):
            yield where, node
            waiting += ((f"{where}.{key}", value) for key, value in node.items() if key not in _DATA)
        elif isinstance(node, list):
            waiting += ((f"{where}[{index}]", value) for index, value in enumerate(node))


def check_numbers(schema: Any, *, exact: bool = True) -> None:
    """Raises SchemaError if a number counts in `schema` that llguidance may take for another one (only if
    `exact`), or if one stands anywhere, as a reference may lead there, that llguidance does not survive.
    """
    for where, key, number, listed in _numbers(schema):
        if key == "maximum" and number == MAX_INT64 and not listed:
            continue
        too_large = exact and abs(number) > MAX_NUMBER and (listed or key in _BOUNDS)
        if too_large or number <= _ENDLESS:
            mend = "choose one within that" if key in _BOUNDS else "make it a string"
            reason = f"forms hold whole numbers up to 2**53 ({MAX_NUMBER}) exactly; {mend}, or leave it out"
            raise SchemaError(where, f"is {json.dumps(number)[:40]}: {reason}")


def _numbers(schema: Any) -> Iterator[tuple[str, str, int | float, bool]]:
    """All numbers inside: the path, its last name ("" in a list), and whether const or enum lists it."""
    waiting: list[tuple[str, str, Any, bool, bool]] = [("", "", schema, False, False)]
    while waiting:
        where, last, node, listed, names = waiting.pop()
        if isinstance(node, dict):
            for key, value in node.items():
                lists = listed or (key in ("const", "enum") and not names)
                named = key in _NAMES and not (names or lists)
                waiting.append((f"{where}.{key}", key, value, lists, named))
        elif isinstance(node, list):
            waiting += ((f"{where}[{index}]", "", value, listed, False) for index, value in enumerate(node))
        elif isinstance(node, int | float) and not isinstance(node, bool):
            yield where, last, node, listed


def check_divisors(schema: Any) -> None:
    """Raises SchemaError if a `multipleOf` is not more than 0, or all in `schema` are too large.

    Those that hold at once are as one, their least common multiple.
    """
    seen, common = set(), 1
    for where, node in _objects(schema):
        divisor = node.get("multipleOf")
        if isinstance(divisor, bool) or not isinstance(divisor, int | float):
            continue
        if not 0 < divisor < float("inf"):
            raise SchemaError(f"{where}.multipleOf", "must be more than 0")
        whole = _whole(divisor)
        seen.add(remainders(whole))
        common = lcm(common, whole)
        if max(sum(seen), remainders(common)) > MAX_REMAINDERS:
            reason = f"is too large: all of them together may have {MAX_REMAINDERS:,} remainders"
            raise SchemaError(f"{where}.multipleOf", reason)


def remainders(divisor: int) -> int:
    """How many remainders an automaton that reads decimal digits tells apart: few, if it is a small number of
    tens, hundreds and so on.
    """
    rest = divisor
    while rest and rest % 10 == 0:
        rest //= 10
    return rest if rest <= 1000 else divisor


_MULTIPLE_OF = re.compile(r'\\?"multipleOf\\?": ?([0-9]+(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?)')


def estimated_bytes(grammar: str) -> int:
    """What a compiled grammar takes: 300 bytes a character at the most, and 420 for each remainder."""
    divisors = (float(found) for found in _MULTIPLE_OF.findall(grammar))
    states = sum(remainders(_whole(divisor)) for divisor in divisors if divisor < float("inf"))
    return 20_000 + 300 * len(grammar) + 420 * states


def _whole(divisor: float) -> int:
    """The divisor in units of its last digit, or of what divides them."""
    return Fraction(divisor if isinstance(divisor, int) else str(divisor)).numerator
