"""Null asks for nothing, wherever it stands in a body, also in fields that nobody declared.

Clients send what their types have, with null for what is not set, and get new fields before servers do.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import msgspec
from msgspec import inspect


@dataclass(frozen=True, slots=True)
class _Shape:
    """What may stand at one place of a body. Objects that are no structs hold a client's own data.

    Attributes:
        members: those of an object that is a struct in which there are further ones; None if none is.
        elements: of an array.
    """

    members: Mapping[str, _Shape] | None = None
    elements: _Shape | None = None


def drop_nulls(data: Any, type: type[msgspec.Struct]) -> None:
    """Take the nulls out of `data`, which is to become a `type`."""
    _drop(data, _shape(type))


def _drop(data: Any, shape: _Shape) -> None:
    if isinstance(data, dict) and shape.members is not None:
        for name in [name for name, value in data.items() if value is None]:
            del data[name]
        for name, member in shape.members.items():
            if name in data:
                _drop(data[name], member)
    elif isinstance(data, list) and shape.elements is not None:
        for element in data:
            _drop(element, shape.elements)


@lru_cache
def _shape(type: type[msgspec.Struct]) -> _Shape:
    return _shape_of([inspect.type_info(type)]) or _Shape()


def _shape_of(types: list[inspect.Type]) -> _Shape | None:
    """The shape of a place where any of `types` may stand; None if there is no struct in it."""
    flat = [one for each in types for one in (each.types if isinstance(each, inspect.UnionType) else [each])]
    lists = [one.item_type for one in flat if isinstance(one, inspect.ListType)]
    structs = [one for one in flat if isinstance(one, inspect.StructType)]
    elements = _shape_of(lists) if lists else None
    if not structs:
        return _Shape(elements=elements) if elements else None
    fields = [field for struct in structs for field in struct.fields]
    found = {
        name: _shape_of([field.type for field in fields if field.encode_name == name])
        for name in dict.fromkeys(field.encode_name for field in fields)
    }
    return _Shape({name: shape for name, shape in found.items() if shape is not None}, elements)
