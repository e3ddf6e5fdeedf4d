"""The JSON schema of a tool's parameters: names of members -> the JSON types that they may have.

In: what a client sent, checked by `check_schema`. Out: `Schema`, of which unknown parts say nothing.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any

from onechip.errors import RequestError

_SAYING = frozenset({"type", "enum", "const", "properties", "items", "$ref", "anyOf", "oneOf", "allOf"})
"""Keywords of which one at least tells what a value may be."""

_TYPE_OF = {
    str: "string",
    bool: "boolean",
    int: "integer",
    float: "number",
    type(None): "null",
    list: "array",
}

_MAPS = ("$defs", "definitions", "properties", "patternProperties", "dependentSchemas")
_LISTS = ("anyOf", "oneOf", "allOf", "prefixItems")
_SINGLES = ("items", "additionalProperties", "not")
_FORMS: dict[str, tuple[tuple[type, ...], str]] = {
    **dict.fromkeys(_MAPS, ((Mapping,), "an object of schemas")),
    **dict.fromkeys(_LISTS, ((list,), "a list of schemas")),
    **dict.fromkeys(_SINGLES, ((Mapping, bool), "a schema")),
    "items": ((Mapping, bool, list), "a schema"),  # a list of them in older drafts
    "required": ((list, bool), "a list of names"),  # true and false in the oldest drafts
    "type": ((str, list), "a type or a list of types"),
    "enum": ((list,), "a list of values"),
    "description": ((str,), "a text"),
}
"""Keywords that templates or `Schema` read -> the Python types of their values, and how errors say that."""


def check_schema(root: Any, field: str) -> None:
    """Check the form of a JSON schema as far as it is read here; null counts as left out.

    What a reference leads to is checked too, since it may stand where no schema is looked for.

    Args:
        field: where `root` stands in the request.

    Raises:
        RequestError: `root` or something in it is not of the JSON type that it must be.
    """
    waiting, seen = [(field, root)], set()
    while waiting:
        field, node = waiting.pop()
        if node is None or isinstance(node, bool):  # true allows everything, false nothing
            continue
        if not isinstance(node, Mapping):
            raise _misformed(field, node, "a schema")
        if id(node) in seen:
            continue
        seen.add(id(node))
        for keyword, (types, expected) in _FORMS.items():
            value = node.get(keyword)
            if value is not None and not isinstance(value, types):
                raise _misformed(f"{field}.{keyword}", value, expected)
        waiting += ((f"{field}.{step}", member) for step, member in inner_schemas(node))
        waiting.append((f"{field}.$ref", _target(root, node)))


def inner_schemas(node: Mapping[str, Any]) -> Iterable[tuple[str, Any]]:
    """The schemas inside a schema and their steps (`properties.city`, `anyOf[0]`), definitions first."""
    for keyword in _MAPS:
        value = node.get(keyword)
        if isinstance(value, Mapping):
            yield from ((f"{keyword}.{name}", member) for name, member in value.items())
    for keyword in (*_LISTS, *_SINGLES):
        value = node.get(keyword)
        if isinstance(value, list):
            yield from ((f"{keyword}[{index}]", member) for index, member in enumerate(value))
        elif value is not None:
            yield keyword, value


def _misformed(field: str, value: Any, expected: str) -> RequestError:
    return RequestError(f"{field} is {json.dumps(value)[:80]}: expected {expected}.", param=field)


class Schema:
    """One node of a JSON schema; an unknown node says nothing and has unknown members.

    Attributes:
        types: names of the JSON types that the node allows; empty where it does not say.
        ahead: how many elements of an array may have a schema of their own, from the first on.
    """

    def __init__(self, *nodes: Any, root: Any = None) -> None:
        """What fits any of `nodes`; `root` is the whole schema, the first of them where it is not given."""
        self._root = nodes[0] if root is None and nodes else root
        self._nodes = self._alternatives(nodes)
        types = frozenset(type for node in self._nodes for type in types_of(node))
        self._anything = any(map(_may_be_anything, self._nodes))
        self.types = frozenset() if self._anything else types
        self.ahead = max((len(node.get("prefixItems") or ()) for node in self._nodes), default=0)

    def property(self, name: str) -> Schema:
        """The schema of member `name` of an object."""
        members = [node.get("properties") or {} for node in self._nodes]
        known = any(name in named for named in members)
        said = [
            named.get(name, node.get("additionalProperties"))
            for named, node in zip(members, self._nodes, strict=True)
        ]
        if not known and (self._anything or any(node is True for node in said)):
            return Schema()
        return Schema(*said, root=self._root)

    def element(self, index: int) -> Schema:
        """The schema of an array's element; those from `ahead` on have the same."""
        said = [_element(node, index) for node in self._nodes]
        if self._anything or any(node is True for node in said):
            return Schema()
        return Schema(*said, root=self._root)

    def _alternatives(self, nodes: Iterable[Any]) -> list[Mapping[str, Any]]:
        """The nodes and what they may be instead: targets of $ref, members of anyOf, oneOf and allOf."""
        found: dict[int, Mapping[str, Any]] = {}
        waiting = list(nodes)
        while waiting:
            node = waiting.pop()
            if not isinstance(node, Mapping) or id(node) in found:  # a schema may refer to itself
                continue
            found[id(node)] = node
            waiting.append(_target(self._root, node))
            for keyword in ("anyOf", "oneOf", "allOf"):
                waiting += node.get(keyword) or ()
            waiting += _listed_compounds(node)
        return list(found.values())


def resolve(root: Any, reference: str) -> Any:
    """The schema at a reference such as `#/$defs/City` in the schema `root`; `#` is `root` itself.

    Raises:
        LookupError: there is none.
    """
    node = root
    start, *steps = reference.split("/")
    if start != "#":
        raise LookupError(reference)
    for step in steps:
        step = step.replace("~1", "/").replace("~0", "~")
        if isinstance(node, Mapping):
            node = node[step]
        elif isinstance(node, list) and step.isdecimal():
            node = node[int(step)]
        else:
            raise LookupError(reference)
    return node


def _target(root: Any, node: Mapping[str, Any]) -> Any:
    """The schema that `node` refers to; None if there is none."""
    reference = node.get("$ref")
    try:
        return resolve(root, reference) if isinstance(reference, str) else None
    except LookupError:
        return None


def value_type(value: Any) -> str:
    """JSON's name of the type of a value that was read from JSON."""
    return "null" if value is None else _TYPE_OF.get(type(value), "object")


def type_names(said: str | list[Any]) -> frozenset[str]:
    """The types that the keyword `type` lists."""
    return frozenset(str(name).lower() for name in ([said] if isinstance(said, str) else said))


def listed_values(node: Mapping[str, Any]) -> list[Any] | None:
    """The values that `const` or `enum` lists; None if there is neither."""
    if "const" in node:
        return [node["const"]]
    found: list[Any] | None = node.get("enum")
    return found


def types_of(node: Mapping[str, Any]) -> frozenset[str]:
    """The types that `type`, `const` or `enum` allows; none where there is none of them."""
    if node.get("type"):
        return type_names(node["type"])
    return frozenset(map(value_type, listed_values(node) or ()))


def _listed_compounds(node: Mapping[str, Any]) -> Iterable[Mapping[str, Any]]:
    """Schemas of the arrays and objects that enum or const lists."""
    for value in listed_values(node) or ():
        if isinstance(value, list):
            yield {"prefixItems": [{"const": element} for element in value]}
        elif isinstance(value, Mapping):
            yield {"properties": {name: {"const": member} for name, member in value.items()}}


def _may_be_anything(node: Mapping[str, Any]) -> bool:
    """Whether an alternative says nothing, as in the schema of Python's `Optional[Any]`."""
    members = [*(node.get("anyOf") or ()), *(node.get("oneOf") or ())]
    return any(
        member is True or (isinstance(member, Mapping) and _SAYING.isdisjoint(member)) for member in members
    )


def _element(node: Mapping[str, Any], index: int) -> Any:
    """What one alternative says of an element: a schema, or true where it may be anything."""
    ahead = node.get("prefixItems") or []
    if index < len(ahead):
        return ahead[index]
    return node.get("items", listed_values(node) is None and "array" in types_of(node))
