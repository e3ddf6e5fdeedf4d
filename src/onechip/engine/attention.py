"""Attention as the layers of a program call it, over the cache: by the kernels' own operation where they have
one, else composed of plain JAX (`cache.DecodeAttention`, `cache.PrefillAttention`).
"""

from __future__ import annotations

from dataclasses import dataclass

import jax
import jax.numpy as jnp

from onechip.engine.cache import Cache, DecodeAttention, LayerCache, PrefillAttention
from onechip.kernels.api import AttendRows, Leaf
from onechip.models import decoder
from onechip.models.architecture import LayerKind, LayerSpec, ModelConfig
from onechip.models.layout import Params


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Chunk:
    """Rows of prompts: those of one slot stand together, at consecutive positions.

    Attributes:
        tokens, slots, positions: [T] int32 each, padded behind.
        valid: scalar, how many rows are real, at least one. Plain JAX takes rows of one slot only.
    """

    tokens: Leaf
    slots: Leaf
    positions: Leaf
    valid: Leaf


class RowsAttention:
    """Attention of any rows by the kernels' operation; `cache` is the updated cache afterwards.

    Args:
        slots, positions: [R] int32, which slot each row belongs to and where it stands.
        active: [R] bool; see kernels.api.AttendRows.
    """

    def __init__(
        self,
        config: ModelConfig,
        attend_rows: AttendRows,
        cache: Cache,
        slots: jax.Array,
        positions: jax.Array,
        active: jax.Array,
    ) -> None:
        self.cache = dict(cache)
        self._config = config
        self._attend_rows = attend_rows
        self._rows = (slots, positions, active)
        self._turns: dict[LayerKind, tuple[jax.Array, jax.Array]] = {}

    def __call__(self, layer: LayerSpec, weights: Params, qkv: jax.Array) -> jax.Array:
        if layer.kind not in self._turns:
            self._turns[layer.kind] = decoder.rope_turns(self._config, layer, self._rows[1])
        spec = decoder.head_spec(self._config, layer, weights)
        kept = self.cache[layer.kv_source]
        out, k, v = self._attend_rows(spec, qkv, *self._turns[layer.kind], kept.k, kept.v, *self._rows)
        if layer.owns_kv:
            self.cache[layer.index] = LayerCache(k, v)
        return out


class PlainAttention:
    """Attention composed of plain JAX; `cache` is the updated cache afterwards."""

    def __init__(
        self, config: ModelConfig, positions: jax.Array, keeper: DecodeAttention | PrefillAttention
    ) -> None:
        self._keeper = keeper
        self._attend = decoder.on_heads(config, positions, keeper)

    @property
    def cache(self) -> Cache:
        return self._keeper.cache

    def __call__(self, layer: LayerSpec, weights: Params, qkv: jax.Array) -> jax.Array:
        return self._attend(layer, weights, qkv)


def of_step(
    config: ModelConfig,
    attend_rows: AttendRows | None,
    cache: Cache,
    positions: jax.Array,
    active: jax.Array,
) -> RowsAttention | PlainAttention:
    """Attention of one new token in each of the first B slots.

    Args:
        attend_rows: the kernels' operation, None for plain JAX.
        positions, active: [B], see cache.DecodeAttention.
    """
    if attend_rows is None:
        return PlainAttention(config, positions, DecodeAttention(config, cache, positions, active))
    slots = jnp.arange(positions.size, dtype=jnp.int32)
    return RowsAttention(config, attend_rows, cache, slots, positions, active)


def of_chunk(
    config: ModelConfig, attend_rows: AttendRows | None, cache: Cache, chunk: Chunk
) -> RowsAttention | PlainAttention:
    """Attention of rows of prompts, in the layers that write a cache."""
    if attend_rows is None:
        keeper = PrefillAttention(config, cache, chunk.slots[0], chunk.positions[0], chunk.valid)
        return PlainAttention(config, chunk.positions, keeper)
    real = jnp.arange(chunk.tokens.size) < chunk.valid
    return RowsAttention(config, attend_rows, cache, chunk.slots, chunk.positions, real)
