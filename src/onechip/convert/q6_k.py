"""Float rows in, Q6_K blocks out: 256 weights in 210 bytes, 16 of them to a scale.

A weight is d * scale * (level - 32): d is float16 for 256, scale int8 for 16, level 0 to 63. The layout is
ggml's block_q6_K (ggml-common.h): 128 bytes of low nibbles, 64 of high pairs of bits, 16 scales, d.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]

BLOCK = 256
_GROUP = 16
_BYTES = 210
_LEVELS = (-32, 31)
_SCALES = (-128, 127)


def quantize(weight: Array) -> Array:
    """float32 rows [n, columns] as bytes [n, columns / 256 * 210]; columns is a multiple of 256.

    The value of greatest magnitude in 16 takes level -32; then the scale is fitted to all 16 by least
    squares, and rounded to a multiple of the block's d, whose greatest scale takes -128.
    """
    rows = weight.shape[0]
    groups = np.ascontiguousarray(weight, dtype=np.float32).reshape(-1, BLOCK // _GROUP, _GROUP)
    peak = np.take_along_axis(groups, np.abs(groups).argmax(axis=2)[:, :, None], axis=2)
    fitted = _fit(groups, peak / np.float32(_LEVELS[0]))
    top = np.take_along_axis(fitted, np.abs(fitted).argmax(axis=1)[:, None], axis=1)
    unit = (top / np.float32(_SCALES[0])).astype(np.float16)
    scales = np.rint(_divided(fitted, unit.astype(np.float32))).clip(*_SCALES)
    steps = (scales * unit.astype(np.float32))[:, :, None]
    levels = np.rint(_divided(groups, steps)).clip(*_LEVELS)
    return _laid_out(levels, scales, unit).reshape(rows, -1)


def _fit(groups: Array, scale: Array) -> Array:
    """The scales [blocks, 16] that fit the levels to which `scale` rounds best; 0 for zeros."""
    levels = np.rint(_divided(groups, scale)).clip(*_LEVELS)
    return _divided((groups * levels).sum(axis=2), (levels * levels).sum(axis=2))


def _divided(values: Array, by: Array) -> Array:
    """values / by, 0 where that is a division by 0."""
    return np.divide(values, by, out=np.zeros_like(values), where=by != 0)


def _laid_out(levels: Array, scales: Array, unit: Array) -> Array:
    """[blocks, 210] bytes. Of each half, 128 weights, weight 32k + j has its low bits in byte j or j + 32."""
    count = len(levels)
    quarters = (levels + 32).astype(np.uint8).reshape(count, 2, 4, 32)
    low, high = quarters & 15, quarters >> 4
    blocks = np.empty((count, _BYTES), dtype=np.uint8)
    blocks[:, :128] = (low[:, :, :2] | (low[:, :, 2:] << 4)).reshape(count, 128)
    pairs = high[:, :, 0] | (high[:, :, 1] << 2) | (high[:, :, 2] << 4) | (high[:, :, 3] << 6)
    blocks[:, 128:192] = pairs.reshape(count, 64)
    blocks[:, 192:208] = scales.astype(np.int8).view(np.uint8)
    blocks[:, 208:] = unit.view(np.uint8)
    return blocks
