"""The search for the grid of dense weights: whatever was level * scale is found, nothing else is."""

from __future__ import annotations

from math import gcd

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from onechip.convert.grid import find_grid
from onechip.models.quant import dequantize_int4, pack, quantize_int4, shared_scale, unpack

FEW = settings(max_examples=40)
BFLOAT16 = np.dtype(ml_dtypes.bfloat16)
DTYPES = [BFLOAT16, np.dtype(np.float16), np.dtype(np.float32)]

# Groups of all kinds: zeros, one level, sparse, -8 alone, everything.
LEVEL_SETS = st.sampled_from([(0,), (0, 1), (-8, 0), (0, 7), (-8, 7), (-3, 0, 6), tuple(range(-8, 8))])
LEVELS = LEVEL_SETS.flatmap(lambda some: arrays.arrays(np.int8, (1, 32), elements=st.sampled_from(some)))
SHARED = (
    st.floats(2.0**-14, 2.0**10, width=32)
    .flatmap(lambda size: st.sampled_from([size, -size]))
    .map(lambda size: shared_scale(np.array([[size]], np.float32)))
)
HALVES = st.floats(2.0**-12, 2.0**10, width=16).flatmap(lambda size: st.sampled_from([size, -size]))


def made(levels: np.ndarray, scale: np.ndarray, dtype: np.dtype) -> np.ndarray:
    return dequantize_int4(pack(levels), scale).astype(dtype)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@FEW
@given(LEVELS, SHARED)
def test_the_same_dense_values_come_back(dtype: np.dtype, levels: np.ndarray, scale: np.ndarray) -> None:
    dense = made(levels, scale, dtype)
    found = find_grid(dense)
    assert not found.off.any()
    assert found.between == 0
    back = dequantize_int4(found.packed, found.scale).astype(dtype)
    np.testing.assert_array_equal(back, dense)


@FEW
@given(LEVELS, HALVES)
def test_the_same_bfloat16_values_come_back_from_float16_scales(levels: np.ndarray, scale: float) -> None:
    dense = made(levels, np.array([[scale]], np.float16), BFLOAT16)
    found = find_grid(dense)
    assert not found.off.any()
    np.testing.assert_array_equal(dequantize_int4(found.packed, found.scale).astype(BFLOAT16), dense)


@FEW
@given(LEVELS, SHARED)
def test_levels_and_scale_themselves_come_back(levels: np.ndarray, scale: np.ndarray) -> None:
    """Where they can: a common divisor of the levels, and a sign of all, cannot be told from the scale's."""
    magnitudes = {abs(int(level)) for level in levels.ravel()} - {0}
    divisor = gcd(*magnitudes)
    found = find_grid(made(levels, scale, BFLOAT16))
    levels = levels.astype(int) // (divisor or 1)
    if levels.min() < -7 or not magnitudes:
        return
    sign = -1 if scale.astype(np.float32)[0, 0] < 0 else 1
    np.testing.assert_array_equal(unpack(found.packed), levels * sign)
    if magnitudes & {1, 2, 4} and divisor == 1:  # a value whose product was not rounded has the scale
        assert found.scale[0, 0] == abs(scale.astype(np.float32)[0, 0])


@FEW
@given(LEVELS.filter(lambda levels: levels.min() == -8 and np.gcd.reduce(levels, axis=None) == 1), SHARED)
def test_minus_eight_has_the_sign_of_its_scale(levels: np.ndarray, scale: np.ndarray) -> None:
    found = find_grid(made(levels, scale, BFLOAT16))
    np.testing.assert_array_equal(unpack(found.packed), levels)
    assert np.signbit(found.scale[0, 0]) == np.signbit(scale.astype(np.float32)[0, 0])


@FEW
@given(st.integers(0, 2**32 - 1))
def test_a_step_between_two_float16_numbers_keeps_its_levels(seed: int) -> None:
    rng = np.random.default_rng(seed)
    levels = rng.integers(-7, 8, (4, 64)).astype(np.int8)
    step = rng.uniform(0.001, 0.1, (4, 2))
    dense = (levels * np.repeat(step, 32, axis=1)).astype(BFLOAT16)
    found = find_grid(dense)
    assert not found.off.any()
    np.testing.assert_array_equal(unpack(found.packed), levels)
    error = np.abs(dequantize_int4(found.packed, found.scale) - dense.astype(np.float32))
    assert (error <= np.abs(dense.astype(np.float32)) * (2.0**-8 + 2.0**-11)).all()


@FEW
@given(st.integers(0, 2**32 - 1))
def test_weights_on_no_grid_are_named(seed: int) -> None:
    rng = np.random.default_rng(seed)
    packed, scale = quantize_int4(rng.standard_normal((5, 96)).astype(np.float32))
    dense = dequantize_int4(packed, scale).astype(BFLOAT16)
    row, group = rng.integers(5), rng.integers(3)
    dense[row, 32 * group : 32 * group + 32] = rng.standard_normal(32)
    off = np.zeros((5, 3), bool)
    off[row, group] = True
    np.testing.assert_array_equal(find_grid(dense).off, off)


def test_one_value_one_step_of_bfloat16_away_is_off() -> None:
    levels = np.arange(-8, 24, dtype=np.int8).reshape(1, 32).clip(-8, 7)
    dense = made(levels, np.full((1, 1), 0.0175, np.float16).astype(BFLOAT16), BFLOAT16)
    assert not find_grid(dense).off.any()
    dense.view(np.uint16)[0, 9] += 1  # level 1
    assert find_grid(dense).off.all()


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_what_is_not_finite_is_off(value: float) -> None:
    dense = np.zeros((1, 64), BFLOAT16)
    dense[0, 33] = value
    assert find_grid(dense).off.tolist() == [[False, True]]


def test_all_levels_at_the_edge_of_float16() -> None:
    """The least scale of float16 and its greatest: nothing is lost, nothing becomes infinite."""
    levels = np.array([[-8, 7, 1] + [0] * 29], np.int8)
    for scale in (2.0**-24, 2.0**-17, 65280.0 / 8):
        dense = made(levels, np.full((1, 1), scale, np.float16), BFLOAT16)
        found = find_grid(dense)
        np.testing.assert_array_equal(dequantize_int4(found.packed, found.scale).astype(BFLOAT16), dense)
