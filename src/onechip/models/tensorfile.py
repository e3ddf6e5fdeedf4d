"""A .safetensors file in, named NumPy arrays out, memory-mapped; and arrays to a file, a piece at a time.

The safetensors library copies each tensor that it reads for NumPy and holds all of what it writes; a 10 GB
checkpoint on a 16 GB machine allows neither. The format is a length (8 bytes), a JSON header, and the data.
"""

from __future__ import annotations

import json
import math
import mmap
import operator
import os
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

import ml_dtypes
import numpy as np
from numpy.typing import NDArray

from onechip.errors import CheckpointError

Array = NDArray[Any]

DTYPES: dict[str, np.dtype[Any]] = {
    "BF16": np.dtype(ml_dtypes.bfloat16),
    "F16": np.dtype("<f2"),
    "F32": np.dtype("<f4"),
    "F64": np.dtype("<f8"),
    "U8": np.dtype("u1"),
    "I8": np.dtype("i1"),
    "I16": np.dtype("<i2"),
    "I32": np.dtype("<i4"),
    "I64": np.dtype("<i8"),
    "BOOL": np.dtype("bool"),
}
"""Names of dtypes in the header; another (such as a float8) is refused when its tensor is asked for."""

_MAX_HEADER_BYTES = 100_000_000
_ALIGNMENT = 64  # of the data; XLA takes host memory without a copy only where it is aligned so


@dataclass(frozen=True, slots=True)
class TensorInfo:
    """What the header says of one tensor: the dtype's name in the file, the shape, and the bytes it takes."""

    dtype: str
    shape: tuple[int, ...]

    @property
    def nbytes(self) -> int:
        return math.prod(self.shape) * DTYPES[self.dtype].itemsize


class TensorFile:
    """One .safetensors file, opened and checked.

    Attributes:
        path: the file.
        tensors: name -> TensorInfo, in the order of the header.

    Raises:
        CheckpointError: the file is missing, truncated, or not in the format.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        try:
            with path.open("rb") as file:
                size = os.fstat(file.fileno()).st_size
                header, self._start = self._read_header(file, size)
                self._map = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        except OSError as error:
            raise CheckpointError(f"{path} cannot be read: {error.strerror or error}.") from None
        self._offsets: dict[str, tuple[int, int]] = {}
        self.tensors: dict[str, TensorInfo] = {}
        for name, entry in header.items():
            if name != "__metadata__":
                self._add(name, entry, size)

    def _damaged(self, what: str) -> CheckpointError:
        return CheckpointError(f"{self.path} is truncated or damaged ({what}): fetch the file again.")

    def _read_header(self, file: BinaryIO, size: int) -> tuple[dict[str, Any], int]:
        """(header, offset of the data)."""
        count = int.from_bytes(file.read(8), "little")
        if count > min(size - 8, _MAX_HEADER_BYTES):
            raise self._damaged(f"{size} bytes do not hold the header")
        try:
            header = json.loads(file.read(count))
        except ValueError:
            raise self._damaged("the header is not JSON") from None
        if not isinstance(header, dict):
            raise self._damaged("the header is not a JSON object")
        return header, 8 + count

    def _add(self, name: str, entry: Any, size: int) -> None:
        try:
            info = TensorInfo(str(entry["dtype"]), tuple(operator.index(n) for n in entry["shape"]))
            begin, end = (operator.index(offset) for offset in entry["data_offsets"])
        except (KeyError, TypeError, ValueError):
            raise self._damaged(f"the header's entry for {name} is malformed") from None
        if not 0 <= begin <= end or min(info.shape, default=0) < 0:
            raise self._damaged(f"the header's entry for {name} is malformed")
        if self._start + end > size:
            raise self._damaged(f"{name} ends at byte {self._start + end} of {size}")
        if info.dtype in DTYPES and info.nbytes != end - begin:
            raise self._damaged(f"{name} has {end - begin} bytes, its shape and dtype need {info.nbytes}")
        self.tensors[name] = info
        self._offsets[name] = (begin, end)

    def read(self, name: str) -> Array:
        """The tensor as a read-only view of the mapped file, which stays open as long as the view lives."""
        info = self.tensors[name]
        if info.dtype not in DTYPES:
            raise CheckpointError(f"{name} has dtype {info.dtype}, which onechip does not read.")
        begin, _ = self._offsets[name]
        return np.ndarray(info.shape, DTYPES[info.dtype], buffer=self._map, offset=self._start + begin)


def dtype_name(dtype: np.dtype[Any]) -> str:
    """The header's name for a NumPy dtype."""
    return next(name for name, known in DTYPES.items() if known == dtype)


def write_tensors(path: Path, tensors: Mapping[str, TensorInfo], pieces: Iterable[Array]) -> None:
    """Write a .safetensors file from pieces, so that no more than one of them need be in memory.

    Args:
        path: the file; it appears under this name only when it is complete.
        tensors: name -> dtype and shape, in the order of the file.
        pieces: the data of all tensors one after the other, cut anywhere.

    Raises:
        CheckpointError: the disk is full or the folder cannot be written.
        ValueError: the pieces do not add up to the tensors.
    """
    partial = path.with_name(path.name + ".partial")
    wanted = sum(info.nbytes for info in tensors.values())
    try:
        with partial.open("wb") as file:
            file.write(_header(tensors))
            written = sum(file.write(_bytes_of(piece)) for piece in pieces)
        if written != wanted:
            raise ValueError(f"pieces have {written} bytes, the tensors {wanted}")
        partial.replace(path)
    except OSError as error:
        raise CheckpointError(f"{path} cannot be written: {error.strerror or error}.") from None
    finally:
        partial.unlink(missing_ok=True)


def _header(tensors: Mapping[str, TensorInfo]) -> bytes:
    entries = dict(_entries(tensors))
    text = json.dumps({"__metadata__": {"format": "pt"}, **entries}, separators=(",", ":")).encode()
    text += b" " * (-(8 + len(text)) % _ALIGNMENT)
    return len(text).to_bytes(8, "little") + text


def _entries(tensors: Mapping[str, TensorInfo]) -> Iterator[tuple[str, dict[str, Any]]]:
    offset = 0
    for name, info in tensors.items():
        end = offset + info.nbytes
        yield name, {"dtype": info.dtype, "shape": list(info.shape), "data_offsets": [offset, end]}
        offset = end


def _bytes_of(piece: Array) -> memoryview:
    """The array's bytes; through uint8, since bfloat16 has no buffer of its own."""
    return np.ascontiguousarray(piece).reshape(-1).view(np.uint8).data
