"""Weights as checkpoints store them in, panels for the kernels out, and back; native/layout.h draws a panel.

All cores pack together, about as fast as memory is read, so panels are made anew at each start and not kept
on the disk.
"""

from __future__ import annotations

import ctypes
from typing import Any, Literal

import ml_dtypes
import numpy as np
from numpy.typing import NDArray

from onechip.kernels.api import GROUP, Int4, Panels
from onechip.kernels.cpu import library
from onechip.kernels.cpu.arena import Arena

Array = NDArray[Any]
Kind = Literal["bf16", "int8", "int4"]

LANES = 16
BLOCK = 64
BLOCK_BYTES: dict[Kind, int] = {"bf16": 2048, "int8": 1088, "int4": 576}
"""As native/layout.h has them: outputs of a panel, inputs of a block, and its bytes."""

BFLOAT16 = np.dtype(ml_dtypes.bfloat16)
FLOAT16 = np.dtype(np.float16)

_ARENA = Arena()


def pack(
    leaf: Int4 | Array,
    *,
    kind: Literal["int8"] | None = None,
    exact: bool = False,
    paired: bool = False,
    arena: Arena | None = None,
) -> Panels:
    """A weight [out, in] as panels, of any size.

    Args:
        leaf: Int4, whose values and scales keep their bits; or bfloat16, which keeps its bits too.
        kind: "int8" rounds a bfloat16 or float32 weight as GGUF's Q8_0 does: groups of 32, float16 scales.
        exact, paired: see Panels.
        arena: where the panels go; all that have none share one.

    Raises:
        ValueError: the weight has another dtype or shape, or for int8 a value is not finite or too large.
        library.LibraryError: the kernels are not there.
    """
    outputs, inputs = leaf.shape
    rows = panel_rows(outputs, paired)
    form: Kind = "int4" if isinstance(leaf, Int4) else kind or "bf16"
    data = (arena or _ARENA).take((len(rows), _panel_bytes(form, inputs)))
    scale: Literal["bf16", "half"] = "half"
    if isinstance(leaf, Int4):
        scale = _pack_int4(leaf, rows, data)
    elif kind == "int8":
        _pack_int8(leaf, rows, data)
    else:
        _pack_bf16(leaf, rows, data)
    return Panels(data, form, scale, (outputs, inputs), exact, paired)


def packed_bytes(kind: Kind, outputs: int, inputs: int, *, paired: bool = False) -> int:
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


def _panel_bytes(kind: Kind, inputs: int) -> int:
    return -(-inputs // BLOCK) * BLOCK_BYTES[kind]


def _pack_bf16(weight: Array, rows: NDArray[np.int64], data: Array) -> None:
    if weight.dtype != BFLOAT16:
        raise ValueError(f"a dense weight is {weight.dtype}: bfloat16 is packed as it is")
    weight = _whole_rows(weight)
    pointers = _pointers(weight, rows)
    library.load().onechip_pack_bf16(_address(pointers), *_sizes(rows, weight), _address(data))


def _pack_int8(weight: Array, rows: NDArray[np.int64], data: Array) -> None:
    if weight.dtype not in (BFLOAT16, np.dtype(np.float32)):
        raise ValueError(f"a dense weight is {weight.dtype}: bfloat16 and float32 are rounded to int8")
    weight = _whole_rows(weight)
    pointers = _pointers(weight, rows)
    bf16 = ctypes.c_int(weight.dtype == BFLOAT16)
    fine = library.load().onechip_pack_int8(_address(pointers), bf16, *_sizes(rows, weight), _address(data))
    if not fine:
        raise ValueError(
            "a value is not finite, or too large: scales of int8 are float16, which ends at 65504"
        )


def _pack_int4(leaf: Int4, rows: NDArray[np.int64], data: Array) -> Literal["bf16", "half"]:
    """Returns the dtype of the scales."""
    outputs, inputs = leaf.shape
    words, scale = _whole_rows(leaf.packed), _whole_rows(leaf.scale)
    if words.dtype != np.int32 or scale.dtype not in (BFLOAT16, FLOAT16):
        raise ValueError(
            f"int4 words are {words.dtype}, scales {scale.dtype}: int32, and bfloat16 or float16, are packed"
        )
    if inputs % GROUP or scale.shape != (outputs, inputs // GROUP):
        raise ValueError(f"int4 {leaf.shape} has scales {scale.shape}: one for {GROUP} inputs is needed")
    pointers, scales = _pointers(words, rows), _pointers(scale, rows)
    sizes = ctypes.c_size_t(len(rows)), ctypes.c_size_t(inputs)
    library.load().onechip_pack_int4(_address(pointers), _address(scales), *sizes, _address(data))
    return "bf16" if scale.dtype == BFLOAT16 else "half"


def _whole_rows(weight: Array) -> Array:
    """The array, its rows each in one piece."""
    weight = np.asarray(weight)
    return weight if weight.strides[1] == weight.itemsize else np.ascontiguousarray(weight)


def _pointers(weight: Array, rows: NDArray[np.int64]) -> NDArray[np.uintp]:
    """The address of each row, 0 for none; good as long as the array lives."""
    return np.where(rows < 0, 0, weight.ctypes.data + rows * weight.strides[0]).astype(np.uintp)


def _sizes(rows: NDArray[np.int64], weight: Array) -> tuple[ctypes.c_size_t, ctypes.c_size_t]:
    """Panels and columns."""
    return ctypes.c_size_t(len(rows)), ctypes.c_size_t(weight.shape[1])


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
