"""The JSON schema of a tool's parameters: names of members -> the JSON types that they may have."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

_TYPE_OF = {str: "string", bool: "boolean", int: "integer", float: "number", type(None): "null"}


class Schema:
    """One node of a JSON schema; an unknown node says nothing and has unknown members.

    Attributes:
        types: names of the JSON types that the node allows; empty where it does not say.
    """

    def __init__(self, node: Any, root: Any = None) -> None:
        self._root = node if root is None else root
        self._nodes = [found for found in self._alternatives(node, depth=0) if isinstance(found, Mapping)]
        self.types = frozenset(type for found in self._nodes for type in _types_of(found))

    def property(self, name: str) -> Schema:
        """The schema of member `name` of an object."""
        for node in self._nodes:
            properties = node.get("properties")
            if isinstance(properties, Mapping) and name in properties:
                return Schema(properties[name], self._root)
        return self._member("additionalProperties")

    def items(self) -> Schema:
        """The schema of an array's elements."""
        return self._member("items")

    def _member(self, keyword: str) -> Schema:
        members = (node[keyword] for node in self._nodes if isinstance(node.get(keyword), Mapping))
        return Schema(next(members, {}), self._root)

    def _alternatives(self, node: Any, depth: int) -> Iterable[Any]:
        """The node and what it may be instead: targets of $ref, members of anyOf, oneOf and allOf."""
        if not isinstance(node, Mapping) or depth > 8:  # a schema may refer to itself
            return
        yield node
        if isinstance(node.get("$ref"), str):
            yield from self._alternatives(self._resolve(node["$ref"]), depth + 1)
        for keyword in ("anyOf", "oneOf", "allOf"):
            members = node.get(keyword)
            for member in members if isinstance(members, list) else ():
                yield from self._alternatives(member, depth + 1)

    def _resolve(self, reference: str) -> Any:
        """The node at a local reference such as `#/$defs/City`; None if there is none."""
        node = self._root
        for step in reference.removeprefix("#").strip("/").split("/"):
            node = node.get(step) if isinstance(node, Mapping) else None
        return node


def _types_of(node: Mapping[str, Any]) -> Iterable[str]:
    said = node.get("type")
    if isinstance(said, str):
        yield said.lower()
    elif isinstance(said, list):
        yield from (type.lower() for type in said if isinstance(type, str))
    elif isinstance(node.get("enum"), list):
        yield from (_TYPE_OF.get(type(value), "object") for value in node["enum"])
