"""JSON schemas that hold at once are made one; of alternatives, whether they exclude each other."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from itertools import chain, combinations, product
from typing import Any

from onechip.models.tool_schema import listed_values, type_names, types_of

Node = Mapping[str, Any]

ANNOTATIONS = {
    *("title", "description", "default", "example", "examples", "deprecated", "readOnly", "writeOnly"),
    *("$schema", "$id", "$comment", "$defs", "definitions", "discriminator"),
}
"""Keywords that say nothing of a value."""

_LARGEST = {"minimum", "exclusiveMinimum", "minLength", "minItems", "minProperties"}
_SMALLEST = {"maximum", "exclusiveMaximum", "maxLength", "maxItems", "maxProperties"}


class Conflict(ValueError):
    """Schemas cannot be made one; the message says of the second why."""


def assertions(node: Node) -> dict[str, Any]:
    """The keywords of `node` that some value could be against."""
    return {keyword: value for keyword, value in _said(node) if keyword not in ANNOTATIONS}


def _said(node: Node) -> Iterable[tuple[str, Any]]:
    """The keywords of `node`; null counts as left out."""
    return ((keyword, value) for keyword, value in node.items() if value is not None or keyword == "const")


def merged(first: Node, second: Any) -> dict[str, Any]:
    """A schema for what satisfies both.

    Args:
        first: keywords, none of them null.
        second: any schema.

    Raises:
        Conflict: there is none that is as simple.
    """
    if second is False:
        raise Conflict("allows nothing")
    result = dict(first)
    if isinstance(second, Mapping):
        _check_closed(first, second)
        for keyword, value in _said(second):
            result[keyword] = _both(keyword, result[keyword], value) if keyword in result else value
    return result


def _check_closed(first: Node, second: Node) -> None:
    """`additionalProperties` speaks of the members that stand beside it, not of those of a merged schema."""
    for node, other in ((first, second), (second, first)):
        strangers = (other.get("properties") or {}).keys() - (node.get("properties") or {}).keys()
        if strangers and node.get("additionalProperties") not in (None, True):
            raise Conflict("has additionalProperties beside members that another part of the schema adds")


def _both(keyword: str, first: Any, second: Any) -> Any:
    if same(first, second) or keyword in ANNOTATIONS:
        return first
    if keyword == "properties":
        common = {name: {"allOf": [first[name], second[name]]} for name in first.keys() & second.keys()}
        return {**first, **second, **common}
    if keyword == "required" and isinstance(first, list) and isinstance(second, list):
        return [*first, *(name for name in second if name not in first)]
    if keyword in _LARGEST | _SMALLEST and all(isinstance(value, int | float) for value in (first, second)):
        return max(first, second) if keyword in _LARGEST else min(first, second)
    if keyword == "type":
        types = sorted(_common_types(type_names(first), type_names(second)))
        if not types:
            raise Conflict("allows nothing: its types exclude each other")
        return types
    if keyword == "enum":
        others = _written(second)
        return [value for value in first if _text(value) in others]
    raise Conflict(f"has two values of {keyword} that would have to hold at once")


def _common_types(first: frozenset[str], second: frozenset[str]) -> Iterable[str]:
    both = first & second
    if "integer" in first | second and "number" in first | second and "number" not in both:
        both |= {"integer"}
    return both


def same(first: Any, second: Any) -> bool:
    """Whether two JSON values are equal; Python takes True for 1."""
    return _text(first) == _text(second)


def _written(values: Iterable[Any]) -> frozenset[str]:
    """Values as JSON texts, which are equal where the values are `same`."""
    return frozenset(map(_text, values))


def _text(value: Any) -> str:
    return json.dumps(value, sort_keys=True)


def additional(node: Node) -> Any:
    """The schema of members that `properties` does not name; false where it forbids them.

    JSON Schema allows any unless it says otherwise. A model should write what it was told of, so here an
    object whose members are named has no others unless it says otherwise.
    """
    return node.get("additionalProperties", "properties" not in node)


def required_names(node: Node) -> set[str]:
    """The members that an object must have."""
    said = node.get("required")
    return set(map(str, said)) if isinstance(said, list) else set()  # true and false in the oldest drafts


_MAX_COMPARED = 64
"""Alternatives that are compared pair by pair."""


def overlapping(nodes: Mapping[str, Node]) -> tuple[str, str] | None:
    """Two alternatives that something may satisfy both of, as far as types, listed values and required
    members tell; None if there are none. Members count as forbidden where `additional` says so.

    Args:
        nodes: the alternatives by their paths.

    Raises:
        Conflict: there are many, and no member tells all of them apart.
    """
    comparison = _Comparison()
    objects = [where for where, node in nodes.items() if _types(node) == {"object"}]
    listed = [where for where, node in nodes.items() if listed_values(node) is not None]
    apart = objects if comparison.discriminated([nodes[where] for where in objects]) else []
    if len(listed) > len(apart) and comparison.disjoint([nodes[where] for where in listed]):
        apart = listed
    others = [where for where in nodes if where not in set(apart)]
    if len(others) > _MAX_COMPARED:
        raise Conflict(
            f"has {len(nodes):,} alternatives: where there are more than {_MAX_COMPARED}, each must require "
            "a member of the same name with values of its own"
        )
    for first, second in chain(combinations(others, 2), product(apart, others)):
        if not comparison.exclusive(nodes[first], nodes[second]):
            return first, second
    return None


class _Comparison:
    """Compares alternatives; the values of each enum are written out once."""

    def __init__(self) -> None:
        self._written: dict[int, frozenset[str]] = {}

    def exclusive(self, first: Node, second: Node) -> bool:
        """Whether nothing can satisfy both."""
        types, others = _types(first), _types(second)
        if types and others and not set(_common_types(types, others)):
            return True
        listed, other_listed = self._listed(first), self._listed(second)
        if listed is not None and other_listed is not None:
            return listed.isdisjoint(other_listed)
        if types != {"object"} or others != {"object"}:
            return False
        members, other_members = first.get("properties", {}), second.get("properties", {})
        needed, other_needed = required_names(first), required_names(second)
        if needed - other_members.keys() and other_needed - members.keys():
            return additional(first) is additional(second) is False
        common = needed & other_needed & members.keys() & other_members.keys()
        return any(
            isinstance(members[name], Mapping)
            and isinstance(other_members[name], Mapping)
            and self.exclusive(assertions(members[name]), assertions(other_members[name]))
            for name in common
        )

    def discriminated(self, objects: Sequence[Node]) -> bool:
        """Whether all require a member of one name, whose listed values are different in each."""
        if not objects:
            return False
        names = set.intersection(*map(required_names, objects))
        return any(
            self._told_apart([node.get("properties", {}).get(name) for node in objects]) for name in names
        )

    def _told_apart(self, members: Sequence[Any]) -> bool:
        """Whether values of all of these schemas are listed, and different in each."""
        if not all(isinstance(member, Mapping) for member in members):
            return False
        return self.disjoint([assertions(member) for member in members])

    def disjoint(self, nodes: Sequence[Node]) -> bool:
        """Whether each lists values, and none is listed twice."""
        values = [self._listed(node) for node in nodes]
        listed = [found for found in values if found is not None]
        return len(listed) == len(nodes) and len(frozenset().union(*listed)) == sum(map(len, listed))

    def _listed(self, node: Node) -> frozenset[str] | None:
        """The values that are listed, as JSON."""
        values = listed_values(node)
        if values is None:
            return None
        if "const" in node:
            return _written(values)
        if id(values) not in self._written:
            self._written[id(values)] = _written(values)
        return self._written[id(values)]


def _types(node: Node) -> frozenset[str]:
    return types_of(node) or frozenset({"object"} if "properties" in node else ())
