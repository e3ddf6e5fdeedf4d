"""Logits and each row's sampling parameters in, next token ids out; everything on the device.

A row's choice depends on its own logits, seed and position alone, never on who shares the batch. Filters find
their thresholds by bisection over the order of the float's bits instead of sorting: exact, and without the
cost of sorting 262,144 logits a row.
"""

from __future__ import annotations

from dataclasses import dataclass

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from onechip.engine.types import MAX_STOP_IDS, NO_TOKEN, SamplingParams
from onechip.kernels import xla
from onechip.kernels.api import Draw, Leaf

DROPPED = -jnp.inf


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class SamplingRows:
    """Sampling parameters of each row; see types.SamplingParams.

    Attributes:
        draw: how a token is chosen.
        free_from: [rows] int32, the first position at which a stop id may stand (prompt length + min_tokens).
        stop_ids: [rows, MAX_STOP_IDS] int32, padded with -1.
    """

    draw: Draw
    free_from: Leaf
    stop_ids: Leaf


def rows_of(
    params: SamplingParams | None = None, prompt_length: int = 0, stop_ids: tuple[int, ...] = ()
) -> SamplingRows:
    """One request's parameters as NumPy arrays of one row; greedy if there is none."""
    params = params or SamplingParams()
    stops = np.full((1, MAX_STOP_IDS), -1, np.int32)
    stops[0, : len(stop_ids)] = stop_ids
    return SamplingRows(
        draw=Draw(
            temperature=np.array([params.temperature], np.float32),
            top_k=np.array([params.top_k], np.int32),
            top_p=np.array([params.top_p], np.float32),
            min_p=np.array([params.min_p], np.float32),
            seed=np.array([params.seed], np.uint32),
        ),
        free_from=np.array([prompt_length + params.min_tokens], np.int32),
        stop_ids=stops,
    )


def banned_stops(rows: SamplingRows, positions: jax.Array) -> jax.Array:
    """Stop ids [rows, MAX_STOP_IDS] of rows whose position [rows] is before `free_from`; -1 elsewhere."""
    return jnp.where((positions < rows.free_from)[:, None], rows.stop_ids, -1)


def _ordered_bits(values: jax.Array) -> jax.Array:
    """Float32 -> uint32 with the same order."""
    bits = lax.bitcast_convert_type(values, jnp.uint32)
    negative = bits >> 31 == 1
    return jnp.where(negative, ~bits, bits | jnp.uint32(1 << 31))


def _threshold(keys: jax.Array, weights: jax.Array, target: jax.Array) -> jax.Array:
    """Per row, the largest key t for which the weights of all keys >= t add up to at least `target`.

    Args:
        keys: [rows, V] uint32.
        weights: [rows, V] float32, not negative.
        target: [rows] float32; if all weights together don't reach it, t is 0 (everything is kept).
    """

    def narrow(index: int, t: jax.Array) -> jax.Array:
        raised = t | (jnp.uint32(1) << jnp.uint32(31 - index))
        reached = jnp.sum(jnp.where(keys >= raised[:, None], weights, 0.0), axis=-1) >= target
        return jnp.where(reached, raised, t)

    lowest = jnp.zeros(keys.shape[0], jnp.uint32)
    threshold: jax.Array = lax.fori_loop(0, 32, narrow, lowest)
    return threshold


def filtered(logits: jax.Array, wishes: Draw) -> jax.Array:
    """Logits [rows, V] -> divided by temperature, with -inf where min_p, top_k and top_p drop a token.

    The order is vLLM's: temperature, min_p, top_k, top_p (over what top_k left). Ties at a threshold are
    kept.
    """
    scaled = logits / jnp.maximum(wishes.temperature, 1e-6)[:, None]
    floor = scaled.max(-1) + jnp.where(wishes.min_p > 0, jnp.log(wishes.min_p), DROPPED)
    scaled = jnp.where(scaled >= floor[:, None], scaled, DROPPED)

    keys = _ordered_bits(scaled)
    vocabulary = scaled.shape[-1]
    k = jnp.where((wishes.top_k > 0) & (wishes.top_k < vocabulary), wishes.top_k, vocabulary)
    kept = keys >= _threshold(keys, jnp.ones_like(scaled), k.astype(jnp.float32))[:, None]
    scaled = jnp.where(kept, scaled, DROPPED)

    keys = _ordered_bits(scaled)
    probabilities = jax.nn.softmax(scaled, axis=-1)
    in_nucleus = keys >= _threshold(keys, probabilities, wishes.top_p)[:, None]
    return jnp.where(in_nucleus | (wishes.top_p >= 1)[:, None], scaled, DROPPED)


def _noise(seed: jax.Array, position: jax.Array, vocabulary: int) -> jax.Array:
    """Gumbel noise [V] of one row: a function of (seed, position) alone."""
    return jax.random.gumbel(jax.random.fold_in(jax.random.key(seed), position), (vocabulary,))


def choose(
    scores: jax.Array, wishes: Draw, positions: jax.Array, banned: jax.Array, softcap: float | None
) -> jax.Array:
    """See kernels.api.DrawTokens; drawn by Gumbel-max."""
    scores = xla.ban(scores, banned)
    greedy = xla.argmax(scores)
    noise = jax.vmap(_noise, (0, 0, None))(wishes.seed, positions, scores.shape[-1])
    drawn = xla.argmax(filtered(xla.softcap(scores, softcap), wishes) + noise)
    return jnp.where((wishes.temperature > 0) & (greedy != NO_TOKEN), drawn, greedy)
