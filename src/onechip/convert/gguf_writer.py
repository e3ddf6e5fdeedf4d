"""Metadata and tensors in; a GGUF file (version 3) out, a piece at a time.

The `gguf` package's writer wants each tensor whole in memory, and the per-layer table of E2B has 4.7 GB.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import NDArray

from onechip.errors import CheckpointError

Array = NDArray[Any]

_MAGIC = b"GGUF"
_VERSION = 3
_ALIGNMENT = 32  # the format's default; of the data and of each tensor in it
_SCALARS = {"U32": (4, "<I"), "I32": (5, "<i"), "F32": (6, "<f"), "BOOL": (7, "<?")}
_STRING, _ARRAY = 8, 9


@dataclass(frozen=True, slots=True)
class GgmlType:
    """A type of tensor data: its number in the file, and the elements and bytes of one of its blocks."""

    number: int
    elements: int
    bytes: int


GGML_TYPES = {
    "F32": GgmlType(0, 1, 4),
    "F16": GgmlType(1, 1, 2),
    "Q4_0": GgmlType(2, 32, 18),
    "Q8_0": GgmlType(8, 32, 34),
    "Q6_K": GgmlType(14, 256, 210),
    "BF16": GgmlType(30, 1, 2),
}
"""The types that we write."""


@dataclass(frozen=True, slots=True)
class GgufInfo:
    """A tensor of the file: the name of its type in GGML_TYPES, and its shape, outermost axis first."""

    type: str
    shape: tuple[int, ...]

    @property
    def nbytes(self) -> int:
        kind = GGML_TYPES[self.type]
        return math.prod(self.shape) // kind.elements * kind.bytes


@dataclass(frozen=True, slots=True)
class Value:
    """One value of the metadata.

    Attributes:
        kind: "U32", "I32", "F32", "BOOL" or "STRING".
        content: of that kind, or a list of such where `is_list`.
    """

    kind: str
    content: Any
    is_list: bool = False


Metadata = dict[str, Value]
"""Key -> value."""


def write_gguf(
    path: Path,
    metadata: Mapping[str, Value],
    tensors: Mapping[str, GgufInfo],
    data: Iterable[Iterable[Array]],
) -> None:
    """Write a GGUF file from pieces, so that no more than one of them need be in memory.

    Args:
        path: the file; it appears under this name only when it is complete.
        tensors: name -> type and shape, in the order of the file.
        data: of each tensor in turn, its bytes cut anywhere.

    Raises:
        CheckpointError: the disk is full or the folder cannot be written.
        ValueError: the pieces do not add up to the tensors.
    """
    partial = path.with_name(path.name + ".partial")
    try:
        with partial.open("wb") as file:
            file.write(_header(metadata, tensors))
            for (name, info), pieces in zip(tensors.items(), data, strict=True):
                _write_tensor(file, name, info, pieces)
        partial.replace(path)
    except OSError as error:
        raise CheckpointError(f"{path} cannot be written: {error.strerror or error}.") from None
    finally:
        partial.unlink(missing_ok=True)


def _write_tensor(file: BinaryIO, name: str, info: GgufInfo, pieces: Iterable[Array]) -> None:
    written = sum(file.write(np.ascontiguousarray(piece).reshape(-1).view(np.uint8).data) for piece in pieces)
    if written != info.nbytes:
        raise ValueError(f"the pieces of {name} have {written} bytes, its shape and type need {info.nbytes}")
    file.write(bytes(-written % _ALIGNMENT))


def _header(metadata: Mapping[str, Value], tensors: Mapping[str, GgufInfo]) -> bytes:
    head = _MAGIC + struct.pack("<IQQ", _VERSION, len(tensors), len(metadata))
    head += b"".join(part for key, value in metadata.items() for part in (_string(key), _value(value)))
    head += b"".join(_tensor_infos(tensors))
    return head + bytes(-len(head) % _ALIGNMENT)


def _tensor_infos(tensors: Mapping[str, GgufInfo]) -> Iterator[bytes]:
    offset = 0
    for name, info in tensors.items():
        dimensions = info.shape[::-1]  # GGUF counts from the innermost axis
        yield _string(name) + struct.pack(f"<I{len(dimensions)}Q", len(dimensions), *dimensions)
        yield struct.pack("<IQ", GGML_TYPES[info.type].number, offset)
        offset += info.nbytes + -info.nbytes % _ALIGNMENT


def _string(text: str) -> bytes:
    raw = text.encode()
    return struct.pack("<Q", len(raw)) + raw


def _value(value: Value) -> bytes:
    number = _STRING if value.kind == "STRING" else _SCALARS[value.kind][0]
    if not value.is_list:
        return struct.pack("<I", number) + _content(value.kind, value.content)
    head = struct.pack("<IIQ", _ARRAY, number, len(value.content))
    return head + b"".join(_content(value.kind, content) for content in value.content)


def _content(kind: str, content: Any) -> bytes:
    return _string(content) if kind == "STRING" else struct.pack(_SCALARS[kind][1], content)
