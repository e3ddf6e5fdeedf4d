"""The plain-JAX kernels against NumPy; and a row's result does not depend on the other rows."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from onechip.kernels import xla
from onechip.kernels.api import SPAN_BLOCK, Int4, Int8
from onechip.models.quant import dequantize_int4, dequantize_int8, quantize_int4, quantize_int8


def random(rng: np.random.Generator, *shape: int) -> np.ndarray:
    return rng.standard_normal(shape).astype(np.float32)


def compiled(function: Callable[..., Any]) -> Callable[..., Any]:
    """The function as the engine compiles it."""
    return jax.jit(function, compiler_options=xla.compiler_options(jax.default_backend()))


@pytest.fixture
def rng() -> np.random.Generator:
    return np.random.default_rng(7)


@pytest.mark.parametrize("rows", [1, 2, 5, 64])
@pytest.mark.parametrize(("columns", "outputs"), [(32, 33), (128, 256), (1536, 96)])
def test_matmul_is_the_product(rng: np.random.Generator, rows: int, columns: int, outputs: int) -> None:
    x, weight = random(rng, rows, columns), random(rng, outputs, columns)
    exact = x.astype(np.float64) @ weight.T.astype(np.float64)
    # Sums of 1,536 products in float32 are off by up to 1.9e-4 on AVX2.
    np.testing.assert_allclose(xla.matmul(jnp.asarray(x), jnp.asarray(weight)), exact, atol=5e-4)


def test_matmul_rounds_a_bf16_result_once(rng: np.random.Generator) -> None:
    x = jnp.asarray(random(rng, 4, 64), jnp.bfloat16)
    weight = jnp.asarray(random(rng, 32, 64), jnp.bfloat16)
    exact = x.astype(jnp.float32) @ weight.astype(jnp.float32).T
    assert (xla.matmul(x, weight) == exact.astype(jnp.bfloat16)).all()


@pytest.mark.parametrize(("outputs", "columns"), [(3, 32), (64, 96), (10, 256)])
def test_int4_weight_is_what_quant_says_it_is(rng: np.random.Generator, outputs: int, columns: int) -> None:
    packed, scale = quantize_int4(random(rng, outputs, columns))
    weight = Int4(jnp.asarray(packed), jnp.asarray(scale))
    dense = xla.dequantize(weight, jnp.float32)
    np.testing.assert_array_equal(dense, dequantize_int4(packed, scale).astype(np.float32))
    x = jnp.asarray(random(rng, 2, columns))
    np.testing.assert_array_equal(xla.matmul(x, weight), xla.matmul(x, dense))


@pytest.mark.parametrize(("outputs", "columns"), [(3, 32), (64, 96), (10, 256)])
def test_int8_weight_is_what_quant_says_it_is(rng: np.random.Generator, outputs: int, columns: int) -> None:
    levels, scale = quantize_int8(random(rng, outputs, columns))
    weight = Int8(jnp.asarray(levels), jnp.asarray(scale))
    dense = xla.dequantize(weight, jnp.float32)
    np.testing.assert_array_equal(dense, dequantize_int8(levels, scale))
    x = jnp.asarray(random(rng, 2, columns))
    np.testing.assert_array_equal(xla.matmul(x, weight), xla.matmul(x, dense))
    ids = jnp.asarray([[2, 0], [1, 2]])
    rows = xla.PlainKernels().rows(weight, ids, jnp.float32)
    np.testing.assert_array_equal(rows, dense[ids])


@pytest.mark.parametrize("dtype", [jnp.float32, jnp.bfloat16])
@pytest.mark.parametrize(
    ("columns", "outputs"), [(128, 768), (512, 128), (128, 1536), (1536, 512), (6144, 256)]
)
def test_matmul_rows_do_not_depend_on_the_batch(
    rng: np.random.Generator, dtype: jnp.dtype, columns: int, outputs: int
) -> None:
    x = jnp.asarray(random(rng, 64, columns), dtype)
    weight = jnp.asarray(random(rng, outputs, columns), dtype)
    product = compiled(xla.matmul)
    whole = np.asarray(product(x, weight), np.float32)
    for rows in (1, 2, 3, 8, 32):
        np.testing.assert_array_equal(np.asarray(product(x[:rows], weight), np.float32), whole[:rows])
        np.testing.assert_array_equal(np.asarray(product(x[-rows:], weight), np.float32), whole[-rows:])


def plain_attention(q: np.ndarray, k: np.ndarray, v: np.ndarray, visible: np.ndarray) -> np.ndarray:
    """One query head at a time, in float64. q [B,T,h,D], k and v [B,kv,C,D], visible [B,T,C]."""
    out = np.zeros(q.shape)
    per_kv = q.shape[2] // k.shape[1]
    for b, t, h in np.ndindex(q.shape[:3]):
        scores = k[b, h // per_kv].astype(np.float64) @ q[b, t, h]
        weights = np.where(visible[b, t], np.exp(scores - scores[visible[b, t]].max()), 0)
        out[b, t, h] = weights @ v[b, h // per_kv] / weights.sum()
    return out


@pytest.mark.parametrize(("heads", "kv"), [(4, 1), (8, 2), (3, 3)])
def test_attend_sees_what_is_visible(rng: np.random.Generator, heads: int, kv: int) -> None:
    q, k, v = random(rng, 2, 5, heads, 16), random(rng, 2, kv, 9, 16), random(rng, 2, kv, 9, 16)
    visible = rng.random((2, 5, 9)) < 0.5
    visible[..., 0] = True
    out = xla.attend(*(jnp.asarray(part) for part in (q, k, v)), jnp.asarray(visible))
    np.testing.assert_allclose(out, plain_attention(q, k, v, visible), atol=1e-5)


@pytest.mark.parametrize(("heads", "kv"), [(4, 1), (8, 2)])
@pytest.mark.parametrize("last", [0, 3, SPAN_BLOCK - 1, SPAN_BLOCK, 3 * SPAN_BLOCK - 1])
def test_attend_span_is_causal_attention(rng: np.random.Generator, heads: int, kv: int, last: int) -> None:
    capacity, rows, slots = 3 * SPAN_BLOCK, 3, 4
    k, v = random(rng, slots, kv, capacity, 8), random(rng, slots, kv, capacity, 8)
    q = random(rng, 2, rows, heads, 8)
    positions = np.maximum(np.array([[last - 2, last - 1, last], [last // 2] * 3]), 0).astype(np.int32)
    out = xla.attend_span(
        jnp.asarray(q), jnp.asarray(k), jnp.asarray(v), 1, jnp.asarray(positions), jnp.int32(last + 1)
    )
    visible = np.arange(capacity) <= positions[..., None]
    np.testing.assert_allclose(out, plain_attention(q, k[1:3], v[1:3], visible), atol=1e-5)


@pytest.mark.parametrize("reduce", [jnp.sum, jnp.max, jax.nn.softmax, lambda x, axis: jnp.mean(x * x, axis)])
def test_reductions_do_not_depend_on_the_batch(
    rng: np.random.Generator, reduce: Callable[..., jax.Array]
) -> None:
    x = jnp.asarray(random(rng, 64, 4, 256))
    function = compiled(lambda x: reduce(x, axis=-1))
    whole = np.asarray(function(x))
    for rows in (1, 2, 3, 8, 32):
        np.testing.assert_array_equal(function(x[:rows]), whole[:rows])


def test_attend_span_does_not_change_when_others_read_further(rng: np.random.Generator) -> None:
    k, v = (jnp.asarray(random(rng, 8, 1, 3 * SPAN_BLOCK, 32)) for _ in range(2))
    q = jnp.asarray(random(rng, 8, 1, 4, 32))
    attend = compiled(xla.attend_span)
    own = jnp.full((8, 1), 100, jnp.int32)
    alone = attend(q[:2], k, v, 0, own[:2], jnp.int32(101))
    longer = own.at[2:].set(3 * SPAN_BLOCK - 1)
    among = attend(q, k, v, 0, longer, jnp.int32(3 * SPAN_BLOCK))
    np.testing.assert_array_equal(among[:2], alone)


def test_bits_of_bf16_come_back(rng: np.random.Generator) -> None:
    values = jnp.asarray(random(rng, 3, 4), jnp.bfloat16)
    stored = xla.to_stored(values)
    assert stored.dtype == xla.stored_dtype(jnp.bfloat16) == jnp.uint16
    assert (xla.from_stored(stored, jnp.bfloat16) == values).all()
    assert xla.stored_dtype(jnp.float32) == jnp.float32
