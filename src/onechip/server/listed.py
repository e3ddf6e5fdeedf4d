"""A path in a body that msgspec complained of -> the values that may stand there, where they are listed."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from functools import cache

from msgspec import Struct, inspect

_STEP = re.compile(r"(\w+)|\[[^\]]*\]")


@cache
def listed_values(type: type[Struct], path: str) -> str:
    """How an error says what is allowed at `path` in a `type`; "" where values are not listed.

    Args:
        path: msgspec's, without the numbers of places, of which there is no end.
    """
    found: list[inspect.Type] = [inspect.type_info(type)]
    values: list[str] = []
    for step in _STEP.finditer(path):
        name = step[1]
        values = [tag for kind in _flat(found) for tag in _tags(kind, name)]
        found = [inner for kind in _flat(found) for inner in _inside(kind, name)]
    values += [
        str(value) for kind in _flat(found) if isinstance(kind, inspect.LiteralType) for value in kind.values
    ]
    *others, last = dict.fromkeys(values) or [""]
    return f"{', '.join(others)} or {last}" if others else last


def _flat(types: Iterable[inspect.Type]) -> Iterator[inspect.Type]:
    """The types that values of `types` may have."""
    for kind in types:
        if isinstance(kind, inspect.UnionType):
            yield from _flat(kind.types)
        else:
            yield kind


def _tags(kind: inspect.Type, name: str | None) -> list[str]:
    """What stands in the field `name` of a `kind` if that tells it from other structs."""
    if isinstance(kind, inspect.StructType) and name is not None and kind.tag_field == name:
        return [str(kind.tag)]
    return []


def _inside(kind: inspect.Type, name: str | None) -> list[inspect.Type]:
    """The types of the field `name` of a `kind`, or of its members if there is no name."""
    if isinstance(kind, inspect.StructType):
        return [field.type for field in kind.fields if field.encode_name == name]
    if name is None and isinstance(kind, inspect.ListType):
        return [kind.item_type]
    if name is None and isinstance(kind, inspect.DictType):
        return [kind.value_type]
    return []
