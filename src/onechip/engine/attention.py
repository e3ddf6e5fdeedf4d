"""Attention as the layers of a program call it, over the cache: by the kernels' own operation where they have
one, else composed of plain JAX (`cache.DecodeAttention`, `cache.PrefillAttention`).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

from onechip.engine.cache import Cache, DecodeAttention, LayerCache, PrefillAttention
from onechip.kernels.api import AttendRows, HeadSpec, Leaf
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

    @property
    def real(self) -> jax.Array:
        """[T] bool, which rows are no padding."""
        real: jax.Array = jnp.arange(self.tokens.size) < self.valid
        return real


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
        spec = decoder.head_spec(self._config, layer, weights)
        out, written = self._attended(layer, spec, qkv, self.cache[layer.kv_source], *self._rows)
        if layer.owns_kv:
            self.cache[layer.index] = written
        return out

    def _attended(
        self, layer: LayerSpec, spec: HeadSpec, qkv: jax.Array, kept: LayerCache, *rows: jax.Array
    ) -> tuple[jax.Array, LayerCache]:
        if layer.kind not in self._turns:
            self._turns[layer.kind] = decoder.rope_turns(self._config, layer, rows[1])
        out, k, v = self._attend_rows(spec, qkv, *self._turns[layer.kind], kept.k, kept.v, *rows)
        return out, LayerCache(k, v)


class WholeChunkAttention(RowsAttention):
    """The same of a chunk of one slot's prompt in all layers, those too that read another's ring.

    Of a chunk that is written, a ring keeps what its last row sees; the rows before it have lost keys. So
    layers that share a ring write the chunk again, each into a copy of what the slot's ring was before.
    """

    def __init__(self, config: ModelConfig, attend_rows: AttendRows, cache: Cache, chunk: Chunk) -> None:
        super().__init__(config, attend_rows, cache, chunk.slots, chunk.positions, chunk.real)
        self._shared = {layer.kv_source for layer in config.layers if not layer.owns_kv}
        self._sources: dict[int, tuple[HeadSpec, jax.Array, LayerCache]] = {}

    def __call__(self, layer: LayerSpec, weights: Params, qkv: jax.Array) -> jax.Array:
        if layer.kind == "full":
            return super().__call__(layer, weights, qkv)
        if layer.owns_kv:
            if layer.index in self._shared:
                self._remember(layer, decoder.head_spec(self._config, layer, weights), qkv)
            return super().__call__(layer, weights, qkv)
        source, keys_values, before = self._sources[layer.kv_source]
        spec = decoder.head_spec(self._config, layer, weights)
        spec = replace(spec, owns_kv=True, k_eq_v=source.k_eq_v, k_norm=source.k_norm)
        slots, positions, active = self._rows
        qkv = jnp.concatenate([qkv, keys_values], axis=-1)
        return self._attended(layer, spec, qkv, before, jnp.zeros_like(slots), positions, active)[0]

    def _remember(self, layer: LayerSpec, spec: HeadSpec, qkv: jax.Array) -> None:
        kept, slot = self.cache[layer.index], self._rows[0][0]
        before = jax.tree.map(lambda rings: lax.dynamic_slice_in_dim(rings, slot, 1), kept)
        # Taken before the layer writes, or XLA would copy the rings of all slots to keep them as they are.
        barrier: Any = lax.optimization_barrier
        before, self.cache[layer.index] = barrier((before, kept))
        self._sources[layer.index] = spec, qkv[..., layer.heads * layer.head_dim :], before


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
    return RowsAttention(config, attend_rows, cache, chunk.slots, chunk.positions, chunk.real)


def of_whole_chunk(
    config: ModelConfig, attend_rows: AttendRows | None, cache: Cache, chunk: Chunk
) -> RowsAttention | PlainAttention:
    """Attention of rows of one prompt, in all layers."""
    if attend_rows is None:
        return of_chunk(config, attend_rows, cache, chunk)
    return WholeChunkAttention(config, attend_rows, cache, chunk)
