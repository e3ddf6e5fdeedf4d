"""Weights as checkpoints store them in, panels for the kernels out, and back; native/layout.h draws a panel.

All cores pack together, about as fast as memory is read, so panels are made anew at each start and not kept
on the disk.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from typing import Any, Literal

import ml_dtypes
import numpy as np
from numpy.typing import NDArray

from onechip.kernels.api import GROUP, Int4, Int8, Kind, Panels, kind_of
from onechip.kernels.cpu import library
from onechip.kernels.cpu.arena import Arena

Array = NDArray[Any]
Stored = Literal["bf16", "int8", "int4"]

LANES = 16
BLOCK = 64
BLOCK_BYTES: dict[Stored, int] = {"bf16": 2048, "int8": 1088, "int4": 576}
"""As native/layout.h has them: outputs of a panel, inputs of a block, and its bytes."""

BFLOAT16 = np.dtype(ml_dtypes.bfloat16)
FLOAT16 = np.dtype(np.float16)

_ARENA = Arena()


def pack(
    *parts: Int4 | Int8 | Array, exact: bool = False, paired: bool = False, arena: Arena | None = None
) -> Panels:
    """A weight [out, in] as panels, of any size; values and scales keep their bits.

    Args:
        parts: the weight cut along its outputs: Int4 or Int8, whose scales have one dtype, or bfloat16.
        exact, paired: see Panels.
        arena: where the panels go; all that have none share one.

    Raises:
        ValueError: the parts are of several kinds, or of another dtype or shape.
        library.LibraryError: the kernels are not there.
    """
    outputs, inputs = sum(part.shape[0] for part in parts), parts[0].shape[1]
    rows = panel_rows(outputs, paired)
    stored = _stored(parts)
    values = [_values(part, inputs) for part in parts]
    scales = [_scales(part, inputs) for part in parts if isinstance(part, Int4 | Int8)]
    if len({scale.dtype for scale in scales}) > 1:
        raise ValueError("the scales of one weight's parts have two dtypes")
    data = (arena or _ARENA).take((len(rows), _panel_bytes(stored, inputs)))
    sizes = ctypes.c_size_t(len(rows)), ctypes.c_size_t(inputs), _address(data)
    pointers = [_pointers(arrays, rows) for arrays in (values, scales) if arrays]
    getattr(library.load(), f"onechip_pack_{stored}")(*map(_address, pointers), *sizes)
    bf16 = bool(scales) and scales[0].dtype == BFLOAT16
    return Panels(data, stored, "bf16" if bf16 else "half", (outputs, inputs), exact, paired)


def stored_as(kind: Kind) -> Stored:
    """What panels hold of a weight of this kind."""
    return "bf16" if kind == "dense" else kind


def packed_bytes(kind: Stored, outputs: int, inputs: int, *, paired: bool = False) -> int:
    """Bytes of the panels that `pack` makes."""
    return len(panel_rows(outputs, paired)) * _panel_bytes(kind, inputs)


def panel_rows(outputs: int, paired: bool) -> NDArray[np.int64]:
    """Which output each lane of each panel holds [panels, 16]; -1: none."""
    if paired:
        if outputs % 2:
            raise ValueError(f"{outputs} outputs cannot be paired: there must be as many of each half")
        half = panel_rows(outputs // 2, False)
        pairs = np.stack([half, np.where(half < 0, -1, half + outputs // 2)], axis=1)
        return pairs.reshape(-1, LANES)
    rows = np.arange(-(-outputs // LANES) * LANES).reshape(-1, LANES)
    return np.where(rows < outputs, rows, -1)


def _panel_bytes(kind: Stored, inputs: int) -> int:
    return -(-inputs // BLOCK) * BLOCK_BYTES[kind]


def _stored(parts: Sequence[Int4 | Int8 | Array]) -> Stored:
    kinds = {stored_as(kind_of(part)) for part in parts}
    if len(kinds) != 1:
        raise ValueError(f"parts of one weight are {' and '.join(sorted(kinds))}: one kind is packed")
    return kinds.pop()


def _values(part: Int4 | Int8 | Array, inputs: int) -> Array:
    """The words, levels or numbers of a part, its rows each in one piece."""
    if part.shape[1] != inputs:
        raise ValueError(f"parts of one weight have {inputs} and {part.shape[1]} inputs")
    if isinstance(part, Int4):
        return _whole_rows(part.packed, (np.dtype(np.int32),), "int4 words are")
    if isinstance(part, Int8):
        return _whole_rows(part.levels, (np.dtype(np.int8),), "int8 levels are")
    return _whole_rows(part, (BFLOAT16,), "a dense weight is")


def _scales(part: Int4 | Int8, inputs: int) -> Array:
    if inputs % GROUP or part.scale.shape != (part.shape[0], inputs // GROUP):
        raise ValueError(f"{part.shape} has scales {part.scale.shape}: one for {GROUP} inputs is needed")
    return _whole_rows(part.scale, (BFLOAT16, FLOAT16), "scales are")


def _whole_rows(array: Array, dtypes: tuple[np.dtype[Any], ...], what: str) -> Array:
    array = np.asarray(array)
    if array.dtype not in dtypes:
        raise ValueError(f"{what} {array.dtype}: {' or '.join(map(str, dtypes))} is packed")
    return array if array.strides[1] == array.itemsize else np.ascontiguousarray(array)


def _pointers(arrays: list[Array], rows: NDArray[np.int64]) -> NDArray[np.uintp]:
    """The address of each row of the arrays, 0 for none; good as long as the arrays live."""
    addresses = [array.ctypes.data + np.arange(len(array)) * array.strides[0] for array in arrays]
    return np.where(rows < 0, 0, np.concatenate(addresses)[rows]).astype(np.uintp)


def _address(array: Array) -> ctypes.c_void_p:
    return ctypes.c_void_p(array.ctypes.data)


def unpack(panels: Panels) -> NDArray[np.float32]:
    """The weight [out, in] that the panels hold."""
    data = np.asarray(panels.data)
    blocks = data.reshape(len(data), -1, BLOCK_BYTES[panels.kind])
    if panels.kind == "bf16":
        pairs = blocks.view(BFLOAT16).reshape(*blocks.shape[:2], BLOCK // 2, LANES, 2)
        weight = pairs.transpose(0, 3, 1, 2, 4).astype(np.float32)
    else:
        levels = _int8_levels(blocks) if panels.kind == "int8" else _int4_levels(blocks)
        scales = blocks[:, :, -2 * 2 * LANES :].view(BFLOAT16 if panels.scale == "bf16" else FLOAT16)
        scales = scales.reshape(*blocks.shape[:2], BLOCK // GROUP, LANES).transpose(0, 3, 1, 2)
        weight = levels.astype(np.float32) * scales.astype(np.float32)[..., None]
    outputs, inputs = panels.shape
    lanes = panel_rows(outputs, panels.paired).reshape(-1)
    unpacked = np.empty((outputs, inputs), np.float32)
    unpacked[lanes[lanes >= 0]] = weight.reshape(len(lanes), -1)[lanes >= 0, :inputs]
    return unpacked


def _int8_levels(blocks: Array) -> Array:
    """[panels, lanes, blocks, groups, 32]"""
    quads = blocks[:, :, : BLOCK * LANES].view(np.int8).reshape(*blocks.shape[:2], -1, LANES, 4)
    return quads.transpose(0, 3, 1, 2, 4).reshape(len(blocks), LANES, -1, BLOCK // GROUP, GROUP)


def _int4_levels(blocks: Array) -> Array:
    """[panels, lanes, blocks, groups, 32]"""
    octets = blocks[:, :, : BLOCK // 2 * LANES].reshape(*blocks.shape[:2], BLOCK // GROUP, 4, LANES, 4)
    levels = (
        np.stack([octets & 15, octets >> 4], axis=3).astype(np.int8) - 8
    )  # panel, block, group, half, ...
    return levels.transpose(0, 5, 1, 2, 3, 4, 6).reshape(len(blocks), LANES, -1, BLOCK // GROUP, GROUP)
