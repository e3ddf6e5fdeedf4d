"""int4 packing, exact by property; rounding, by its definition."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from onechip.models import quant
from onechip.models.gguf.blocks import int4 as read_q4_0
from onechip.models.quant import (
    dequantize_int4,
    pack,
    quantize_int4,
    shared_scale,
    to_q4_0,
    unpack,
)


def levels_in(multiple: int) -> st.SearchStrategy[np.ndarray]:
    """int8 levels [out, in] with `in` a multiple of `multiple`."""
    return st.tuples(st.integers(1, 4), st.integers(1, 3)).flatmap(
        lambda shape: arrays.arrays(np.int8, (shape[0], shape[1] * multiple), elements=st.integers(-8, 7))
    )


LEVELS = levels_in(8)
MAGNITUDES = st.floats(2.0**-14, 2.0**18, width=32)  # so that float16 holds a scale as bfloat16 rounds it
WEIGHTS = st.tuples(st.integers(1, 3), st.integers(1, 2)).flatmap(
    lambda shape: arrays.arrays(
        np.float32,
        (shape[0], shape[1] * 32),
        elements=st.just(0.0) | MAGNITUDES | MAGNITUDES.map(lambda value: -value),
    )
)


@given(LEVELS)
def test_unpack_inverts_pack(levels: np.ndarray) -> None:
    packed = pack(levels)
    assert packed.dtype == np.int32
    assert packed.shape == (levels.shape[0], levels.shape[1] // 8)
    np.testing.assert_array_equal(unpack(packed), levels)


@given(arrays.arrays(np.int32, (3, 4)))
def test_pack_inverts_unpack(packed: np.ndarray) -> None:
    levels = unpack(packed)
    assert levels.min() >= -8
    assert levels.max() <= 7
    np.testing.assert_array_equal(pack(levels), packed)


@given(LEVELS)
def test_a_word_is_the_sum_of_its_biased_nibbles(levels: np.ndarray) -> None:
    # The format's definition, in Python's own integers.
    words = [
        [sum((int(q) + 8) << (4 * i) for i, q in enumerate(row[j : j + 8])) for j in range(0, len(row), 8)]
        for row in levels
    ]
    np.testing.assert_array_equal(pack(levels).view(np.uint32), np.array(words, dtype=np.uint32))


@pytest.mark.parametrize("shape", [(4, 12), (32,)])
def test_pack_refuses_what_does_not_fill_words(shape: tuple[int, ...]) -> None:
    with pytest.raises(ValueError, match="multiple of 8"):
        pack(np.zeros(shape, np.int8))


@given(levels_in(32), st.sampled_from(["bfloat16", "float16"]))
def test_dequantize_is_level_times_scale(levels: np.ndarray, kind: str) -> None:
    rng = np.random.default_rng(levels.size)
    scale = rng.uniform(1e-3, 1, (levels.shape[0], levels.shape[1] // 32)).astype(
        getattr(ml_dtypes, kind, kind)
    )
    expected = levels.astype(np.float64) * np.repeat(scale.astype(np.float64), 32, axis=1)
    np.testing.assert_array_equal(dequantize_int4(pack(levels), scale).astype(np.float64), expected)


@given(WEIGHTS)
@settings(max_examples=40)
def test_rounding_is_to_the_nearest_level_of_the_stored_scale(weight: np.ndarray) -> None:
    packed, scale = quantize_int4(weight)
    peak = np.abs(weight).reshape(weight.shape[0], -1, 32).max(axis=2)
    np.testing.assert_array_equal(scale, (peak / np.float32(7.5)).astype(ml_dtypes.bfloat16))
    step = np.repeat(scale.astype(np.float64), 32, axis=1)
    error = np.abs(dequantize_int4(packed, scale).astype(np.float64) - weight)
    # Half a step, and at the positive end what -8..7 cuts off: 7.5 steps of a scale rounded by up to 2^-9.
    assert (error <= step * (0.5 + 8 * 2**-8)).all()
    inside = (weight < 7 * step) & (weight > -8 * step)
    assert (error[inside] <= step[inside] * (0.5 + 1e-6)).all()


ALL_BFLOAT16 = np.arange(2**16, dtype=np.uint16).view(ml_dtypes.bfloat16).astype(np.float32)
IN_RANGE = ALL_BFLOAT16[np.abs(ALL_BFLOAT16) <= 65504]  # NaN is not


def test_every_shared_scale_is_the_same_number_in_bfloat16_and_float16() -> None:
    scale = shared_scale(IN_RANGE)
    np.testing.assert_array_equal(scale.astype(np.float16).astype(np.float32), scale.astype(np.float32))
    ordinary = np.abs(IN_RANGE) >= 2.0**-17
    np.testing.assert_array_equal(scale[ordinary].astype(np.float32), IN_RANGE[ordinary])
    off = np.abs(scale.astype(np.float32) - IN_RANGE)
    assert off.max() <= 2.0**-25  # half a step of float16's smallest numbers


def test_a_scale_beyond_float16_is_refused() -> None:
    with pytest.raises(ValueError, match="end at 65504"):
        quantize_int4(np.full((1, 32), 65504 * 7.6, np.float32))


def test_a_group_too_small_for_float16_is_zero() -> None:
    packed, scale = quantize_int4(np.full((1, 32), 2.0**-25, np.float32))
    assert not scale.any()
    assert not unpack(packed).any()


SCALES = arrays.arrays(np.uint16, (3, 2)).map(lambda bits: bits.view(np.float16))  # NaN and -0 too
WORDS = arrays.arrays(np.int32, (3, 8))


@given(WORDS, SCALES)
def test_q4_0_and_back_is_the_same_bits(packed: np.ndarray, scale: np.ndarray) -> None:
    blocks = to_q4_0(packed, scale)
    assert blocks.shape == (3, 36)
    words, scales = read_q4_0(blocks)
    np.testing.assert_array_equal(words, packed)
    np.testing.assert_array_equal(scales.view(np.uint16), scale.view(np.uint16))


@given(WORDS, arrays.arrays(np.float16, (3, 2), elements=st.floats(-60000, 60000, width=16)))
def test_q4_0_is_what_the_gguf_package_reads(packed: np.ndarray, scale: np.ndarray) -> None:
    gguf = pytest.importorskip("gguf")
    read = gguf.dequantize(to_q4_0(packed, scale), gguf.GGMLQuantizationType.Q4_0)
    np.testing.assert_array_equal(read, dequantize_int4(packed, scale))


@given(arrays.arrays(np.uint8, (2, 36)))
def test_reading_q4_0_loses_nothing(blocks: np.ndarray) -> None:
    np.testing.assert_array_equal(to_q4_0(*read_q4_0(blocks)), blocks)


def test_a_scale_of_one_rounds_to_whole_numbers() -> None:
    rng = np.random.default_rng(0)
    levels = rng.integers(-8, 8, (64, 256)).astype(np.int8)
    levels[:, ::32] = -8  # the peak of every group is then 8 * 7.5/8, and its scale 1
    scale = np.full((64, 8), 7.5 / 8, ml_dtypes.bfloat16)  # exact in bfloat16
    weight = dequantize_int4(pack(levels), scale)
    packed, found = quantize_int4(weight)
    np.testing.assert_array_equal(found, np.ones((64, 8), ml_dtypes.bfloat16))
    np.testing.assert_array_equal(unpack(packed), np.rint(weight).astype(np.int8))


def test_zeros_stay_zeros() -> None:
    packed, scale = quantize_int4(np.zeros((2, 64), np.float32))
    assert not dequantize_int4(packed, scale).any()


def test_blocks_of_rows_do_not_show(monkeypatch: pytest.MonkeyPatch) -> None:
    weight = np.random.default_rng(1).standard_normal((37, 64)).astype(ml_dtypes.bfloat16)
    whole = quantize_int4(weight)
    monkeypatch.setattr(quant, "_BLOCK_ELEMENTS", 5 * 64)
    for part, expected in zip(quantize_int4(weight), whole, strict=True):
        np.testing.assert_array_equal(part, expected)


@pytest.mark.parametrize(("value", "message"), [(np.nan, "not finite"), (np.inf, "not finite")])
def test_what_is_not_finite_is_refused(value: float, message: str) -> None:
    weight = np.ones((4, 32), np.float32)
    weight[2, 3] = value
    with pytest.raises(ValueError, match=message):
        quantize_int4(weight)


def test_rows_that_do_not_divide_into_groups_are_refused() -> None:
    with pytest.raises(ValueError, match="groups of 32"):
        quantize_int4(np.ones((4, 48), np.float32))
