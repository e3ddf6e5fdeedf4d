"""Plain JAX: activations and weights in, products out; queries and caches in, attention out. The reference.

`PlainKernels` are the operations of `api.Kernels`; attention is composed of functions by engine/cache.py.

A row's result does not depend on the other rows: products contract [rows, in] with [out, in], which XLA
reduces in one order for any number of rows from two on (one row alone takes another path on the CPU, so it is
doubled), attention adds up blocks of keys in the order of their positions, and `compiler_options` keep XLA
from choosing by size how a sum is made. tests/kernels holds it to that.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from onechip.kernels.api import (
    GROUP,
    QUANTIZED_BYTES,
    SPAN_BLOCK,
    Activation,
    AttendRows,
    Buckets,
    DrawTokens,
    Int4,
    Int8,
    Kernels,
    Kind,
    Leaf,
    Norm,
    Panels,
    Weight,
)

MASKED = -1e30
"""Score of a key that a query must not see; finite, so that a block without visible keys gives no NaN."""

FEWEST_PACKED_ROWS = 8
"""Rows that are fetched of a quantised table at the least."""

NOT_A_NUMBER = -1
"""The index that `greedy` gives where logits are not numbers."""


def compiler_options(platform: str) -> dict[str, Any]:
    """What every program must be compiled with, for a result that does not depend on its batch.

    bf16 is rounded where the program says so, not where fusion leaves off. On the CPU only products go to the
    YNNPACK library: left alone, XLA 0.10 gives it sums too, but only those of 4,096 and more elements, and
    its order of summing is another one.
    """
    options: dict[str, Any] = {"xla_allow_excess_precision": False}
    if platform == "cpu":
        options["xla_cpu_experimental_ynn_fusion_type"] = "LIBRARY_FUSION_TYPE_INDIVIDUAL_DOT"
    return options


def stored_dtype(dtype: jnp.dtype) -> jnp.dtype:
    """The dtype of a cache array that holds values of `dtype`: bf16 is kept as its 16 bits.

    XLA's CPU backend has no bf16 scatter: it widens the whole array to float32 and back for each row written
    (66 ms instead of 8 microseconds for 64 rows into 34 MB, jax 0.10.2). Integers are written in place.
    """
    return jnp.dtype(jnp.uint16 if dtype == jnp.bfloat16 else dtype)


def to_stored(values: jax.Array) -> jax.Array:
    """Values -> what a cache array of `stored_dtype` holds."""
    stored = stored_dtype(values.dtype)
    return values if values.dtype == stored else lax.bitcast_convert_type(values, stored)


def from_stored(stored: jax.Array, dtype: jnp.dtype) -> jax.Array:
    """The inverse of `to_stored` for values of `dtype`."""
    return stored if stored.dtype == dtype else lax.bitcast_convert_type(stored, dtype)


def stack(parts: Sequence[Leaf]) -> Leaf:
    """Weights one behind the other along their outputs, on the host where they are on the host: loading them
    must not compile anything. Quantised ones are pytrees, whose arrays are stacked one by one.
    """

    def stacked(*arrays: Leaf) -> Leaf:
        host = all(isinstance(array, np.ndarray) for array in arrays)
        return np.concatenate(arrays) if host else jnp.concatenate(arrays)

    return parts[0] if len(parts) == 1 else jax.tree.map(stacked, *parts)


def dequantize(weight: Int4 | Int8, dtype: jnp.dtype) -> jax.Array:
    """The dense [out, in] weight of a quantised one, each value rounded once to `dtype`."""
    out, columns = weight.shape
    if isinstance(weight, Int4):
        shifts = jnp.arange(0, 32, 4, dtype=jnp.int32)
        levels = ((weight.packed[:, :, None] >> shifts) & 15) - 8
    else:
        levels = weight.levels
    grouped = levels.reshape(out, columns // GROUP, GROUP).astype(jnp.float32)
    scaled: jax.Array = grouped * weight.scale.astype(jnp.float32)[:, :, None]
    return scaled.reshape(out, columns).astype(dtype)


def matmul(x: jax.Array, weight: Weight, out_dtype: jnp.dtype | None = None) -> jax.Array:
    """x [..., in] times weight [out, in] transposed -> [..., out], summed in float32.

    Args:
        x: activations, bf16 or f32.
        weight: dense (cast to x's dtype) or quantised (expanded to it).
        out_dtype: of the result; x's own if not given.
    """
    assert not isinstance(weight, Panels), "panels are multiplied by the kernels that they were packed for"
    dense = dequantize(weight, x.dtype) if isinstance(weight, Int4 | Int8) else weight.astype(x.dtype)
    rows = x.reshape(-1, x.shape[-1])
    doubled = jnp.concatenate([rows, rows]) if rows.shape[0] == 1 else rows
    product = lax.dot_general(doubled, dense, (((1,), (1,)), ((), ())), preferred_element_type=jnp.float32)
    product = product[: rows.shape[0]].astype(out_dtype or x.dtype)
    return product.reshape(*x.shape[:-1], dense.shape[0])


def rms_norm(x: jax.Array, norm: Norm) -> jax.Array:
    """See Norm."""
    wide = x.astype(jnp.float32)
    normed = wide * lax.rsqrt(jnp.mean(jnp.square(wide), axis=-1, keepdims=True) + norm.eps)
    if norm.weight is not None:
        scale = norm.weight.astype(jnp.float32)
        normed = normed * (scale + norm.offset if norm.offset else scale)
    return normed.astype(x.dtype)


def gelu(x: jax.Array) -> jax.Array:
    """GELU in its tanh form, computed in float32 and rounded once."""
    return jax.nn.gelu(x.astype(jnp.float32), approximate=True).astype(x.dtype)


def silu(x: jax.Array) -> jax.Array:
    """x * sigmoid(x), computed in float32 and rounded once."""
    return jax.nn.silu(x.astype(jnp.float32)).astype(x.dtype)


ACTIVATIONS: dict[Activation, Callable[[jax.Array], jax.Array]] = {"gelu_tanh": gelu, "silu": silu}


def argmax(scores: jax.Array) -> jax.Array:
    """Index of the largest of each row [rows, V] -> [rows] int32, the first of equals; NOT_A_NUMBER for NaN.

    Two plain reductions: XLA's CPU backend runs them as vectors, and argmax itself value by value.
    """
    vocabulary = scores.shape[-1]
    highest = scores.max(axis=-1, keepdims=True)
    index = jnp.where(scores == highest, jnp.arange(vocabulary, dtype=jnp.int32), vocabulary).min(axis=-1)
    return jnp.where(index < vocabulary, index, NOT_A_NUMBER)


def softcap(logits: jax.Array, cap: float | None) -> jax.Array:
    """cap * tanh(logits / cap), which keeps their order; the logits themselves if there is no cap."""
    return logits if cap is None else cap * jnp.tanh(logits / cap)


def ban(logits: jax.Array, banned: jax.Array) -> jax.Array:
    """Logits [rows, V] with -inf at banned [rows, n]; ids outside the vocabulary ban nothing."""
    columns = jnp.where(banned >= 0, banned, logits.shape[-1])
    row = jnp.arange(logits.shape[0])[:, None]
    allowed: jax.Array = logits.at[row, columns].set(-jnp.inf, mode="drop")
    return allowed


class PlainKernels:
    """The operations of `api.Kernels` in plain JAX."""

    name = "xla"

    @property
    def draw(self) -> DrawTokens | None:
        return None

    def attend_rows(self, head_dims: Collection[int]) -> AttendRows | None:
        return None

    def first_rows(self, count: jax.Array) -> Kernels:
        return self

    @property
    def buckets(self) -> Buckets:
        """Padding is computed like any row, hence many. At least two rows: one alone takes another path
        through XLA's CPU matmul and rounds differently.
        """
        return Buckets((2, 8, 32, 64), (32, 128, 256))

    @property
    def packs(self) -> bool:
        return False

    def pack(self, *parts: Leaf, exact: bool, paired: bool) -> Weight:
        weight: Weight = stack(parts)
        return weight

    def packed_bytes(self, shape: tuple[int, int], *, kind: Kind, paired: bool, dense_bytes: int) -> int:
        return int(math.prod(shape) * QUANTIZED_BYTES.get(kind, dense_bytes))

    def matmul(
        self, x: jax.Array, weight: Weight, *, norm: Norm | None = None, out_dtype: Any = None
    ) -> jax.Array:
        return matmul(x if norm is None else rms_norm(x, norm), weight, out_dtype)

    def matmul_add(
        self, x: jax.Array, weight: Weight, *, norm: Norm | None, residual: jax.Array
    ) -> jax.Array:
        out = matmul(x, weight)
        return residual + (out if norm is None else rms_norm(out, norm))

    def mlp(
        self,
        hidden: jax.Array,
        gate_up: Weight,
        down: Weight,
        *,
        norm: Norm,
        post_norm: Norm | None,
        activation: Activation,
    ) -> jax.Array:
        gate, up = jnp.split(self.matmul(hidden, gate_up, norm=norm), 2, axis=-1)
        return self.matmul_add(ACTIVATIONS[activation](gate) * up, down, norm=post_norm, residual=hidden)

    def add_ple(
        self,
        hidden: jax.Array,
        ple: jax.Array,
        gate: Weight,
        out: Weight,
        *,
        post_norm: Norm,
        scalar: jax.Array | None,
    ) -> jax.Array:
        gated = gelu(matmul(hidden, gate)) * ple
        added = self.matmul_add(gated, out, norm=post_norm, residual=hidden)
        return added if scalar is None else added * scalar.astype(hidden.dtype)

    def rows(self, table: Weight, tokens: jax.Array, dtype: Any) -> jax.Array:
        """Of a quantised table the rows are fetched as they are, then expanded."""
        assert not isinstance(table, Panels)
        if not isinstance(table, Int4 | Int8):
            return table[tokens].astype(dtype)
        flat = tokens.reshape(-1)
        # A TPU's compiler copies a whole packed table to fetch one row of it, at eight it does not.
        ids = jnp.pad(flat, (0, max(0, FEWEST_PACKED_ROWS - flat.size)))
        fetched = dequantize(jax.tree.map(lambda array: array[ids], table), dtype)
        return fetched[: flat.size].reshape(*tokens.shape, -1)

    def logits(self, hidden: jax.Array, weight: Weight, *, norm: Norm) -> jax.Array:
        return self.matmul(hidden, weight, norm=norm, out_dtype=jnp.float32)

    def greedy(self, hidden: jax.Array, weight: Weight, *, norm: Norm, banned: jax.Array) -> jax.Array:
        return argmax(ban(self.logits(hidden, weight, norm=norm), banned))


def _scores(q: jax.Array, k: jax.Array) -> jax.Array:
    """q [B, T, heads, D] and k [B, kv, C, D] -> scores [B, kv, heads/kv * T, C] float32."""
    batch, rows, heads, width = q.shape
    kv = k.shape[1]
    grouped = q.reshape(batch, rows, kv, heads // kv, width).transpose(0, 2, 3, 1, 4)
    return jnp.einsum(
        "bkqd,bkcd->bkqc",
        grouped.reshape(batch, kv, heads // kv * rows, width),
        k,
        preferred_element_type=jnp.float32,
    )


def _ungroup(out: jax.Array, rows: int) -> jax.Array:
    """[B, kv, heads/kv * T, D] -> [B, T, heads, D]."""
    batch, kv, grouped, width = out.shape
    return (
        out.reshape(batch, kv, grouped // rows, rows, width)
        .transpose(0, 3, 1, 2, 4)
        .reshape(batch, rows, kv * (grouped // rows), width)
    )


def attend(q: jax.Array, k: jax.Array, v: jax.Array, visible: jax.Array) -> jax.Array:
    """Softmax attention over all keys at once; the scale is 1, as Gemma 4 wants it.

    Args:
        q: [B, T, heads, D].
        k, v: [B, kv, C, D] in q's dtype.
        visible: [B, T, C] bool; a query with no visible key gets the mean of all values.

    Returns:
        [B, T, heads, D] in q's dtype.
    """
    rows = q.shape[1]
    scores = _scores(q, k)
    mask = jnp.tile(visible, (1, q.shape[2] // k.shape[1], 1))[:, None]
    weights = jax.nn.softmax(jnp.where(mask, scores, MASKED), axis=-1).astype(q.dtype)
    out = jnp.einsum("bkqc,bkcd->bkqd", weights, v, preferred_element_type=jnp.float32)
    return _ungroup(out.astype(q.dtype), rows)


def attend_span(
    q: jax.Array,
    k: jax.Array,
    v: jax.Array,
    first_slot: jax.Array | int,
    positions: jax.Array,
    end: jax.Array,
) -> jax.Array:
    """Causal attention over cache spans, block by block (online softmax, arXiv:1805.02867).

    Only the blocks before `end` are read, so the cost follows the longest sequence, not the capacity. A block
    behind a row's own position changes nothing in that row, to the bit: its weights are exactly 0.

    Args:
        q: [B, T, heads, D].
        k, v: [slots, kv, capacity, D] as stored; row b attends to slot first_slot + b, index = position.
        first_slot: scalar.
        positions: [B, T] int32, position of each query; keys at positions up to its own are visible.
        end: scalar, one past the last position that any query attends to.

    Returns:
        [B, T, heads, D] in q's dtype.
    """
    batch, rows, heads, width = q.shape
    kv = k.shape[1]
    query_positions = jnp.tile(positions, (1, heads // kv))[:, None, :, None]

    def block(cache: jax.Array, index: jax.Array) -> jax.Array:
        start = (first_slot, 0, index * SPAN_BLOCK, 0)
        return from_stored(lax.dynamic_slice(cache, start, (batch, kv, SPAN_BLOCK, width)), q.dtype)

    def add_block(index: jax.Array, carry: tuple[jax.Array, ...]) -> tuple[jax.Array, ...]:
        highest, total, out = carry
        key_positions = index * SPAN_BLOCK + jnp.arange(SPAN_BLOCK)
        scores = jnp.where(key_positions <= query_positions, _scores(q, block(k, index)), MASKED)
        new_highest = jnp.maximum(highest, scores.max(-1))
        weights = jnp.exp(scores - new_highest[..., None])
        keep = jnp.exp(highest - new_highest)
        values = jnp.einsum(
            "bkqc,bkcd->bkqd",
            weights.astype(q.dtype),
            block(v, index),
            preferred_element_type=jnp.float32,
        )
        return new_highest, total * keep + weights.sum(-1), out * keep[..., None] + values

    grouped = heads // kv * rows
    carry = (
        jnp.full((batch, kv, grouped), MASKED, jnp.float32),
        jnp.zeros((batch, kv, grouped), jnp.float32),
        jnp.zeros((batch, kv, grouped, width), jnp.float32),
    )
    blocks = (end + SPAN_BLOCK - 1) // SPAN_BLOCK
    _, total, out = lax.fori_loop(0, blocks, add_block, carry)
    return _ungroup((out / total[..., None]).astype(q.dtype), rows)
