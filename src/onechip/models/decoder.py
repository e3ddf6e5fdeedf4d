"""The decoder of all families as pure functions: token ids and weights in, hidden rows and logits out.

What a family does in its own way is said by ModelConfig and its Block: choices made while a program is
traced, which cost nothing when it runs. Where keys and values are kept is the caller's affair: each layer
asks `attend`, so that training, prefill and decode share the same layers. Who multiplies is the `kernels`'.

The order of operations and of roundings is that of transformers 5.24 (models/gemma4, gemma3, llama), whose
logits tests/golden keeps; but every family's norms round once, after the weight, where Llama's round before
it too.
"""

from __future__ import annotations

from typing import Protocol

import jax
import jax.numpy as jnp

from onechip.kernels import xla
from onechip.kernels.api import HeadSpec, Kernels, Leaf, Norm
from onechip.models.architecture import LayerSpec, ModelConfig
from onechip.models.layout import Params


class Attend(Protocol):
    """What a layer calls with the product of its input and "qkv"."""

    def __call__(self, layer: LayerSpec, weights: Params, qkv: jax.Array) -> jax.Array:
        """qkv [..., all heads of q, then of k and v if it owns a cache] -> [..., heads * D]."""


class AttendHeads(Protocol):
    """Attention in plain JAX, to queries, keys and values that are normalised and turned."""

    def __call__(self, layer: LayerSpec, q: jax.Array, k: jax.Array | None, v: jax.Array | None) -> jax.Array:
        """q [..., heads, D]; k, v [..., kv, D] or None on layers that share -> [..., heads, D]."""


FUSED = {"qkv": ("q", "k", "v"), "gate_up": ("gate", "up")}
"""Products that share their input, and so are computed as one."""


def _fuse_layer(weights: Params) -> Params:
    parts = {name for names in FUSED.values() for name in names}
    fused = {name: leaf for name, leaf in weights.items() if name not in parts}
    for name, names in FUSED.items():
        fused[name] = xla.stack([weights[part] for part in names if part in weights])
    return fused


def fuse(params: Params) -> Params:
    """Join each layer's q, k, v into "qkv" and gate, up into "gate_up": fewer, larger products.

    All functions below but `forward` take weights of this form. Weights of one product must be of one kind.
    """
    return params | {"layers": [_fuse_layer(weights) for weights in params["layers"]]}


def _norm(config: ModelConfig, weight: jax.Array | None) -> Norm:
    """A norm of this model, whose stored weight may be short of an offset."""
    return Norm(weight, config.norm_eps, config.block.norm_offset)


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


def rope_turns(config: ModelConfig, layer: LayerSpec, positions: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Cosine and sine [..., D/2] float32 of the angles by which pairs turn at positions [...]."""
    angles = positions[..., None].astype(jnp.float32) * rope_frequencies(config, layer)
    return jnp.cos(angles), jnp.sin(angles)


def rope(x: jax.Array, turns: tuple[jax.Array, jax.Array], scale: float = 1.0) -> jax.Array:
    """Rotate pairs (i, i + D/2) of x [..., heads, D] by `turns`, cosine and sine [..., D/2] float32.

    The result is multiplied by `scale`, which costs no rounding of its own: it is part of sine and cosine.
    """
    cos, sin = (turn[..., None, :] for turn in turns)
    if scale != 1:
        cos, sin = cos * scale, sin * scale
    cos, sin = cos.astype(x.dtype), sin.astype(x.dtype)
    low, high = jnp.split(x, 2, axis=-1)
    return jnp.concatenate([low * cos - high * sin, high * cos + low * sin], axis=-1)


def embed(
    config: ModelConfig, kernels: Kernels, params: Params, tokens: jax.Array, dtype: jnp.dtype
) -> tuple[jax.Array, jax.Array]:
    """Token ids [...] -> (hidden [..., H], per-layer embeddings [..., L, P], P 0 if there are none)."""
    hidden = kernels.rows(params["embed"], tokens, dtype)
    if config.embedding_scale != 1:
        hidden = hidden * jnp.asarray(config.embedding_scale, dtype)
    layers, width = len(config.layers), config.ple_dim
    if not width:
        return hidden, jnp.zeros((*tokens.shape, layers, 0), dtype)
    identity = kernels.rows(params["ple_embed"], tokens, dtype) * jnp.asarray(width**0.5, dtype)
    context = kernels.matmul(hidden, params["ple_proj"]) * jnp.asarray(config.hidden**-0.5, dtype)
    shape = (*tokens.shape, layers, width)
    context = xla.rms_norm(context.reshape(shape), _norm(config, params["ple_norm"]))
    return hidden, (context + identity.reshape(shape)) * jnp.asarray(2**-0.5, dtype)


def head_spec(config: ModelConfig, layer: LayerSpec, weights: Params) -> HeadSpec:
    """What happens to a layer's queries, keys and values before they meet."""
    normed = config.block.qk_norm
    return HeadSpec(
        heads=layer.heads,
        kv_heads=layer.kv_heads,
        head_dim=layer.head_dim,
        window=config.sliding_window if layer.kind == "sliding" else 0,
        owns_kv=layer.owns_kv,
        k_eq_v=layer.k_eq_v,
        q_norm=_norm(config, weights["q_norm"]) if normed else None,
        k_norm=_norm(config, weights["k_norm"]) if normed and layer.owns_kv else None,
        v_norm=Norm(None, config.norm_eps) if config.block.v_norm else None,
        q_scale=config.attention_scale,
    )


def split_heads(
    config: ModelConfig, layer: LayerSpec, weights: Params, qkv: jax.Array, positions: jax.Array
) -> tuple[jax.Array, jax.Array | None, jax.Array | None]:
    """qkv [..., width] of rows at positions [...] -> q [..., heads, D], k and v [..., kv, D] or None."""
    spec = head_spec(config, layer, weights)
    turns = rope_turns(config, layer, positions)
    widths = [layer.heads * layer.head_dim]
    if layer.owns_kv:
        widths += [layer.kv_heads * layer.head_dim] * (1 if layer.k_eq_v else 2)
    ends = [sum(widths[: n + 1]) for n in range(len(widths) - 1)]
    parts = [part.reshape(*qkv.shape[:-1], -1, layer.head_dim) for part in jnp.split(qkv, ends, axis=-1)]

    def normed(x: jax.Array, norm: Norm | None) -> jax.Array:
        return x if norm is None else xla.rms_norm(x, norm)

    q = rope(normed(parts[0], spec.q_norm), turns, spec.q_scale)
    if not layer.owns_kv:
        return q, None, None
    return q, rope(normed(parts[1], spec.k_norm), turns), normed(parts[-1], spec.v_norm)


def on_heads(config: ModelConfig, positions: jax.Array, attend: AttendHeads) -> Attend:
    """Attention in plain JAX as layers call it; `positions` are those of the rows that they will bring."""

    def attend_qkv(layer: LayerSpec, weights: Params, qkv: jax.Array) -> jax.Array:
        out = attend(layer, *split_heads(config, layer, weights, qkv, positions))
        return out.reshape(*qkv.shape[:-1], -1)

    return attend_qkv


def _layer(
    config: ModelConfig,
    kernels: Kernels,
    layer: LayerSpec,
    weights: Params,
    hidden: jax.Array,
    ple: jax.Array,
    attend: Attend,
) -> jax.Array:
    def post(name: str) -> Norm | None:
        return _norm(config, weights[name]) if config.block.post_norms else None

    qkv = kernels.matmul(hidden, weights["qkv"], norm=_norm(config, weights["input_norm"]))
    out = attend(layer, weights, qkv)
    hidden = kernels.matmul_add(out, weights["o"], norm=post("post_attn_norm"), residual=hidden)
    hidden = kernels.mlp(
        hidden,
        weights["gate_up"],
        weights["down"],
        norm=_norm(config, weights["pre_ffn_norm"]),
        post_norm=post("post_ffn_norm"),
        activation=config.block.activation,
    )
    scalar = weights["scalar"] if config.block.layer_scalar else None
    if config.ple_dim:
        gate, out_weight = weights["ple_gate"], weights["ple_out"]
        post_norm = _norm(config, weights["ple_post_norm"])
        return kernels.add_ple(hidden, ple, gate, out_weight, post_norm=post_norm, scalar=scalar)
    return hidden if scalar is None else hidden * scalar.astype(hidden.dtype)


def run_layers(
    config: ModelConfig,
    kernels: Kernels,
    params: Params,
    hidden: jax.Array,
    ple: jax.Array,
    attend: Attend,
    first: int = 0,
    last: int | None = None,
) -> jax.Array:
    """Layers first..last-1 on hidden [..., H], ple [..., L, P] -> hidden [..., H]."""
    for layer in config.layers[first:last]:
        weights = params["layers"][layer.index]
        hidden = _layer(config, kernels, layer, weights, hidden, ple[..., layer.index, :], attend)
    return hidden


def head(config: ModelConfig, params: Params) -> tuple[Norm, Leaf]:
    """The last norm, and the weight that turns what it gives into logits."""
    return _norm(config, params["norm"]), params["embed" if config.tied else "lm_head"]


def logits(config: ModelConfig, kernels: Kernels, params: Params, hidden: jax.Array) -> jax.Array:
    """Hidden rows [..., H] after the last layer -> logits [..., V] float32, after any softcap."""
    norm, weight = head(config, params)
    return xla.softcap(kernels.logits(hidden, weight, norm=norm), config.softcap)


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

    return on_heads(config, positions, attend)


def forward_fused(
    config: ModelConfig,
    kernels: Kernels,
    fused: Params,
    tokens: jax.Array,
    positions: jax.Array,
    *,
    dtype: jnp.dtype,
    mask: jax.Array | None = None,
) -> jax.Array:
    """`forward` of weights that are fused, and stand as `kernels` want them."""
    hidden, ple = embed(config, kernels, fused, tokens, dtype)
    attend = _masked_attention(config, positions, mask)
    return logits(config, kernels, fused, run_layers(config, kernels, fused, hidden, ple, attend))


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
    kernels = xla.PlainKernels()
    return forward_fused(config, kernels, fuse(params), tokens, positions, dtype=dtype, mask=mask)
