"""JSON schemas that hold at once are made one; of alternatives, whether they exclude each other."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
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
        return [value for value in first if any(same(value, other) for other in second)]
    raise Conflict(f"has two values of {keyword} that would have to hold at once")


def _common_types(first: frozenset[str], second: frozenset[str]) -> Iterable[str]:
    both = first & second
    if "integer" in first | second and "number" in first | second and "number" not in both:
        both |= {"integer"}
    return both


def same(first: Any, second: Any) -> bool:
    """Whether two JSON values are equal; Python takes True for 1."""
    return json.dumps(first, sort_keys=True) == json.dumps(second, sort_keys=True)


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


def exclusive(first: Node, second: Node) -> bool:
    """Whether nothing can satisfy both, as far as types, listed values and required members tell.

    Members count as forbidden where `additional` says so.
    """
    types, others = _types(first), _types(second)
    if types and others and not set(_common_types(types, others)):
        return True
    listed, other_listed = listed_values(first), listed_values(second)
    if listed is not None and other_listed is not None:
        return not any(same(value, other) for value in listed for other in other_listed)
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
        and exclusive(assertions(members[name]), assertions(other_members[name]))
        for name in common
    )


def _types(node: Node) -> frozenset[str]:
    return types_of(node) or frozenset({"object"} if "properties" in node else ())
