"""Panels hold the bits that were packed, in the places that native/layout.h gives them; arenas hold them."""

from __future__ import annotations

import gc
import mmap
import weakref
from typing import Any

import gguf
import jax
import ml_dtypes
import numpy as np
import pytest
from numpy.typing import NDArray

from onechip.kernels import xla
from onechip.kernels.api import GROUP, Int4, Int8, Panels
from onechip.kernels.cpu import library, weights
from onechip.kernels.cpu.arena import Arena
from onechip.models.quant import dequantize_int4, quantize_int4, quantize_int8, unpack

BFLOAT16 = np.dtype(ml_dtypes.bfloat16)
SIZES = [(1, 32), (16, 64), (17, 96), (40, 160), (64, 2048), (96, 1568)]

pytestmark = pytest.mark.skipif(library.available() is not None, reason="the kernels cannot be used here")


def dense(outputs: int, inputs: int) -> NDArray[np.float32]:
    return np.random.default_rng(outputs + inputs).standard_normal((outputs, inputs)).astype(np.float32)


def int4(outputs: int, inputs: int, scale_dtype: np.dtype) -> Int4:
    packed, scale = quantize_int4(dense(outputs, inputs))
    return Int4(packed, scale.astype(scale_dtype))


def place(panels: Panels, output: int) -> tuple[int, int]:
    """Panel and lane of an output, as Panels describes `paired`."""
    if not panels.paired:
        return divmod(output, 16)
    half, within = divmod(output, panels.shape[0] // 2)
    return within // 16 * 2 + half, within % 16


def block(panels: Panels, output: int, column: int) -> tuple[bytes, int]:
    """The block that holds a weight, and its lane."""
    panel, lane = place(panels, output)
    nbytes = weights.BLOCK_BYTES[panels.kind]
    first = column // 64 * nbytes
    return bytes(panels.data[panel, first : first + nbytes]), lane


def scale_at(memory: bytes, lane: int, column: int) -> bytes:
    at = len(memory) - 64 + (column % 64 // 32 * 16 + lane) * 2
    return memory[at : at + 2]


def level_at(memory: bytes, lane: int, column: int) -> int:
    """Level of an int4 weight, by the drawing in layout.h."""
    group, within = divmod(column % 64, 32)
    high, line = divmod(within, 16)
    octet = memory[group * 256 + line // 4 * 64 + 4 * lane + line % 4]
    return (octet >> 4 if high else octet & 15) - 8


@pytest.mark.parametrize("scale_dtype", [BFLOAT16, np.dtype(np.float16)])
@pytest.mark.parametrize(("outputs", "inputs"), SIZES)
def test_int4_keeps_its_bits_where_the_layout_says(outputs: int, inputs: int, scale_dtype: np.dtype) -> None:
    leaf = int4(outputs, inputs, scale_dtype)
    panels = weights.pack(leaf)
    assert panels.kind == "int4"
    assert panels.scale == ("bf16" if scale_dtype == BFLOAT16 else "half")
    assert panels.data.nbytes == weights.packed_bytes("int4", outputs, inputs)
    levels = unpack(leaf.packed)
    rng = np.random.default_rng(0)
    for output, column in zip(rng.integers(outputs, size=300), rng.integers(inputs, size=300), strict=True):
        memory, lane = block(panels, output, column)
        assert level_at(memory, lane, column) == levels[output, column]
        assert scale_at(memory, lane, column) == leaf.scale[output, column // GROUP].tobytes()
    np.testing.assert_array_equal(weights.unpack(panels), dequantize_int4(leaf.packed, leaf.scale))


@pytest.mark.parametrize(("outputs", "inputs"), [*SIZES, (5, 7)])
def test_bf16_keeps_its_bits_where_the_layout_says(outputs: int, inputs: int) -> None:
    weight = dense(outputs, inputs).astype(BFLOAT16)
    panels = weights.pack(weight)
    assert panels.kind == "bf16"
    assert panels.data.nbytes == weights.packed_bytes("bf16", outputs, inputs)
    rng = np.random.default_rng(0)
    for output, column in zip(rng.integers(outputs, size=300), rng.integers(inputs, size=300), strict=True):
        memory, lane = block(panels, output, column)
        pair, which = divmod(column % 64, 2)
        at = pair * 64 + lane * 4 + which * 2
        assert memory[at : at + 2] == weight[output, column].tobytes()
    np.testing.assert_array_equal(weights.unpack(panels), weight.astype(np.float32))


@pytest.mark.parametrize("dtype", [BFLOAT16, np.dtype(np.float32)])
@pytest.mark.parametrize(("outputs", "inputs"), SIZES)
def test_int8_is_q8_0(outputs: int, inputs: int, dtype: np.dtype) -> None:
    weight = (dense(outputs, inputs) * np.float32(0.02)).astype(dtype)
    weight[0, :32] = 0
    panels = weights.pack(Int8(*quantize_int8(weight)))
    assert (panels.kind, panels.scale) == ("int8", "half")
    assert panels.data.nbytes == weights.packed_bytes("int8", outputs, inputs)
    q8_0 = gguf.GGMLQuantizationType.Q8_0
    stored = gguf.quants.quantize(weight.astype(np.float32), q8_0)
    np.testing.assert_array_equal(weights.unpack(panels), gguf.quants.dequantize(stored, q8_0))
    blocks = stored.reshape(outputs, -1, 34)
    for column in range(inputs):
        memory, lane = block(panels, outputs - 1, column)
        expected = blocks[outputs - 1, column // 32]
        assert scale_at(memory, lane, column) == expected[:2].tobytes()
        assert memory[column % 64 // 4 * 64 + lane * 4 + column % 4] == expected[2 + column % 32]


@pytest.mark.parametrize("half", [16, 17, 40])
def test_paired_halves_take_turns(half: int) -> None:
    leaf = int4(2 * half, 96, BFLOAT16)
    panels = weights.pack(leaf, paired=True, exact=True)
    assert (panels.paired, panels.exact, panels.shape) == (True, True, (2 * half, 96))
    assert panels.data.nbytes == weights.packed_bytes("int4", 2 * half, 96, paired=True)
    levels = unpack(leaf.packed)
    for output in range(2 * half):
        memory, lane = block(panels, output, 70)
        assert level_at(memory, lane, 70) == levels[output, 70]
    np.testing.assert_array_equal(weights.unpack(panels), dequantize_int4(leaf.packed, leaf.scale))


def test_padding_is_zeros() -> None:
    """Outputs and inputs that fill up the last panel and block add nothing to a sum, in any kind."""
    weight = np.ones((3, 32), BFLOAT16)
    for lines, panels in (32, weights.pack(weight)), (16, weights.pack(Int8(*quantize_int8(weight)))):
        lanes = panels.data[0, : lines * 64].reshape(lines, 16, -1)
        assert lanes[: lines // 2, :3].any(axis=-1).all()
        assert not lanes[:, 3:].any()
        assert not lanes[lines // 2 :].any()
    memory, _ = block(weights.pack(int4(3, 32, BFLOAT16)), 0, 0)
    assert {level_at(memory, lane, column) for lane in range(3, 16) for column in range(64)} == {0}
    assert {level_at(memory, lane, column) for lane in range(3) for column in range(32, 64)} == {0}
    assert not any(any(scale_at(memory, lane, column)) for lane in range(3, 16) for column in (0, 32))
    assert not any(any(scale_at(memory, lane, 32)) for lane in range(3))


@pytest.mark.parametrize("paired", [False, True])
@pytest.mark.parametrize("kind", ["bf16", "int8", "int4"])
def test_parts_are_packed_as_one(kind: str, paired: bool) -> None:
    """As q, k and v are, or gate and up; here they end in the midst of a panel."""
    parts = [dense(outputs, 96) for outputs in (21, 8, 21)]
    leaves: list[Any] = {
        "bf16": lambda: [part.astype(BFLOAT16) for part in parts],
        "int8": lambda: [Int8(*quantize_int8(part)) for part in parts],
        "int4": lambda: [Int4(*quantize_int4(part)) for part in parts],
    }[kind]()
    together = weights.pack(*leaves, paired=paired)
    whole = weights.pack(xla.stack(leaves), paired=paired)
    assert (together.kind, together.shape, together.scale) == (whole.kind, (50, 96), whole.scale)
    np.testing.assert_array_equal(together.data, whole.data)


def test_rows_of_another_array_are_packed_where_they_are() -> None:
    weight = dense(64, 128).astype(BFLOAT16)
    np.testing.assert_array_equal(weights.unpack(weights.pack(weight[::2])), weight[::2].astype(np.float32))
    np.testing.assert_array_equal(weights.unpack(weights.pack(weight.T)), weight.T.astype(np.float32))


def test_what_cannot_be_packed_is_refused() -> None:
    good = int4(4, 64, BFLOAT16)
    with pytest.raises(ValueError, match=r"float32: bfloat16"):
        weights.pack(dense(4, 64))
    with pytest.raises(ValueError, match=r"int8 levels are int16"):
        weights.pack(Int8(np.zeros((4, 64), np.int16), good.scale))
    with pytest.raises(ValueError, match=r"scales are float32"):
        weights.pack(Int4(good.packed, good.scale.astype(np.float32)))
    with pytest.raises(ValueError, match=r"scales \(4, 1\)"):
        weights.pack(Int4(good.packed, good.scale[:, :1]))
    with pytest.raises(ValueError, match="5 outputs cannot be paired"):
        weights.pack(np.zeros((5, 64), BFLOAT16), paired=True)
    with pytest.raises(ValueError, match="64 and 32 inputs"):
        weights.pack(good, int4(4, 32, BFLOAT16))
    with pytest.raises(ValueError, match="bf16 and int4"):
        weights.pack(good, np.zeros((4, 64), BFLOAT16))
    with pytest.raises(ValueError, match="two dtypes"):
        weights.pack(good, int4(4, 64, np.dtype(np.float16)))


def test_jax_takes_panels_over_without_a_copy() -> None:
    panels = jax.tree.map(jax.device_put, weights.pack(int4(48, 256, BFLOAT16)))
    host = weights.pack(int4(48, 256, BFLOAT16))
    device = jax.tree.map(jax.device_put, host)
    assert device.data.unsafe_buffer_pointer() == host.data.ctypes.data
    np.testing.assert_array_equal(np.asarray(panels.data), host.data)


def test_an_arena_gives_aligned_zeros_that_do_not_overlap() -> None:
    arena = Arena(chunk_bytes=1 << 20)
    arrays = [arena.take((size,)) for size in (1, 63, 64, 65, 5 << 20, 1 << 20, 7)]
    for number, array in enumerate(arrays):
        assert array.ctypes.data % 64 == 0
        assert not array.any()
        array[:] = number
    assert all((array == number).all() for number, array in enumerate(arrays))
    assert arena.take((3, 5), np.float32).shape == (3, 5)


def test_a_mapping_lives_as_long_as_an_array_in_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """Python unmaps it when nothing refers to it any more; the process's memory says little about that, since
    others map and unmap theirs meanwhile.
    """
    mapped, real = list[weakref.ref[mmap.mmap]](), mmap.mmap

    def noted(*arguments: Any, **options: Any) -> mmap.mmap:
        mapping = real(*arguments, **options)
        mapped.append(weakref.ref(mapping))
        return mapping

    monkeypatch.setattr(mmap, "mmap", noted)
    chunk = 256 << 20
    arena = Arena(chunk_bytes=chunk)
    kept, gone = arena.take((chunk // 2,)), arena.take((chunk // 2,))
    kept[-4096:] = 9
    del arena, gone
    gc.collect()
    [mapping] = mapped
    assert mapping() is not None
    assert (kept[-4096:] == 9).all()
    del kept
    gc.collect()
    assert mapping() is None
