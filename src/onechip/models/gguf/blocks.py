"""Raw blocks of a GGUF tensor in; int4 words with a scale a group, or dense values, out.

Q4_0 keeps its 4-bit values: the nibbles only change places. Everything else that the `gguf` package can
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

from onechip.kernels.api import GROUP

Array = NDArray[Any]

PLAIN: dict[str, np.dtype[Any]] = {
    "F32": np.dtype("<f4"),
    "F16": np.dtype("<f2"),
    "BF16": np.dtype(ml_dtypes.bfloat16),
}
"""Types that stand in the file as values, which are read in place."""

_Q4_0_BYTES = 2 + GROUP // 2
_TASK_ELEMENTS = (
    1 << 20
)  # of a thread at a time: 4 MiB in float32, and as much again for gguf's intermediates
_ALIGNMENT = 64  # XLA takes host memory without a copy only where it is aligned so


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
    rows, groups = blocks.shape[0], blocks.shape[1] // _Q4_0_BYTES
    packed = aligned_empty((rows, groups * GROUP // 8), np.dtype("<i4"))
    scale = aligned_empty((rows, groups), np.dtype("<f2"))

    def convert(part: slice) -> None:
        source = blocks[part].reshape(-1, groups, _Q4_0_BYTES)
        scale[part] = np.ascontiguousarray(source[:, :, :2]).view("<f2")[:, :, 0]
        octets = np.ascontiguousarray(source[:, :, 2:]).view("<u8")
        words = packed[part].view("<u4").reshape(-1, groups, 4)
        words[:, :, :2] = _low_nibbles(octets)
        words[:, :, 2:] = _low_nibbles(octets >> np.uint64(4))

    _over_rows(convert, rows, groups * GROUP)
    return packed, scale


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
        return quants.dequantize(blocks, kind)


def _low_nibbles(octets: Array) -> Array:
    """The low halves of 8 bytes (uint64), first byte lowest, as a uint32."""
    pairs = octets & np.uint64(0x0F0F0F0F0F0F0F0F)
    pairs = (pairs | (pairs >> np.uint64(4))) & np.uint64(0x00FF00FF00FF00FF)
    pairs = (pairs | (pairs >> np.uint64(8))) & np.uint64(0x0000FFFF0000FFFF)
    return (pairs | (pairs >> np.uint64(16))).astype(np.uint32)


def _over_rows(convert: Any, rows: int, columns: int) -> None:
    """Call `convert` on slices that cover the rows, on all cores: NumPy lets go of Python's lock."""
    step = max(1, _TASK_ELEMENTS // columns)
    parts = [slice(start, min(start + step, rows)) for start in range(0, rows, step)]
    if len(parts) == 1:
        convert(parts[0])
        return
    with ThreadPoolExecutor(os.cpu_count() or 1) as pool:
        list(pool.map(convert, parts))


def aligned_empty(shape: tuple[int, ...], dtype: np.dtype[Any]) -> Array:
    """An array that a device on the host can take over without a copy."""
    size = int(np.prod(shape)) * dtype.itemsize
    memory = np.empty(size + _ALIGNMENT, np.uint8)
    start = -memory.ctypes.data % _ALIGNMENT
    return memory[start : start + size].view(dtype).reshape(shape)
