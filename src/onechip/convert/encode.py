"""Rows of a tensor as the source has them in; the same rows as a form stores them out, some at a time.

What cannot be carried exactly is either refused by name, row and group, or counted in `Notes`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from onechip.convert import q6_k
from onechip.convert.forms import Encoding
from onechip.convert.grid import find_grid
from onechip.errors import CheckpointError
from onechip.kernels.api import GROUP, Int4, Int8, Kind, Leaf, kind_of
from onechip.models.layout import TensorSpec
from onechip.models.leaf import expand
from onechip.models.quant import (
    BFLOAT16,
    quantize_int4,
    quantize_int8,
    row_blocks,
    to_q4_0,
    to_q8_0,
    unpack,
)

Array = NDArray[Any]
Index = slice | Array

DTYPES: dict[Encoding, np.dtype[Any]] = {
    "BF16": BFLOAT16,
    "F16": np.dtype(np.float16),
    "F32": np.dtype(np.float32),
}
"""Of the dense encodings."""

_SAMPLE_ROWS = 16
_MEND = "--round rounds such weights to 16 levels"


class Tensor(Protocol):
    """One tensor of the source, read some rows at a time.

    Attributes:
        name: for a person.
        shape: of the whole.
        kind: whether rows come as Int4, Int8, or dense arrays.
        dtype: of these arrays, or of the scales.
    """

    name: str
    shape: tuple[int, ...]
    kind: Kind
    dtype: np.dtype[Any]

    def rows(self, index: Index) -> Any:
        """These rows: an Int4, an Int8 or an array."""


@dataclass
class Notes:
    """What a conversion did not carry to the bit; filled while tensors are encoded.

    Attributes:
        rounded: encoding -> how many values changed when they were rounded to it.
        levels: names of dense tensors that were rounded to int4, because --round allowed it.
        between: groups found on a grid whose step lies between two float16 numbers.
        kept: names of linear weights left dense, as they are in a source whose others are int4.
    """

    rounded: Counter[Encoding] = field(default_factory=Counter)
    levels: list[str] = field(default_factory=list)
    between: int = 0
    kept: list[str] = field(default_factory=list)


def dense(
    tensor: Tensor, encoding: Encoding, order: Array | None, shift: float, notes: Notes
) -> Iterator[Array]:
    """The tensor's values plus `shift` in a dense encoding, its rows in `order`."""
    for start, index in _blocks(tensor, order):
        part = tensor.rows(index)
        values = _values(part)
        if shift:
            values = values.astype(np.float32) + np.float32(shift)
        yield _cast(values, encoding, tensor.name, start, notes)


def _cast(values: Array, encoding: Encoding, name: str, start: int, notes: Notes) -> Array:
    target = DTYPES[encoding]
    if values.dtype == target:
        return values
    with np.errstate(over="ignore"):
        cast = values.astype(target)
    if target.itemsize < 4:
        before, after = values.astype(np.float32), cast.astype(np.float32)
        lost = np.isinf(after) & ~np.isinf(before)
        if lost.any():
            row = start + int(np.argwhere(lost)[0][0])
            raise CheckpointError(
                f"{name}, row {row}, has a value too large for {encoding}: choose another form."
            )
        changed = int(((before != after) & ~np.isnan(before)).sum())
        if changed:
            notes.rounded[encoding] += changed
    return cast


def rounds(tensor: Tensor, allowed: bool) -> bool:
    """Whether a tensor is to be rounded to int4: that is allowed, and a sample of its rows is on no grid."""
    if tensor.kind == "int4" or not allowed:
        return False
    rows = np.unique(np.linspace(0, tensor.shape[0] - 1, _SAMPLE_ROWS).astype(np.int64))
    return bool(find_grid(_values(tensor.rows(rows))).off.any())


def _values(part: Leaf) -> Array:
    """Rows as a dense array, int4 and int8 ones exactly in float32."""
    return part if kind_of(part) == "dense" else expand(part, np.float32)


def scale_dtype(tensor: Tensor, allowed: bool) -> np.dtype[Any]:
    """Of the scales that `int4` gives: the source's, bfloat16 if it rounds, float16 if it finds a grid."""
    if tensor.kind == "int4":
        return tensor.dtype
    return DTYPES["BF16" if rounds(tensor, allowed) else "F16"]


def pack_quantized(tensor: Tensor, allowed: bool, notes: Notes) -> Iterator[Array]:
    """The three tensors of compressed-tensors, one after the other: words, scales, shape."""
    scales = []
    for packed, scale in int4(tensor, allowed, None, notes):
        scales.append(scale)
        yield packed
    yield from scales
    yield np.array(tensor.shape, dtype=np.int64)


def int4(tensor: Tensor, allowed: bool, order: Array | None, notes: Notes) -> Iterator[tuple[Array, Array]]:
    """(packed words, scales) of blocks of rows in `order`; dense ones by their grid, or rounded if allowed.

    Raises CheckpointError naming the first group that is on no grid, if rounding is not allowed.
    """
    rounding = rounds(tensor, allowed)
    if rounding:
        notes.levels.append(tensor.name)
    for start, index in _blocks(tensor, order):
        part = tensor.rows(index)
        if isinstance(part, Int4):
            yield np.asarray(part.packed), np.asarray(part.scale)
        elif rounding:
            yield _rounded(_values(part), tensor.name)
        else:
            yield _on_grid(_values(part), allowed, tensor.name, start, notes)


def _rounded(weight: Array, name: str) -> tuple[Array, Array]:
    try:
        return quantize_int4(weight)
    except ValueError as error:
        raise CheckpointError(f"{name} cannot be rounded to int4: {error}.") from None


def _on_grid(weight: Array, allowed: bool, name: str, start: int, notes: Notes) -> tuple[Array, Array]:
    """By the grid of each group; a group on none is rounded if that is allowed, else refused."""
    found = find_grid(weight)
    notes.between += found.between
    if not found.off.any():
        return found.packed, found.scale
    if not allowed:
        row, group = np.argwhere(found.off)[0]
        columns = f"{group * GROUP} to {group * GROUP + GROUP - 1}"
        raise CheckpointError(
            f"{name}, row {start + row}, group {group} (columns {columns}): these values are not whole "
            f"levels from -8 to 7 times one scale, so int4 cannot hold them as they are; {_MEND}."
        )
    packed, scale = _rounded(weight, name)
    words = np.repeat(found.off, GROUP // 8, axis=1)
    return np.where(words, packed, found.packed), np.where(found.off, scale.astype(np.float16), found.scale)


def q4_0(tensor: Tensor, allowed: bool, order: Array | None, notes: Notes) -> Iterator[Array]:
    """The tensor in Q4_0 blocks, [rows, bytes]."""
    start = 0
    for packed, scale in int4(tensor, allowed, order, notes):
        yield to_q4_0(packed, _half(scale, tensor.name, start))
        start += len(scale)


def _half(scale: Array, name: str, start: int) -> Array:
    """The scales in float16; refused where that is another number."""
    with np.errstate(over="ignore"):
        half = scale.astype(np.float16)
    same = half.astype(np.float32) == scale.astype(np.float32)
    if not same.all():
        row, group = np.argwhere(~same)[0]
        raise CheckpointError(
            f"{name}, row {start + row}, group {group}: its scale is {float(scale[row, group]):.9g}, which "
            "float16, in which GGUF has scales, does not hold. Convert to bf16 first, and that with --round."
        )
    return half


def q8_0(tensor: Tensor, order: Array | None, notes: Notes) -> Iterator[Array]:
    """The tensor in Q8_0 blocks, [rows, bytes]: int8 and int4 levels as they are, all else rounded."""
    for start, index in _blocks(tensor, order):
        part = tensor.rows(index)
        if isinstance(part, Int4):
            part = Int8(unpack(part.packed), _half(part.scale, tensor.name, start))
        elif not isinstance(part, Int8):
            part = _rounded_to_int8(part, tensor.name, notes)
        yield to_q8_0(np.asarray(part.levels), np.asarray(part.scale))


def _rounded_to_int8(weight: Array, name: str, notes: Notes) -> Int8:
    try:
        rounded = Int8(*quantize_int8(weight))
    except ValueError as error:
        raise CheckpointError(f"{name} cannot be rounded to Q8_0: {error}.") from None
    notes.rounded["INT8"] += int((expand(rounded, np.float32) != weight.astype(np.float32)).sum())
    return rounded


def q6_k_blocks(tensor: Tensor, notes: Notes) -> Iterator[Array]:
    """The tensor in Q6_K blocks, [rows, bytes]. Raises CheckpointError if rows do not divide into blocks."""
    for _, index in _blocks(tensor, None):
        part = tensor.rows(index)
        values = _values(part)
        notes.rounded["Q6_K"] += values.size
        yield q6_k.quantize(values.astype(np.float32))


def _blocks(tensor: Tensor, order: Array | None) -> Iterator[tuple[int, Index]]:
    """(first row, rows to read) of a tensor's blocks; a vector is one block."""
    if len(tensor.shape) == 1:
        yield 0, slice(None)
        return
    for block in row_blocks(*tensor.shape):
        yield block.start, block if order is None else order[block]


def check_groups(spec: TensorSpec, size: int, what: str) -> None:
    """Raise CheckpointError if the tensor's rows do not divide into groups of `size`."""
    if spec.shape[1] % size:
        raise CheckpointError(f"{spec.name} has rows of {spec.shape[1]}: {what} needs multiples of {size}.")
