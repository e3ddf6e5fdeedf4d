"""Raw blocks of a GGUF tensor in; int4 words or int8 levels with a scale a group, or dense values, out.

Q4_0 and Q8_0 keep their values, which only change places. Everything else that the `gguf` package can
dequantise becomes dense, some rows at a time and on all cores, so that a table is never whole in float32.
"""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import ml_dtypes
import numpy as np
from gguf import quants
from gguf.constants import GGMLQuantizationType
from numpy.typing import NDArray

from onechip.kernels.api import GROUP, Kind
from onechip.models.quant import Q4_0_BYTES, Q8_0_BYTES, aligned_empty

Array = NDArray[Any]

PLAIN: dict[str, np.dtype[Any]] = {
    "F32": np.dtype("<f4"),
    "F16": np.dtype("<f2"),
    "BF16": np.dtype(ml_dtypes.bfloat16),
}
"""Types that stand in the file as values, which are read in place."""

KINDS: dict[str, Kind] = {"Q4_0": "int4", "Q8_0": "int8"}
"""Types whose values stay as they are quantised, and what they become."""

_Q6_K_BYTES = 210
_TASK_ELEMENTS = (
    1 << 20
)  # of a thread at a time: 4 MiB in float32, and as much again for gguf's intermediates


def readable(dtype: str) -> bool:
    """Whether tensors of this type can be read: the plain ones, and those that gguf.quants has code for."""
    return dtype in PLAIN or GGMLQuantizationType[dtype] in _dequantisable()


def readable_types() -> str:
    """The names of all types that can be read, for a person."""
    return ", ".join([*PLAIN, *sorted(kind.name for kind in _dequantisable() if kind.name not in PLAIN)])


def _dequantisable() -> set[GGMLQuantizationType]:
    return set(quants._type_traits)  # the package has no public list of them


def plain(blocks: Array, dtype: str) -> Array:
    """The values of a tensor of a plain type, [rows, columns], a view of its bytes."""
    return blocks.view(PLAIN[dtype])


def int4(blocks: Array) -> tuple[Array, Array]:
    """Q4_0 rows [out, bytes] as int4 words [out, in/8] int32 and scales [out, in/32] float16; exact.

    A block is a float16 scale and 16 bytes; byte j has value j in its low half and value j + 16 in its high
    one, both plus 8. Ours are in the order of the columns, also plus 8 (see `quant.pack`).
    """
    rows, groups = blocks.shape[0], blocks.shape[1] // Q4_0_BYTES
    packed = aligned_empty((rows, groups * GROUP // 8), np.dtype("<i4"))
    scale = aligned_empty((rows, groups), np.dtype("<f2"))

    def convert(part: slice) -> None:
        source = np.ascontiguousarray(blocks[part]).view("<u2").reshape(-1, groups, Q4_0_BYTES // 2)
        scale[part] = np.ascontiguousarray(source[:, :, 0]).view("<f2")
        pairs = np.ascontiguousarray(source[:, :, 1:])  # of bytes: columns j and j + 1, and 16 further on
        octets = packed[part].view(np.uint8).reshape(-1, groups, GROUP // 2)
        octets[:, :, : GROUP // 4] = _low_nibbles(pairs)
        octets[:, :, GROUP // 4 :] = _low_nibbles(pairs >> np.uint16(4))

    _over_rows(convert, rows, groups * GROUP)
    return packed, scale


def int8(blocks: Array) -> tuple[Array, Array]:
    """Q8_0 rows [out, bytes] as levels [out, in] int8 and scales [out, in/32] float16; exact.

    A block is a float16 scale and 32 levels.
    """
    rows, groups = blocks.shape[0], blocks.shape[1] // Q8_0_BYTES
    levels = aligned_empty((rows, groups * GROUP), np.dtype(np.int8))
    scale = aligned_empty((rows, groups), np.dtype("<f2"))

    def convert(part: slice) -> None:
        source = np.ascontiguousarray(blocks[part]).view("<u2").reshape(-1, groups, Q8_0_BYTES // 2)
        scale[part] = np.ascontiguousarray(source[:, :, 0]).view("<f2")
        levels[part].view("<u2").reshape(-1, groups, GROUP // 2)[:] = source[:, :, 1:]

    _over_rows(convert, rows, groups * GROUP)
    return levels, scale


def dense(blocks: Array, dtype: str, to: np.dtype[Any]) -> Array:
    """The values of quantised rows [out, bytes]: [out, in], as gguf.quants has them, rounded to `to`."""
    kind = GGMLQuantizationType[dtype]
    first = _dequantize(blocks[:1], kind)
    values = aligned_empty((blocks.shape[0], first.shape[1]), to)

    def convert(part: slice) -> None:
        values[part] = _dequantize(blocks[part], kind)

    _over_rows(convert, *values.shape)
    return values


def _dequantize(blocks: Array, kind: GGMLQuantizationType) -> Array:
    # A scale that is not finite shows in the logits, which are checked before the engine is ready.
    with np.errstate(all="ignore"):
        if kind is GGMLQuantizationType.Q6_K:
            return _q6_k(np.ascontiguousarray(blocks))
        return quants.dequantize(blocks, kind)


def _q6_k(blocks: Array) -> Array:
    """As gguf.quants.dequantize, in half of its time: Google's files have their tables, and so most of their
    bytes, in this type.

    A block has 256 values in two halves of 4 runs of 32: low 4 bits (128 bytes), high 2 bits (64 bytes), a
    scale of 8 bits for each 16 values, and a float16 scale. Eight values at a time are bytes of a uint64.
    """
    flat = blocks.reshape(-1, _Q6_K_BYTES)
    low = np.ascontiguousarray(flat[:, :128]).view("<u8").reshape(-1, 2, 2, 4)
    high = np.ascontiguousarray(flat[:, 128:192]).view("<u8").reshape(-1, 2, 4)
    runs = np.empty((len(flat), 2, 4, 4), np.uint64)
    for run in range(4):
        nibbles = (low[:, :, run % 2] >> np.uint64(4 * (run // 2))) & np.uint64(0x0F0F0F0F0F0F0F0F)
        bits = high << np.uint64(4 - 2 * run) if run < 2 else high >> np.uint64(2 * run - 4)
        runs[:, :, run] = nibbles | (bits & np.uint64(0x3030303030303030))
    levels = runs.view(np.int8).reshape(-1, 16, 16)
    levels -= 32
    values = levels.astype(np.float32)
    scale = np.ascontiguousarray(flat[:, 208:]).view("<f2").astype(np.float32)
    values *= (scale * flat[:, 192:208].view(np.int8).astype(np.float32))[:, :, None]
    return values.reshape(len(blocks), -1)


def _low_nibbles(pairs: Array) -> Array:
    """Of two bytes each (uint16) the low halves as one byte, the first byte's lowest."""
    nibbles = pairs & np.uint16(0x0F0F)
    nibbles |= nibbles >> np.uint16(4)
    return nibbles.astype(np.uint8)


def _over_rows(convert: Any, rows: int, columns: int) -> None:
    """Call `convert` on slices that cover the rows, on all cores: NumPy lets go of Python's lock."""
    step = max(1, _TASK_ELEMENTS // columns)
    parts = [slice(start, min(start + step, rows)) for start in range(0, rows, step)]
    if len(parts) == 1:
        convert(parts[0])
        return
    with ThreadPoolExecutor(os.cpu_count() or 1) as pool:
        list(pool.map(convert, parts))
