"""Quantised weights on the host, in NumPy: float rows to levels with a scale for each 32 inputs, and back.

The layout of int4 is compressed-tensors' "pack-quantized" (W4A16, symmetric). GGUF's Q4_0 holds the same
levels in another order, beside a float16 scale: `to_q4_0` moves them bit for bit, `gguf.blocks.int4` back.
Int8 is GGUF's Q8_0, levels and scales apart: `to_q8_0` joins them, `gguf.blocks.int8` parts them.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import Any

import ml_dtypes
import numpy as np
from numpy.typing import NDArray

from onechip.kernels.api import GROUP

Array = NDArray[Any]

BFLOAT16 = np.dtype(ml_dtypes.bfloat16)
LEVELS = (-8, 7)
"""The least and the greatest int4 level."""

Q4_0_BYTES = 2 + GROUP // 2
"""Bytes of a group in Q4_0: a float16 scale, then 16 bytes; byte j has elements j (low nibble) and j + 16."""

Q8_0_BYTES = 2 + GROUP
"""Bytes of a group in Q8_0: a float16 scale, then 32 levels."""

_ALIGNMENT = 64  # XLA takes host memory without a copy only where it is aligned so
_BLOCK_ELEMENTS = 1 << 21


def pack(levels: Array) -> Array:
    """int8 levels [out, in] in -8..7 to int32 words [out, in/8]; nibble i of word j is 8 + level 8j + i."""
    if levels.ndim != 2 or levels.shape[1] % 8:
        raise ValueError(f"levels have shape {levels.shape}: they must be [out, in] with in a multiple of 8")
    biased = (levels + 8).astype(np.uint8)
    octets = biased[:, 0::2] | (biased[:, 1::2] << 4)
    return np.ascontiguousarray(octets).view("<i4")


def unpack(packed: Array) -> Array:
    """int32 words [out, in/8] to int8 levels [out, in]; the inverse of `pack`."""
    octets = np.ascontiguousarray(packed, dtype="<i4").view(np.uint8)
    levels = np.empty((octets.shape[0], octets.shape[1] * 2), dtype=np.int8)
    levels[:, 0::2] = (octets & 15).astype(np.int8) - 8
    levels[:, 1::2] = (octets >> 4).astype(np.int8) - 8
    return levels


def quantize_int4(weight: Array) -> tuple[Array, Array]:
    """Round a float weight [out, in] to int4.

    The scale of a group is its greatest magnitude over 7.5 (half of the 15 steps between -8 and 7), rounded
    by `shared_scale`, so that bfloat16 and float16 both hold it and every format can carry the same values;
    levels are rounded to nearest against the scale as stored and clipped.

    Returns:
        packed: [out, in/8] int32, as `pack` writes it.
        scale: [out, in/32] bfloat16; the weight is level * scale.

    Raises:
        ValueError: `in` is not a multiple of 32, or a value is not finite or too large for a float16 scale.
    """
    _check_groups(weight)
    rows, columns = weight.shape
    packed = np.empty((rows, columns // 8), dtype=np.int32)
    scale = np.empty((rows, columns // GROUP), dtype=BFLOAT16)
    for block in row_blocks(rows, columns):
        groups = weight[block].astype(np.float32).reshape(-1, columns // GROUP, GROUP)
        peak = np.abs(groups).max(axis=2)
        if not np.isfinite(peak).all():
            raise ValueError("a value is not finite")
        scale[block] = shared_scale(peak / np.float32(7.5))
        step = scale[block].astype(np.float32)[:, :, None]
        # A group of zeros, or one too small for the scale, has scale 0: any step gives it level 0.
        levels = np.rint(groups / np.where(step == 0, np.float32(np.inf), step)).clip(*LEVELS)
        packed[block] = pack(levels.astype(np.int8).reshape(-1, columns))
    return packed, scale


def _check_groups(weight: Array) -> None:
    if weight.ndim != 2 or weight.shape[1] % GROUP:
        raise ValueError(
            f"a weight of shape {weight.shape} cannot have groups of {GROUP} along its last axis"
        )


def shared_scale(scale: Array) -> Array:
    """float32 scales rounded to bfloat16, and below 2^-17 to the multiple of 2^-24 that float16 has there.

    What comes out is a bfloat16 that float16 holds exactly. Raises ValueError above float16's 65504.
    """
    coarse = scale.astype(BFLOAT16).astype(np.float32)
    if (np.abs(coarse) > np.finfo(np.float16).max).any():
        raise ValueError("a value is too large: scales in float16 end at 65504")
    # A bfloat16 has 8 significant bits: float16 has 10 and more at and above 2^-17, and fewer only below.
    return coarse.astype(np.float16).astype(BFLOAT16)


def dequantize_int4(packed: Array, scale: Array, dtype: Any = np.float32) -> Array:
    """The weight [out, in] = level * scale: in float32 exact, since 4 + 8 (or 11) bits fit in its 24; in
    another dtype rounded once, some rows at a time.
    """
    return _scaled(packed, unpack, scale, dtype)


def quantize_int8(weight: Array) -> tuple[Array, Array]:
    """Round a float weight [out, in] to int8 as GGUF's Q8_0: the scale is the greatest magnitude of a group
    over 127, and rounds to float16 only after values have been divided by it; halves go away from zero.

    Returns:
        levels: [out, in] int8.
        scale: [out, in/32] float16; the weight is level * scale.

    Raises:
        ValueError: `in` is not a multiple of 32, or a value is not finite or too large for a float16 scale.
    """
    _check_groups(weight)
    rows, columns = weight.shape
    levels = aligned_empty((rows, columns), np.dtype(np.int8))
    scale = aligned_empty((rows, columns // GROUP), np.dtype(np.float16))
    for block in row_blocks(rows, columns):
        groups = weight[block].astype(np.float32).reshape(-1, columns // GROUP, GROUP)
        step = np.abs(groups).max(axis=2) / np.float32(127)
        with np.errstate(over="ignore"):
            scale[block] = step
        if not np.isfinite(scale[block]).all():
            raise ValueError("a value is not finite, or too large: scales in float16 end at 65504")
        inverse = np.divide(np.float32(1), step, out=np.zeros_like(step), where=step != 0)
        groups *= inverse[:, :, None]
        whole = np.trunc(groups)
        whole += np.trunc((groups - whole) * 2)  # exact, unlike adding a half
        levels[block] = whole.reshape(-1, columns)
    return levels, scale


def dequantize_int8(levels: Array, scale: Array, dtype: Any = np.float32) -> Array:
    """The weight [out, in] = level * scale: in float32 exact, in another dtype rounded once."""
    return _scaled(levels, np.asarray, scale, dtype)


def _scaled(stored: Array, levels_of: Callable[[Array], Array], scale: Array, dtype: Any) -> Array:
    rows, columns = scale.shape[0], scale.shape[1] * GROUP
    weight = aligned_empty((rows, columns), np.dtype(dtype))
    for block in row_blocks(rows, columns):
        groups = levels_of(stored[block]).reshape(-1, scale.shape[1], GROUP).astype(np.float32)
        weight[block] = (groups * scale[block].astype(np.float32)[:, :, None]).reshape(-1, columns)
    return weight


def to_q8_0(levels: Array, scale: Array) -> Array:
    """Levels [out, in] with float16 scales [out, in/32] as Q8_0 blocks [out, in/32 * 34] of bytes."""
    rows, groups = scale.shape
    blocks = np.empty((rows, groups, Q8_0_BYTES), dtype=np.uint8)
    blocks[:, :, :2] = np.ascontiguousarray(scale, dtype="<f2")[:, :, None].view(np.uint8)
    blocks[:, :, 2:] = levels.view(np.uint8).reshape(rows, groups, GROUP)
    return blocks.reshape(rows, groups * Q8_0_BYTES)


def to_q4_0(packed: Array, scale: Array) -> Array:
    """Packed words [out, in/8] with float16 scales [out, in/32] as Q4_0 blocks [out, in/32 * 18] of bytes."""
    rows, groups = scale.shape
    octets = np.ascontiguousarray(packed, dtype="<i4").view(np.uint8).reshape(rows, groups, GROUP // 2)
    even, odd = octets & 15, octets >> 4  # elements 0, 2, ... 30 and 1, 3, ... 31
    blocks = np.empty((rows, groups, Q4_0_BYTES), dtype=np.uint8)
    blocks[:, :, :2] = np.ascontiguousarray(scale, dtype="<f2")[:, :, None].view(np.uint8)
    blocks[:, :, 2::2] = even[:, :, :8] | (even[:, :, 8:] << 4)
    blocks[:, :, 3::2] = odd[:, :, :8] | (odd[:, :, 8:] << 4)
    return blocks.reshape(rows, groups * Q4_0_BYTES)


def aligned_empty(shape: tuple[int, ...], dtype: np.dtype[Any]) -> Array:
    """An array that a device on the host can take over without a copy."""
    size = math.prod(shape) * dtype.itemsize
    memory = np.empty(size + _ALIGNMENT, np.uint8)
    start = -memory.ctypes.data % _ALIGNMENT
    return memory[start : start + size].view(dtype).reshape(shape)


def row_blocks(rows: int, columns: int) -> Iterator[slice]:
    """Slices of rows with about two million elements each: a table is never held in float32 as a whole."""
    step = max(1, _BLOCK_ELEMENTS // columns)
    for start in range(0, rows, step):
        yield slice(start, min(start + step, rows))
