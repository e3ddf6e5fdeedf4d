"""Keys and values of every slot: rings for sliding layers, spans for full layers, and how layers read and
write them.

A ring keeps the last `sliding_window` positions of a slot, position p at index p mod window. A span keeps
position p at index p. Layers without K and V of their own read their source's. Padded or idle rows write
nothing.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

from onechip.kernels import xla
from onechip.kernels.api import SPAN_BLOCK, Leaf
from onechip.models.architecture import LayerSpec, ModelConfig


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class LayerCache:
    """k, v: [slots, kv_heads, window or capacity, head_dim], in the dtype of `xla.stored_dtype`."""

    k: jax.Array
    v: jax.Array


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Moves:
    """Rows of the cache that are copied: see prefixes.Copies. Rows of rings from the number of slots on are
    kept ones.

    Attributes:
        keeps, rings: [n, 2] int32, from and to.
        spans: [n, 3] int32, from, to, tokens.
        counts: [3] int32, how many of each are real.
    """

    keeps: Leaf
    rings: Leaf
    spans: Leaf
    counts: Leaf


Cache = dict[int, LayerCache]
"""One LayerCache for each layer that owns one, by layer index."""


def capacity_of(context: int) -> int:
    """Positions that a span holds for a context: whole blocks."""
    return -(-context // SPAN_BLOCK) * SPAN_BLOCK


def shapes(
    config: ModelConfig, slots: int, context: int, dtype: jnp.dtype
) -> dict[int, jax.ShapeDtypeStruct]:
    """Shape of k (and of v) for each layer that owns a cache; `dtype` is that of the activations."""
    stored = xla.stored_dtype(dtype)

    def length(layer: LayerSpec) -> int:
        return config.sliding_window if layer.kind == "sliding" else capacity_of(context)

    return {
        layer.index: jax.ShapeDtypeStruct(  # type: ignore[no-untyped-call]
            (slots, layer.kv_heads, length(layer), layer.head_dim), stored
        )
        for layer in config.own_layers
    }


def empty(config: ModelConfig, slots: int, context: int, dtype: jnp.dtype) -> Cache:
    """Allocate every ring and span."""
    return _zeros(shapes(config, slots, context, dtype))


def kept_shapes(config: ModelConfig, rows: int, dtype: jnp.dtype) -> dict[int, jax.ShapeDtypeStruct]:
    """As `shapes`, of rings that no slot owns."""
    if not rows:
        return {}
    sliding = {layer.index for layer in config.own_layers if layer.kind == "sliding"}
    return {index: shape for index, shape in shapes(config, rows, 1, dtype).items() if index in sliding}


def empty_kept(config: ModelConfig, rows: int, dtype: jnp.dtype) -> Cache:
    """Allocate the kept rings."""
    return _zeros(kept_shapes(config, rows, dtype))


def _zeros(shapes: dict[int, jax.ShapeDtypeStruct]) -> Cache:
    return {
        index: LayerCache(jnp.zeros(shape.shape, shape.dtype), jnp.zeros(shape.shape, shape.dtype))
        for index, shape in shapes.items()
    }


def _copied(
    source: jax.Array, target: jax.Array, rows: tuple[Any, Any], first: jax.Array | int, size: int
) -> jax.Array:
    """`target` with `size` positions of a row of `source` in one of its own; rows are (from, to)."""
    piece = lax.dynamic_slice(source, (rows[0], 0, first, 0), (1, source.shape[1], size, source.shape[3]))
    return lax.dynamic_update_slice(target, piece, (rows[1], 0, first, 0))


def _fetched(rings: jax.Array, kept: jax.Array, row: jax.Array, slot: jax.Array) -> jax.Array:
    """`rings` with one of its rows, or of the kept ones that are counted behind them, in a slot."""
    own = lax.dynamic_index_in_dim(rings, row)
    stored = lax.dynamic_index_in_dim(kept, row - rings.shape[0])
    return lax.dynamic_update_slice(rings, jnp.where(row < rings.shape[0], own, stored), (slot, 0, 0, 0))


def move(config: ModelConfig, cache: Cache, kept: Cache, moves: Moves) -> tuple[Cache, Cache]:
    """Copy rings and spans between rows, first those that are to be kept -> (cache, kept rings)."""
    window = config.sliding_window
    spans = {index: layer for index, layer in cache.items() if config.layers[index].kind == "full"}
    rings = {index: layer for index, layer in cache.items() if index not in spans}

    def keep(number: jax.Array, kept: Cache) -> Any:
        slot, row = moves.keeps[number]
        slots = next(iter(rings.values())).k.shape[0]
        return jax.tree.map(partial(_copied, rows=(slot, row - slots), first=0, size=window), rings, kept)

    def move_ring(number: jax.Array, rings: Cache) -> Any:
        row, slot = moves.rings[number]
        if not kept:
            return jax.tree.map(partial(_copied, rows=(row, slot), first=0, size=window), rings, rings)
        return jax.tree.map(partial(_fetched, row=row, slot=slot), rings, kept)

    def move_span(number: jax.Array, spans: Cache) -> Any:
        source, target, tokens = moves.spans[number]

        def block(index: jax.Array, spans: Cache) -> Any:
            first = index * SPAN_BLOCK
            copy = partial(_copied, rows=(source, target), first=first, size=SPAN_BLOCK)
            return jax.tree.map(copy, spans, spans)

        return lax.fori_loop(0, (tokens + SPAN_BLOCK - 1) // SPAN_BLOCK, block, spans)

    kept = lax.fori_loop(0, moves.counts[0], keep, kept) if kept else kept
    rings = lax.fori_loop(0, moves.counts[1], move_ring, rings) if rings else rings
    spans = lax.fori_loop(0, moves.counts[2], move_span, spans) if spans else spans
    return {index: (rings | spans)[index] for index in cache}, kept


def _ring_positions(last: jax.Array, window: int) -> jax.Array:
    """Position held at each ring index when `last` [...] was the last written: [..., window], negative if
    none.
    """
    last = last[..., None]
    return last - jnp.mod(last - jnp.arange(window), window)


def _write(array: jax.Array, slots: jax.Array | int, indices: jax.Array, rows: jax.Array) -> jax.Array:
    """array[slots[i], :, indices[i]] = rows[i] [n, kv, D]; indices past the end are dropped."""
    return array.at[slots, :, indices].set(xla.to_stored(rows), mode="drop")


class DecodeAttention:
    """Attention of one new token in each of the first B slots; `cache` is the updated cache afterwards.

    Args:
        positions: [B] int32, where each slot's token stands.
        active: [B] bool; idle slots write nothing and what they read has no meaning.
    """

    def __init__(self, config: ModelConfig, cache: Cache, positions: jax.Array, active: jax.Array) -> None:
        self.cache = dict(cache)
        self._window = config.sliding_window
        self._positions = positions
        self._active = active
        self._end = jnp.max(jnp.where(active, positions, -1)) + 1

    def __call__(self, layer: LayerSpec, q: jax.Array, k: jax.Array | None, v: jax.Array | None) -> jax.Array:
        if k is not None and v is not None:
            self._store(layer, k, v)
        kept = self.cache[layer.kv_source]
        rows = q.shape[0]
        if layer.kind == "full":
            out = xla.attend_span(q[:, None], kept.k, kept.v, 0, self._positions[:, None], self._end)
        else:
            visible = _ring_positions(self._positions, self._window) >= 0
            k, v = (xla.from_stored(array[:rows], q.dtype) for array in (kept.k, kept.v))
            out = xla.attend(q[:, None], k, v, visible[:, None])
        return out[:, 0]

    def _store(self, layer: LayerSpec, k: jax.Array, v: jax.Array) -> None:
        kept = self.cache[layer.index]
        length = kept.k.shape[2]
        index = self._positions % self._window if layer.kind == "sliding" else self._positions
        index = jnp.where(self._active, index, length)
        slots = jnp.arange(k.shape[0])
        self.cache[layer.index] = LayerCache(_write(kept.k, slots, index, k), _write(kept.v, slots, index, v))


class PrefillAttention:
    """Attention of a chunk of one slot's prompt; `cache` is the updated cache afterwards.

    Args:
        slot, start, valid: scalars; rows 0..valid-1 of the chunk stand at positions start.., the rest is
            padding.
    """

    def __init__(
        self, config: ModelConfig, cache: Cache, slot: jax.Array, start: jax.Array, valid: jax.Array
    ) -> None:
        self.cache = dict(cache)
        self._window = config.sliding_window
        self._slot, self._start, self._valid = slot, start, valid
        self._last = start + valid - 1
        self._in_window: dict[int, tuple[jax.Array, jax.Array]] = {}

    def __call__(self, layer: LayerSpec, q: jax.Array, k: jax.Array | None, v: jax.Array | None) -> jax.Array:
        rows = q.shape[0]
        if k is not None and v is not None:
            if layer.kind == "sliding":
                before = self.cache[layer.index]
                self._in_window[layer.index] = self._joined(k, before.k), self._joined(v, before.v)
            self._store(layer, k, v)
        if layer.kind == "sliding":
            return xla.attend(q[None], *self._in_window[layer.kv_source], self._seen(rows))[0]
        kept, positions = self.cache[layer.kv_source], self._start + jnp.arange(rows)
        return xla.attend_span(q[None], kept.k, kept.v, self._slot, positions[None], self._last + 1)[0]

    def _joined(self, fresh: jax.Array, stored: jax.Array) -> jax.Array:
        """[1, kv, window + rows, D]: the slot's ring as it was, and the chunk's rows [rows, kv, D] behind."""
        ring = xla.from_stored(lax.dynamic_index_in_dim(stored, self._slot, keepdims=False), fresh.dtype)
        return jnp.concatenate([ring, fresh.swapaxes(0, 1)], axis=1)[None]

    def _seen(self, rows: int) -> jax.Array:
        """[1, rows, window + rows] bool, which of the joined keys each row sees."""
        positions = self._start + jnp.arange(rows)
        before = _ring_positions(self._start - 1, self._window)
        key_positions = jnp.concatenate([before, positions])
        distance = positions[:, None] - key_positions
        return ((distance >= 0) & (distance < self._window) & (key_positions >= 0))[None]

    def _store(self, layer: LayerSpec, k: jax.Array, v: jax.Array) -> None:
        kept, rows = self.cache[layer.index], jnp.arange(k.shape[0])
        positions, stays = self._start + rows, rows < self._valid
        index = positions
        if layer.kind == "sliding":
            stays &= positions > self._last - self._window
            index = positions % self._window
        index = jnp.where(stays, index, kept.k.shape[2])
        self.cache[layer.index] = LayerCache(
            _write(kept.k, self._slot, index, k), _write(kept.v, self._slot, index, v)
        )
