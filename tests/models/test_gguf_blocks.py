"""Blocks of every quantised type, against what the gguf package makes of them."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest
from gguf import GGMLQuantizationType, quants

from onechip.models.gguf import blocks
from onechip.models.quant import aligned_empty, dequantize_int4, dequantize_int8, to_q8_0
from tests.models.gguf_files import random_blocks

TYPES = [
    kind for kind in GGMLQuantizationType if blocks.readable(kind.name) and kind.name not in blocks.PLAIN
]
BFLOAT16 = np.dtype(ml_dtypes.bfloat16)


def test_all_types_that_the_package_can_dequantise_are_read() -> None:
    names = {kind.name for kind in TYPES}
    assert {"Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q8_0", "Q2_K", "Q3_K", "Q4_K", "Q5_K", "Q6_K"} <= names
    assert {"IQ1_S", "IQ2_XXS", "IQ3_S", "IQ4_NL", "IQ4_XS", "TQ1_0", "TQ2_0", "MXFP4"} <= names
    assert not blocks.readable("I32")
    assert all(name in blocks.readable_types() for name in [*names, "F32", "F16", "BF16"])


@pytest.mark.parametrize("kind", TYPES, ids=lambda kind: kind.name)
@pytest.mark.parametrize("dtype", [np.dtype(np.float32), BFLOAT16], ids=str)
@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_dense_values_are_the_packages(kind: GGMLQuantizationType, dtype: np.dtype[np.generic]) -> None:
    raw = random_blocks(kind, 5, 512)
    expected = quants.dequantize(raw, kind)
    found = blocks.dense(raw, kind.name, dtype)
    assert found.shape == (5, 512)
    assert found.dtype == dtype
    np.testing.assert_array_equal(found.view(np.uint8), expected.astype(dtype).view(np.uint8))


def test_q4_0_is_int4_to_the_bit() -> None:
    raw = random_blocks(GGMLQuantizationType.Q4_0, 7, 128)
    raw.reshape(7, -1, 18)[:, :, 1] &= 0x7B  # a float16 scale that is finite
    packed, scale = blocks.int4(raw)
    assert packed.dtype == np.int32
    assert scale.dtype == np.float16
    np.testing.assert_array_equal(
        dequantize_int4(packed, scale), quants.dequantize(raw, GGMLQuantizationType.Q4_0)
    )


def test_q8_0_is_int8_to_the_bit() -> None:
    raw = random_blocks(GGMLQuantizationType.Q8_0, 7, 128)
    raw.reshape(7, -1, 34)[:, :, 1] &= 0x7B
    levels, scale = blocks.int8(raw)
    assert (levels.dtype, levels.shape, scale.dtype) == (np.int8, (7, 128), np.float16)
    np.testing.assert_array_equal(
        dequantize_int8(levels, scale), quants.dequantize(raw, GGMLQuantizationType.Q8_0)
    )
    np.testing.assert_array_equal(to_q8_0(levels, scale), raw)


def test_rows_are_done_in_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    """On several threads, the last part shorter."""
    raw = random_blocks(GGMLQuantizationType.Q8_0, 37, 64)
    raw.reshape(37, -1, 34)[:, :, 1] &= 0x7B
    q4_0 = random_blocks(GGMLQuantizationType.Q4_0, 37, 64)
    whole, levels, packed = blocks.dense(raw, "Q8_0", BFLOAT16), blocks.int8(raw)[0], blocks.int4(q4_0)[0]
    monkeypatch.setattr(blocks, "_TASK_ELEMENTS", 256)
    np.testing.assert_array_equal(blocks.dense(raw, "Q8_0", BFLOAT16), whole)
    np.testing.assert_array_equal(blocks.int4(q4_0)[0], packed)
    np.testing.assert_array_equal(blocks.int8(raw)[0], levels)


def test_arrays_stand_where_the_device_can_take_them_over() -> None:
    for _ in range(8):
        array = aligned_empty((3, 5), BFLOAT16)
        assert array.shape == (3, 5)
        assert array.ctypes.data % 64 == 0
