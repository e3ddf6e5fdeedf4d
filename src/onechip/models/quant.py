"""int4 weights on the host, in NumPy: float rows to packed words with a scale per group, and back.

The layout is compressed-tensors' "pack-quantized" (W4A16, symmetric, groups of 32 along the input).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import ml_dtypes
import numpy as np
from numpy.typing import NDArray

from onechip.kernels.api import GROUP

Array = NDArray[Any]

BFLOAT16 = np.dtype(ml_dtypes.bfloat16)
LEVELS = (-8, 7)
"""The least and the greatest int4 level."""

_BLOCK_ELEMENTS = 1 << 21  # 8 MiB of float32 at a time, so that a table is never held in float32 as a whole


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

    The scale of a group is its greatest magnitude over 7.5 (half of the 15 steps between -8 and 7), stored
    in bfloat16; levels are rounded to nearest against the scale as stored and clipped.

    Returns:
        packed: [out, in/8] int32, as `pack` writes it.
        scale: [out, in/32] bfloat16; the weight is level * scale.

    Raises:
        ValueError: `in` is not a multiple of 32, or a value is not finite.
    """
    if weight.ndim != 2 or weight.shape[1] % GROUP:
        raise ValueError(
            f"a weight of shape {weight.shape} cannot have groups of {GROUP} along its last axis"
        )
    rows, columns = weight.shape
    packed = np.empty((rows, columns // 8), dtype=np.int32)
    scale = np.empty((rows, columns // GROUP), dtype=BFLOAT16)
    for block in _row_blocks(rows, columns):
        groups = weight[block].astype(np.float32).reshape(-1, columns // GROUP, GROUP)
        peak = np.abs(groups).max(axis=2)
        if not np.isfinite(peak).all():
            raise ValueError("a value is not finite")
        scale[block] = (peak / np.float32(7.5)).astype(BFLOAT16)
        step = scale[block].astype(np.float32)[:, :, None]
        # A group of zeros, or one too small for bfloat16, has scale 0: any step gives it level 0.
        levels = np.rint(groups / np.where(step == 0, np.float32(np.inf), step)).clip(*LEVELS)
        packed[block] = pack(levels.astype(np.int8).reshape(-1, columns))
    return packed, scale


def dequantize_int4(packed: Array, scale: Array) -> Array:
    """float32 weight [out, in] = level * scale; exact, since 4 + 8 (or 11) bits fit in float32's 24."""
    groups = unpack(packed).reshape(*scale.shape, GROUP).astype(np.float32)
    return (groups * scale.astype(np.float32)[:, :, None]).reshape(scale.shape[0], -1)


def _row_blocks(rows: int, columns: int) -> Iterator[slice]:
    step = max(1, _BLOCK_ELEMENTS // columns)
    for start in range(0, rows, step):
        yield slice(start, min(start + step, rows))
