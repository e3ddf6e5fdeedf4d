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
from onechip.models.decoder import Attend
from onechip.models.layout import Params


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Chunk:
    """A chunk of a prompt: tokens [T] int32 (padded with 0), and scalars, see scheduler.PrefillChunk."""

    tokens: Leaf
    slot: Leaf
    start: Leaf
    valid: Leaf
    is_last: Leaf


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


class StepAttention:
    """Attention of one new token in each of the first B slots.

    Args:
        attend_rows: the kernels' operation, None for plain JAX.
        positions, active: [B], see cache.DecodeAttention.
    """

    def __init__(
        self,
        config: ModelConfig,
        attend_rows: AttendRows | None,
        cache: Cache,
        positions: jax.Array,
        active: jax.Array,
    ) -> None:
        self._keeper: DecodeAttention | RowsAttention
        if attend_rows is None:
            plain = self._keeper = DecodeAttention(config, cache, positions, active)
            self.of_all: Attend = decoder.on_heads(config, positions, plain)
        else:
            slots = jnp.arange(positions.size, dtype=jnp.int32)
            self.of_all = self._keeper = RowsAttention(config, attend_rows, cache, slots, positions, active)

    @property
    def cache(self) -> Cache:
        """The cache with what was written so far."""
        return self._keeper.cache


class ChunkAttention:
    """Attention of a chunk of one slot's prompt: all rows where a cache is written, else the last."""

    def __init__(
        self, config: ModelConfig, attend_rows: AttendRows | None, cache: Cache, chunk: Chunk
    ) -> None:
        self._config, self._attend_rows, self._chunk = config, attend_rows, chunk
        self._positions = chunk.start + jnp.arange(chunk.tokens.shape[0])
        self._keeper: PrefillAttention | RowsAttention
        if attend_rows is None:
            plain = self._keeper = PrefillAttention(config, cache, chunk.slot, chunk.start, chunk.valid)
            self.of_all: Attend = decoder.on_heads(config, self._positions, plain)
        else:
            slots = jnp.full_like(self._positions, chunk.slot)
            active = jnp.arange(self._positions.size) < chunk.valid
            self.of_all = self._keeper = RowsAttention(
                config, attend_rows, cache, slots, self._positions, active
            )

    @property
    def cache(self) -> Cache:
        """The cache with what was written so far."""
        return self._keeper.cache

    @property
    def of_last(self) -> Attend:
        """For the last row alone, after all layers that write a cache have run."""
        last = jax.lax.dynamic_slice_in_dim(self._positions, self._chunk.valid - 1, 1)
        if self._attend_rows is None:
            assert isinstance(self._keeper, PrefillAttention)
            return decoder.on_heads(self._config, last, self._keeper)
        slot = jnp.reshape(self._chunk.slot, 1)
        here = jnp.ones(1, bool)
        return RowsAttention(self._config, self._attend_rows, self.cache, slot, last, here)
