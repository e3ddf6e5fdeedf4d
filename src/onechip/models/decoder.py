"""The decoder of all families as pure functions: token ids and weights in, hidden rows and logits out.

What a family does in its own way is said by ModelConfig and its Block: choices made while a program is
traced, which cost nothing when it runs. Where keys and values are kept is the caller's affair: each layer
asks `attend`, so that training, prefill and decode share the same layers.

The order of operations and of roundings is that of transformers 5.24 (models/gemma4, gemma3, llama), whose
logits tests/golden keeps; but every family's norms round once, after the weight, where Llama's round before
it too.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

import jax
import jax.numpy as jnp
import numpy as np

from onechip.kernels import xla
from onechip.kernels.api import Int4, Leaf, Weight
from onechip.models.architecture import Activation, LayerSpec, ModelConfig
from onechip.models.layout import Params


class Attend(Protocol):
    """What a layer calls with its queries and, if it owns a cache, its new keys and values."""

    def __call__(self, layer: LayerSpec, q: jax.Array, k: jax.Array | None, v: jax.Array | None) -> jax.Array:
        """q [..., heads, D]; k, v [..., kv, D] or None on layers that share -> [..., heads, D]."""


FUSED = {"qkv": ("q", "k", "v"), "gate_up": ("gate", "up")}
"""Products that share their input, and so are computed as one."""

FEWEST_PACKED_ROWS = 8
"""Rows that are fetched of an int4 table at the least."""


def _stack(arrays: list[Leaf]) -> Leaf:
    """Concatenate on the host what is on the host: loading weights must not compile anything."""
    host = all(isinstance(array, np.ndarray) for array in arrays)
    return np.concatenate(arrays) if host else jnp.concatenate(arrays)


def _fuse_layer(weights: Params) -> Params:
    parts = {name for names in FUSED.values() for name in names}
    fused = {name: leaf for name, leaf in weights.items() if name not in parts}
    for name, names in FUSED.items():
        # Int4 weights are pytrees too: their packed words and their scales are stacked leaf by leaf.
        present = [weights[part] for part in names if part in weights]
        fused[name] = jax.tree.map(lambda *leaves: _stack(list(leaves)), *present)
    return fused


def fuse(params: Params) -> Params:
    """Join each layer's q, k, v into "qkv" and gate, up into "gate_up": fewer, larger products.

    All functions below but `forward` take weights of this form. Weights of one product must be of one kind.
    """
    return params | {"layers": [_fuse_layer(weights) for weights in params["layers"]]}


def rms_norm(x: jax.Array, weight: jax.Array | None, eps: float, offset: float = 0.0) -> jax.Array:
    """x / rms(x) * (weight + offset) over the last axis, in float32, back in x's dtype."""
    wide = x.astype(jnp.float32)
    normed = wide * jax.lax.rsqrt(jnp.mean(jnp.square(wide), axis=-1, keepdims=True) + eps)
    if weight is not None:
        scale = weight.astype(jnp.float32)
        normed = normed * (scale + offset if offset else scale)
    return normed.astype(x.dtype)


def _norm(config: ModelConfig, x: jax.Array, weight: jax.Array) -> jax.Array:
    """A norm of this model, whose stored weight may be short of an offset."""
    return rms_norm(x, weight, config.norm_eps, config.block.norm_offset)


def rope_frequencies(config: ModelConfig, layer: LayerSpec) -> jax.Array:
    """Inverse frequencies [head_dim/2] float32.

    The exponent runs over the whole width even where only the first fraction of the pairs turns
    ("proportional"); the others have frequency 0.
    """
    rope = config.rope(layer)
    pairs = layer.head_dim // 2
    exponent = jnp.arange(pairs, dtype=jnp.float32) * 2 / layer.head_dim
    frequencies = rope.theta**-exponent
    if rope.divisors:
        frequencies = frequencies / jnp.asarray(rope.divisors, jnp.float32)
    if rope.fraction == 1:
        return frequencies
    return jnp.where(jnp.arange(pairs) < int(rope.fraction * layer.head_dim // 2), frequencies, 0.0)


def rope(x: jax.Array, positions: jax.Array, frequencies: jax.Array, scale: float = 1.0) -> jax.Array:
    """Rotate pairs (i, i + D/2) of x [..., heads, D] by positions [...] times frequencies [D/2].

    The result is multiplied by `scale`, which costs no rounding of its own: it is part of sine and cosine.
    """
    angles = positions[..., None, None].astype(jnp.float32) * frequencies
    cos, sin = jnp.cos(angles), jnp.sin(angles)
    if scale != 1:
        cos, sin = cos * scale, sin * scale
    cos, sin = cos.astype(x.dtype), sin.astype(x.dtype)
    low, high = jnp.split(x, 2, axis=-1)
    return jnp.concatenate([low * cos - high * sin, high * cos + low * sin], axis=-1)


def _rows(table: Weight, tokens: jax.Array, dtype: jnp.dtype) -> jax.Array:
    """table[tokens] [..., width] in `dtype`; of an int4 table the packed rows are fetched, then expanded."""
    if not isinstance(table, Int4):
        return table[tokens].astype(dtype)
    flat = tokens.reshape(-1)
    # A TPU's compiler copies a whole packed table to fetch one row of it, at eight it does not.
    ids = jnp.pad(flat, (0, max(0, FEWEST_PACKED_ROWS - flat.size)))
    rows = xla.dequantize(Int4(table.packed[ids], table.scale[ids]), dtype)
    return rows[: flat.size].reshape(*tokens.shape, -1)


def embed(
    config: ModelConfig, params: Params, tokens: jax.Array, dtype: jnp.dtype
) -> tuple[jax.Array, jax.Array]:
    """Token ids [...] -> (hidden [..., H], per-layer embeddings [..., L, P], P 0 if there are none)."""
    hidden = _rows(params["embed"], tokens, dtype)
    if config.embedding_scale != 1:
        hidden = hidden * jnp.asarray(config.embedding_scale, dtype)
    layers, width = len(config.layers), config.ple_dim
    if not width:
        return hidden, jnp.zeros((*tokens.shape, layers, 0), dtype)
    identity = _rows(params["ple_embed"], tokens, dtype) * jnp.asarray(width**0.5, dtype)
    context = xla.matmul(hidden, params["ple_proj"]) * jnp.asarray(config.hidden**-0.5, dtype)
    shape = (*tokens.shape, layers, width)
    context = _norm(config, context.reshape(shape), params["ple_norm"])
    return hidden, (context + identity.reshape(shape)) * jnp.asarray(2**-0.5, dtype)


def _attention(
    config: ModelConfig, layer: LayerSpec, weights: Params, x: jax.Array, positions: jax.Array, attend: Attend
) -> jax.Array:
    frequencies = rope_frequencies(config, layer)
    widths = [layer.heads * layer.head_dim]
    if layer.owns_kv:
        widths += [layer.kv_heads * layer.head_dim] * (1 if layer.k_eq_v else 2)
    ends = [sum(widths[: n + 1]) for n in range(len(widths) - 1)]
    parts = [
        part.reshape(*x.shape[:-1], -1, layer.head_dim)
        for part in jnp.split(xla.matmul(x, weights["qkv"]), ends, axis=-1)
    ]
    q = parts[0]
    if config.block.qk_norm:
        q = _norm(config, q, weights["q_norm"])
    q = rope(q, positions, frequencies, config.attention_scale)
    k = v = None
    if layer.owns_kv:
        k, v = parts[1], parts[-1]
        if config.block.qk_norm:
            k = _norm(config, k, weights["k_norm"])
        k = rope(k, positions, frequencies)
        if config.block.v_norm:
            v = rms_norm(v, None, config.norm_eps)
    out = attend(layer, q, k, v)
    return xla.matmul(out.reshape(*x.shape[:-1], -1), weights["o"])


def gelu(x: jax.Array) -> jax.Array:
    """GELU in its tanh form, computed in float32 and rounded once."""
    return jax.nn.gelu(x.astype(jnp.float32), approximate=True).astype(x.dtype)


def silu(x: jax.Array) -> jax.Array:
    """x * sigmoid(x), computed in float32 and rounded once."""
    return jax.nn.silu(x.astype(jnp.float32)).astype(x.dtype)


ACTIVATIONS: dict[Activation, Callable[[jax.Array], jax.Array]] = {"gelu_tanh": gelu, "silu": silu}


def _mlp(config: ModelConfig, weights: Params, x: jax.Array) -> jax.Array:
    gate, up = jnp.split(xla.matmul(x, weights["gate_up"]), 2, axis=-1)
    return xla.matmul(ACTIVATIONS[config.block.activation](gate) * up, weights["down"])


def _layer(
    config: ModelConfig,
    layer: LayerSpec,
    weights: Params,
    hidden: jax.Array,
    ple: jax.Array,
    positions: jax.Array,
    attend: Attend,
) -> jax.Array:
    def post(out: jax.Array, name: str) -> jax.Array:
        return _norm(config, out, weights[name]) if config.block.post_norms else out

    normed = _norm(config, hidden, weights["input_norm"])
    hidden = hidden + post(_attention(config, layer, weights, normed, positions, attend), "post_attn_norm")
    normed = _norm(config, hidden, weights["pre_ffn_norm"])
    hidden = hidden + post(_mlp(config, weights, normed), "post_ffn_norm")
    if config.ple_dim:
        out = gelu(xla.matmul(hidden, weights["ple_gate"])) * ple
        hidden = hidden + _norm(config, xla.matmul(out, weights["ple_out"]), weights["ple_post_norm"])
    if not config.block.layer_scalar:
        return hidden
    scalar: jax.Array = weights["scalar"].astype(hidden.dtype)
    return hidden * scalar


def run_layers(
    config: ModelConfig,
    params: Params,
    hidden: jax.Array,
    ple: jax.Array,
    positions: jax.Array,
    attend: Attend,
    first: int = 0,
    last: int | None = None,
) -> jax.Array:
    """Layers first..last-1 on hidden [..., H], ple [..., L, P], positions [...] -> hidden [..., H]."""
    for layer in config.layers[first:last]:
        weights = params["layers"][layer.index]
        hidden = _layer(config, layer, weights, hidden, ple[..., layer.index, :], positions, attend)
    return hidden


def logits(config: ModelConfig, params: Params, hidden: jax.Array) -> jax.Array:
    """Hidden rows [..., H] after the last layer -> logits [..., V] float32, after any softcap."""
    normed = _norm(config, hidden, params["norm"])
    out = xla.matmul(normed, params["embed" if config.tied else "lm_head"], jnp.float32)
    if config.softcap is None:
        return out
    return config.softcap * jnp.tanh(out / config.softcap)


def _masked_attention(config: ModelConfig, positions: jax.Array, mask: jax.Array | None) -> Attend:
    """Attention among the rows of the batch itself, keys and values kept for the layers that share them."""
    distance = positions[:, :, None] - positions[:, None, :]
    causal = distance >= 0 if mask is None else (distance >= 0) & mask
    visible = {"full": causal, "sliding": causal & (distance < config.sliding_window)}
    kept: dict[int, tuple[jax.Array, jax.Array]] = {}

    def attend(layer: LayerSpec, q: jax.Array, k: jax.Array | None, v: jax.Array | None) -> jax.Array:
        if k is not None and v is not None:
            kept[layer.index] = (k.swapaxes(1, 2), v.swapaxes(1, 2))
        return xla.attend(q, *kept[layer.kv_source], visible[layer.kind])

    return attend


def forward(
    config: ModelConfig,
    params: Params,
    tokens: jax.Array,
    positions: jax.Array,
    *,
    dtype: jnp.dtype,
    mask: jax.Array | None = None,
) -> jax.Array:
    """The whole model on whole sequences, without a cache: for training and as the truth of the cached paths.

    Args:
        params: as models/weights.py lays them out (not fused).
        tokens: [B, T] int32.
        positions: [B, T] int32, logical positions; a query sees keys at positions up to its own.
        dtype: of the activations.
        mask: [B, T, T] bool, which keys each query may see besides (packed documents, padding).

    Returns:
        [B, T, V] float32.
    """
    fused = fuse(params)
    hidden, ple = embed(config, fused, tokens, dtype)
    attend = _masked_attention(config, positions, mask)
    return logits(config, fused, run_layers(config, fused, hidden, ple, positions, attend))
