"""Logits and each row's sampling parameters in, next token ids out; everything on the device.

A row's choice depends on its own logits, seed and position alone, never on who shares the batch. Filters find
their thresholds by bisection over the order of the float's bits instead of sorting: exact, and without the
cost of sorting 262,144 logits a row.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from onechip.engine.types import MAX_LOGIT_BIAS, MAX_LOGPROBS, MAX_STOP_IDS, NO_TOKEN, SamplingParams
from onechip.kernels import xla
from onechip.kernels.api import Draw, DrawTokens, Leaf

DROPPED = -jnp.inf
WORD = 32
"""Tokens of one word of a mask."""

LEAST_TEMPERATURE = 1e-6
"""What lower ones, but for 0, are taken for: quotients by them would not be finite numbers."""

BLOCK_ROWS = 8
"""Rows that steered tokens are chosen of at a time: rows that nobody needs are not looked at."""

SCORED_ROWS = 32
"""Rows of a prompt that have logits at a time."""

SEARCHED = 128
"""Neighbours of which only the largest is looked at first, in the search for the likeliest tokens."""


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class SamplingRows:
    """Sampling parameters of each row; see types.SamplingParams.

    Attributes:
        draw: how a token is chosen.
        free_from: [rows] int32, the first position at which a stop id may stand (prompt length + min_tokens).
        stop_ids: [rows, MAX_STOP_IDS] int32, padded with -1.
        last: [rows] int32, the position of the last token that may be chosen.
    """

    draw: Draw
    free_from: Leaf
    stop_ids: Leaf
    last: Leaf


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
        last=np.array([prompt_length + params.max_tokens - 1], np.int32),
    )


def banned_stops(rows: SamplingRows, positions: jax.Array) -> jax.Array:
    """Stop ids [rows, MAX_STOP_IDS] of rows whose position [rows] is before `free_from`; -1 elsewhere."""
    return jnp.where((positions < rows.free_from)[:, None], rows.stop_ids, -1)


def ends(rows: SamplingRows, tokens: jax.Array, positions: jax.Array) -> jax.Array:
    """Whether the tokens [rows] that were chosen for these positions end their rows' answers: [rows] bool."""
    stops = jnp.any(tokens[:, None] == rows.stop_ids, axis=-1)
    ended: jax.Array = stops | (tokens == NO_TOKEN) | (positions >= rows.last)
    return ended


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
    scaled = logits / jnp.maximum(wishes.temperature, LEAST_TEMPERATURE)[:, None]
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
    capped = jnp.where(
        scores == DROPPED, DROPPED, xla.softcap(scores, softcap)
    )  # which would lift what is banned
    drawn = xla.argmax(filtered(capped, wishes) + noise)
    return jnp.where((wishes.temperature > 0) & (greedy != NO_TOKEN), drawn, greedy)


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Steer:
    """One step's masks, adjustments and wishes of every slot; S slots, V tokens.

    Attributes:
        allowed: [S, ceil(V / 32)] uint32, bit t % 32 of word t // 32 is set where token t may come.
        masked, adjusted, reported: [S] bool, whose mask, whose adjustments and whose log-probabilities
            matter.
        ids: [S, K] int32, tokens whose logits change; unused entries are V.
        scale, bias: [S, K] float32; a logit becomes logit / scale (logit * scale if negative) + bias.
    """

    allowed: Leaf
    masked: Leaf
    adjusted: Leaf
    reported: Leaf
    ids: Leaf
    scale: Leaf
    bias: Leaf


def words(vocabulary: int) -> int:
    """Words of a mask."""
    return -(-vocabulary // WORD)


def adjustable(vocabulary: int, context: int) -> int:
    """Tokens of one request whose logits can change (K): those of its text and those with a bias."""
    return min(vocabulary, context + MAX_LOGIT_BIAS)


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Wishes:
    """All that the choice of each row's next token depends on beside its scores.

    Attributes:
        draw: how it is chosen.
        positions: [rows] int32, where it will stand.
        banned: [rows, n] int32, see `banned_stops`.
        steer: what the host adds.
    """

    draw: Draw
    positions: jax.Array
    banned: jax.Array
    steer: Steer


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Chosen:
    """Tokens that were chosen, and log-probabilities where they were asked for (SamplingParams.logprobs).

    Attributes:
        tokens: [rows] int32.
        logprobs: [rows] float32, of the tokens.
        ranks: [rows] int32, of the tokens among all, 1 is the likeliest.
        top, top_logprobs: [rows, MAX_LOGPROBS] int32 and float32, the likeliest tokens, likeliest first. One
            that is the row's token has the same log-probability as there, but for the last bits.
    """

    tokens: jax.Array
    logprobs: jax.Array
    ranks: jax.Array
    top: jax.Array
    top_logprobs: jax.Array


def nothing_chosen(rows: int, vocabulary: int) -> Chosen:
    """What the choices of rows are written into."""
    most = min(MAX_LOGPROBS, vocabulary)
    tokens = jnp.zeros(rows, jnp.int32)
    top = jnp.zeros((rows, most), jnp.int32)
    return Chosen(tokens, jnp.zeros(rows), tokens, top, jnp.zeros((rows, most)))


def steered(
    scores: jax.Array, wishes: Wishes, end: jax.Array, draw: DrawTokens, softcap: float | None
) -> Chosen:
    """The next tokens of the first `end` rows of scores [rows, V] (before the softcap).

    A row that is neither masked nor adjusted gets what `draw` gives it.
    """
    size = math.gcd(scores.shape[0], BLOCK_ROWS)

    def block(scores: jax.Array, wishes: Wishes) -> Chosen:
        return _steered_block(scores, wishes, draw, softcap)

    return by_blocks(block, (scores, wishes), size, end, nothing_chosen(*scores.shape))


def by_blocks(
    block: Callable[..., Chosen], operands: tuple[Any, ...], size: int, end: jax.Array, chosen: Chosen
) -> Chosen:
    """`chosen` with what `block` makes of the first `end` rows of all operands, `size` rows at a time."""

    def put(index: jax.Array, chosen: Chosen) -> Chosen:
        first = index * size
        rows = jax.tree.map(lambda array: lax.dynamic_slice_in_dim(array, first, size), operands)

        def put_rows(array: jax.Array, found: jax.Array) -> jax.Array:
            return lax.dynamic_update_slice_in_dim(array, found, first, 0)

        merged: Chosen = jax.tree.map(put_rows, chosen, block(*rows))
        return merged

    result: Chosen = lax.fori_loop(0, (end + size - 1) // size, put, chosen)
    return result


def _steered_block(scores: jax.Array, wishes: Wishes, draw: DrawTokens, softcap: float | None) -> Chosen:
    """All rows of a few; see `steered`."""
    steer = wishes.steer

    def choose(scores: jax.Array, softcap: float | None) -> jax.Array:
        allowed: jax.Array = lax.cond(jnp.any(steer.masked), partial(_mask, steer=steer), lambda s: s, scores)
        return draw(allowed, wishes.draw, wishes.positions, wishes.banned, softcap)

    def with_adjusted(tokens: jax.Array) -> jax.Array:
        return jnp.where(steer.adjusted, choose(_adjust(scores, steer, softcap), None), tokens)

    tokens = choose(scores, softcap)
    tokens = lax.cond(jnp.any(steer.adjusted), with_adjusted, lambda tokens: tokens, tokens)

    def told() -> Chosen:
        return with_logprobs(_adjust(scores, steer, softcap), tokens, wishes.draw.temperature, None)

    def untold() -> Chosen:
        return replace(nothing_chosen(*scores.shape), tokens=tokens)

    chosen: Chosen = lax.cond(jnp.any(steer.reported), told, untold)
    return chosen


def _mask(scores: jax.Array, steer: Steer) -> jax.Array:
    """Scores with -inf where a masked row's bit is not set."""
    bits = (steer.allowed[:, :, None] >> jnp.arange(WORD, dtype=jnp.uint32)) & 1
    allowed = bits.reshape(scores.shape[0], -1)[:, : scores.shape[1]] == 1
    return jnp.where(allowed | ~steer.masked[:, None], scores, DROPPED)


def _adjust(scores: jax.Array, steer: Steer, softcap: float | None) -> jax.Array:
    """Scores -> logits after the softcap, penalties and bias; those that no row changes stay."""
    logits = xla.softcap(scores, softcap)
    row = jnp.arange(scores.shape[0])[:, None]
    old = logits.at[row, steer.ids].get(mode="fill", fill_value=0)
    new = jnp.where(old > 0, old / steer.scale, old * steer.scale) + steer.bias
    return logits.at[row, steer.ids].set(new, mode="drop")


def with_logprobs(
    scores: jax.Array, tokens: jax.Array, temperature: jax.Array, softcap: float | None
) -> Chosen:
    """Tokens [rows] with what is told of them, of scores [rows, V] before the softcap; see SamplingParams.

    The softcap leaves the order as it is, so the likeliest are looked for, and ranks are counted, before it.
    """

    def capped(scores: jax.Array) -> jax.Array:
        divisor = jnp.where(temperature > 0, jnp.maximum(temperature, LEAST_TEMPERATURE), 1)
        return xla.softcap(scores, softcap) / divisor[:, None]

    best, top = likeliest(scores, min(MAX_LOGPROBS, scores.shape[1]))
    own = jnp.take_along_axis(scores, jnp.maximum(tokens, 0)[:, None], axis=-1)
    ranks = 1 + jnp.sum(scores > own, axis=-1, dtype=jnp.int32)
    best, own = capped(best), capped(own)
    largest = best[:, :1]
    total = jnp.log(jnp.sum(jnp.exp(capped(scores) - largest), axis=-1, keepdims=True)) + largest
    return Chosen(tokens, (own - total)[:, 0], ranks, top, best - total)


def likeliest(scores: jax.Array, count: int) -> tuple[jax.Array, jax.Array]:
    """The `count` largest of each row of scores [rows, V], and where they stand [rows, count] int32; of equal
    ones the first. As lax.top_k, which is slow for so many: first, which blocks can have any.
    """
    rows, vocabulary = scores.shape
    missing = -vocabulary % SEARCHED
    padded = jnp.pad(scores, ((0, 0), (0, missing)), constant_values=DROPPED)
    blocks = padded.reshape(rows, -1, SEARCHED)
    found = lax.top_k(jnp.max(blocks, axis=-1), min(count, blocks.shape[1]))[1]
    found = jnp.sort(found, axis=-1)  # so that of equal scores the first stays first
    some = jnp.take_along_axis(blocks, found[:, :, None], axis=1).reshape(rows, -1)
    best, places = lax.top_k(some, count)
    block = jnp.take_along_axis(found, places // SEARCHED, axis=-1)
    return best, (block * SEARCHED + places % SEARCHED).astype(jnp.int32)
