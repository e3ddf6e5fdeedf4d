"""A .gguf file in; its metadata and the raw blocks of its tensors out, memory-mapped.

The `gguf` package's reader makes an array of every string, which takes two minutes for a vocabulary of
262,144 tokens and 514,906 merges; this one takes half a second. The format is that of ggml's docs/gguf.md,
versions 2 and 3: a header, key-value pairs, the tensors' entries, and their data at an aligned offset.
"""

from __future__ import annotations

import mmap
import struct
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from gguf.constants import GGML_QUANT_SIZES, GGMLQuantizationType
from numpy.typing import NDArray

from onechip.errors import CheckpointError

Array = NDArray[Any]

MAGIC = b"GGUF"
_VERSIONS = (2, 3)
_STRING, _ARRAY = 8, 9
_FLOAT32 = 6
_SCALARS = {
    0: "u1",
    1: "i1",
    2: "<u2",
    3: "<i2",
    4: "<u4",
    5: "<i4",
    _FLOAT32: "<f4",
    7: "?",
    10: "<u8",
    11: "<i8",
    12: "<f8",
}
"""Ids of the types of values -> NumPy's names."""
_SIZE = struct.Struct("<Q")
_MAX_DIMENSIONS = 4
_ALIGNMENT = 32


@dataclass(frozen=True, slots=True)
class BlockInfo:
    """One tensor: the name of its type, its shape (as NumPy has it, rows first), and where its bytes are."""

    dtype: str
    shape: tuple[int, ...]
    offset: int
    nbytes: int


class Strings:
    """A list of strings in the file, which are not decoded before they are asked for."""

    def __init__(self, data: mmap.mmap, start: int, count: int) -> None:
        self._data = data
        self._start = start
        self._count = count

    def __len__(self) -> int:
        return self._count

    def decode(self) -> list[str]:
        """All of them. Raises UnicodeDecodeError."""
        data, position, size_of = self._data, self._start, _SIZE.unpack_from
        found = []
        for _ in range(self._count):
            (size,) = size_of(data, position)
            position += 8 + size
            found.append(data[position - size : position].decode())
        return found


class GgufFile:
    """One .gguf file, opened and checked.

    Attributes:
        path: the file.
        metadata: key -> number, bool, string, Strings, or array of numbers.
        tensors: name -> BlockInfo, in the order of the file.

    Raises:
        CheckpointError: the file is missing, truncated, not in the format, or has a type that is not known.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        try:
            with path.open("rb") as file:
                self._map = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        except ValueError:
            raise self._damaged("it is empty") from None
        except OSError as error:
            raise CheckpointError(f"{path} cannot be read: {error.strerror or error}.") from None
        reader = _Reader(self._map)
        try:
            self._read(reader)
        except (struct.error, UnicodeDecodeError, OverflowError) as error:
            what = (
                "a string is not UTF-8"
                if isinstance(error, UnicodeDecodeError)
                else "its header is cut short"
            )
            raise self._damaged(what) from None

    def _damaged(self, what: str) -> CheckpointError:
        return CheckpointError(f"{self.path} is truncated or damaged ({what}): fetch the file again.")

    def _read(self, reader: _Reader) -> None:
        if self._map[:4] != MAGIC:
            raise CheckpointError(f"{self.path} is not a GGUF file: it does not begin with GGUF.")
        reader.position = 4
        version = reader.number("<I")
        if version not in _VERSIONS:
            big_endian = version >> 24 in _VERSIONS
            what = "is big-endian" if big_endian else f"has GGUF version {version}"
            raise CheckpointError(f"{self.path} {what}: onechip reads versions 2 and 3, little-endian.")
        tensors, pairs = reader.number("<Q"), reader.number("<Q")
        self.metadata: dict[str, Any] = {}
        for _ in range(pairs):
            key = reader.string()
            self.metadata[key] = self._value(reader, key, reader.number("<I"))
        entries = [self._entry(reader) for _ in range(tensors)]
        alignment = self.metadata.get("general.alignment", _ALIGNMENT)
        if not isinstance(alignment, int) or alignment < 1:
            raise self._damaged(f"general.alignment is {alignment}")
        start = -(-reader.position // alignment) * alignment
        self.tensors: dict[str, BlockInfo] = {}
        for name, dtype, shape, offset in entries:
            self._add(name, dtype, shape, start + offset)

    def _value(self, reader: _Reader, key: str, kind: int) -> Any:
        if kind == _STRING:
            return reader.string()
        if kind in _SCALARS:
            value = reader.numbers(_SCALARS[kind], 1)[0]
            # The writer's number was decimal: 1e-06, not the 9.999999974752427e-07 nearest to it in float32.
            return float(str(value)) if kind == _FLOAT32 else value.item()
        if kind != _ARRAY:
            raise self._damaged(f"{key} has type {kind}")
        kind, count = reader.number("<I"), reader.number("<Q")
        if kind == _STRING:
            return reader.strings(count)
        if kind not in _SCALARS:
            raise self._damaged(f"{key} is an array of type {kind}")
        return reader.numbers(_SCALARS[kind], count)

    def _entry(self, reader: _Reader) -> tuple[str, GGMLQuantizationType, tuple[int, ...], int]:
        name = reader.string()
        count = reader.number("<I")
        if not 1 <= count <= _MAX_DIMENSIONS:
            raise self._damaged(f"{name} has {count} dimensions")
        dimensions = [reader.number("<Q") for _ in range(count)]
        kind = reader.number("<I")
        try:
            dtype = GGMLQuantizationType(kind)
        except ValueError:
            raise CheckpointError(
                f"{name} in {self.path} has type {kind}, which the gguf package does not know: "
                "upgrade it (pip install -U gguf), or take a file in another type."
            ) from None
        return name, dtype, tuple(reversed(dimensions)), reader.number("<Q")

    def _add(self, name: str, dtype: GGMLQuantizationType, shape: tuple[int, ...], offset: int) -> None:
        block, block_bytes = GGML_QUANT_SIZES[dtype]
        if shape[-1] % block:
            raise self._damaged(f"{name} has rows of {shape[-1]}, {dtype.name} comes in blocks of {block}")
        if name in self.tensors:
            raise self._damaged(f"{name} is there twice")
        count = 1
        for size in shape:
            count *= size
        nbytes = count // block * block_bytes
        if offset + nbytes > len(self._map):
            raise self._damaged(f"{name} ends at byte {offset + nbytes} of {len(self._map)}")
        self.tensors[name] = BlockInfo(dtype.name, shape, offset, nbytes)

    def blocks(self, name: str) -> Array:
        """The tensor's bytes, [rows, bytes of a row] uint8, a read-only view of the mapped file.

        A tensor of one dimension is one row. The file stays open as long as the view lives.
        """
        info = self.tensors[name]
        flat = np.ndarray(info.nbytes, np.uint8, buffer=self._map, offset=info.offset)
        return flat.reshape(info.shape[0] if len(info.shape) > 1 else 1, -1)


class _Reader:
    """A position in the header; reads beyond the end raise struct.error."""

    def __init__(self, data: mmap.mmap) -> None:
        self._data = data
        self.position = 0

    def number(self, kind: str) -> int:
        (value,) = struct.unpack_from(kind, self._data, self.position)
        self.position += struct.calcsize(kind)
        return int(value)

    def string(self) -> str:
        return self._bytes(self.number("<Q")).decode()

    def strings(self, count: int) -> Strings:
        start = position = self.position
        data, size_of = self._data, _SIZE.unpack_from
        for _ in range(count):
            position += 8 + size_of(data, position)[0]
        if position > len(data):
            raise struct.error
        self.position = position
        return Strings(data, start, count)

    def numbers(self, dtype: str, count: int) -> Array:
        return np.frombuffer(self._bytes(count * np.dtype(dtype).itemsize), dtype)

    def _bytes(self, count: int) -> bytes:
        if count > len(self._data) - self.position:
            raise struct.error
        self.position += count
        return self._data[self.position - count : self.position]
