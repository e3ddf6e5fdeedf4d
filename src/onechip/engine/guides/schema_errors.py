"""Where in a JSON schema the part is that cannot be compiled: llguidance says what is wrong, not where."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

_DEFINITIONS = ("$defs", "definitions")
_MAPS = (*_DEFINITIONS, "properties", "patternProperties", "dependentSchemas")
_LISTS = ("anyOf", "oneOf", "allOf", "prefixItems")
_SINGLES = ("items", "additionalProperties", "not")


def where_it_fails(schema: Any, reason: str, check: Callable[[Any], str]) -> tuple[str, str]:
    """The innermost part of `schema` that fails by itself, and why.

    Args:
        reason: what is said of the whole.
        check: what is said against a schema; "" if it can be compiled.

    Returns:
        The path behind the schema's own name, such as `.properties.city` ("" for all of it), and the reason.
    """
    definitions = (
        {key: schema[key] for key in _DEFINITIONS if key in schema} if isinstance(schema, Mapping) else {}
    )
    path, node, found = "", schema, True
    while found:
        found = False
        for step, member in _members(node):
            alone = {**definitions, **member} if isinstance(member, Mapping) else member
            if isinstance(member, Mapping) and check(alone) == reason:
                path, node, found = path + step, member, True
                break
    return path, reason.split("\n")[0].rstrip(". ")


def _members(node: Any) -> Iterator[tuple[str, Any]]:
    """The schemas inside a schema; definitions first, as others refer to them."""
    if not isinstance(node, Mapping):
        return
    for keyword in _MAPS:
        members = node.get(keyword)
        if isinstance(members, Mapping):
            yield from ((f".{keyword}.{name}", member) for name, member in members.items())
    for keyword in _LISTS:
        members = node.get(keyword)
        if isinstance(members, list):
            yield from ((f".{keyword}[{index}]", member) for index, member in enumerate(members))
    yield from ((f".{keyword}", node[keyword]) for keyword in _SINGLES if keyword in node)
