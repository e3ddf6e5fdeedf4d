"""Weights of one product made alike."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

from onechip.errors import CheckpointError
from onechip.kernels.api import Int4, Int8
from onechip.models.leaf import alike


def int4(scale: float, dtype: type) -> Int4:
    return Int4(np.full((2, 4), 0x76543210, np.int32), np.full((2, 1), scale, dtype))


INT8 = Int8(np.ones((2, 32), np.int8), np.ones((2, 1), np.float16))


@pytest.mark.parametrize("other", [INT8, int4(1.0, np.float16)])
def test_scales_keep_their_values(other: Int4 | Int8) -> None:
    made = alike([int4(2**-14, ml_dtypes.bfloat16), other], np.float32)
    assert [leaf.scale.dtype for leaf in made] == [np.float16] * 2
    assert (made[0].scale == 2**-14).all()


@pytest.mark.parametrize("other", [INT8, int4(1.0, np.float16)])
@pytest.mark.parametrize("scale", [1e5, 1.5 * 2**-24])
def test_scales_that_float16_cannot_hold_are_refused(other: Int4 | Int8, scale: float) -> None:
    with pytest.raises(CheckpointError, match=r"which float16 cannot hold.*take --dtype bf16"):
        alike([int4(scale, ml_dtypes.bfloat16), other], np.float32)
