"""Every compiled program: what it computes, its name and its shapes. Nothing is compiled anywhere else.

    init             -> State                                      empty caches
    prefill[T]       State, a chunk of one slot's prompt -> State, its next token   for each chunk bucket T
    decode[B]        State, which slots are active -> State, tokens [steps, B]      for each row bucket B

State stays on the device and is donated from call to call. Prefill runs the layers that write no cache, and
the head, only for the last row of a prompt's last chunk: exact, because nothing reads what the other rows
would give.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

from onechip.engine import cache, sampling
from onechip.engine.cache import Cache, DecodeAttention, PrefillAttention
from onechip.engine.plan import Plan
from onechip.engine.sampling import SamplingRows
from onechip.kernels.api import Leaf
from onechip.models import decoder
from onechip.models.architecture import ModelConfig
from onechip.models.layout import Params


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class State:
    """What the device keeps between programs.

    Attributes:
        cache: rings and spans of every slot.
        tokens: [slots] int32, each slot's newest token, not yet run through the model.
        positions: [slots] int32, where that token stands.
        rows: each slot's sampling parameters.
    """

    cache: Cache
    tokens: jax.Array
    positions: jax.Array
    rows: SamplingRows


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Chunk:
    """A chunk of a prompt: tokens [T] int32 (padded with 0), and scalars, see scheduler.PrefillChunk."""

    tokens: Leaf
    slot: Leaf
    start: Leaf
    valid: Leaf
    is_last: Leaf


@dataclass(frozen=True)
class Program:
    """A function to compile for these shapes; the result takes over the memory of argument `donated`."""

    name: str
    function: Callable[..., Any]
    arguments: tuple[Any, ...]
    donated: int | None = None


def _empty_state(config: ModelConfig, plan: Plan) -> State:
    def column(row: Any) -> jax.Array:
        return jnp.tile(jnp.asarray(row), (plan.slots,) + (1,) * (row.ndim - 1))

    return State(
        cache=cache.empty(config, plan.slots, plan.context, plan.activation_dtype),
        tokens=jnp.zeros(plan.slots, jnp.int32),
        positions=jnp.zeros(plan.slots, jnp.int32),
        rows=jax.tree.map(column, sampling.rows_of()),
    )


def prefill(
    config: ModelConfig, dtype: jnp.dtype, params: Params, state: State, chunk: Chunk, row: SamplingRows
) -> tuple[State, jax.Array]:
    """Run one chunk, and choose the first token if it is the last -> (state, token, a scalar int32)."""
    positions = chunk.start + jnp.arange(chunk.tokens.shape[0])
    hidden, ple = decoder.embed(config, params, chunk.tokens, dtype)
    attend = PrefillAttention(config, state.cache, chunk.slot, chunk.start, chunk.valid)
    own = config.first_shared
    hidden = decoder.run_layers(config, params, hidden, ple, positions, attend, last=own)

    def last_row(rows: jax.Array) -> jax.Array:
        return lax.dynamic_slice_in_dim(rows, chunk.valid - 1, 1)

    def first_token() -> jax.Array:
        end = last_row(positions)
        out = decoder.run_layers(config, params, last_row(hidden), last_row(ple), end, attend, first=own)
        scores = decoder.logits(config, params, out)
        return sampling.choose(scores, row, end + 1, jnp.ones(1, bool))[0]

    token = lax.cond(chunk.is_last, first_token, lambda: jnp.int32(0))
    return State(
        cache=attend.cache,
        tokens=state.tokens.at[chunk.slot].set(token),
        positions=state.positions.at[chunk.slot].set(chunk.start + chunk.valid),
        rows=jax.tree.map(lambda all_, one: all_.at[chunk.slot].set(one[0]), state.rows, row),
    ), token


def decode_step(
    config: ModelConfig,
    dtype: jnp.dtype,
    params: Params,
    kept: Cache,
    tokens: jax.Array,
    positions: jax.Array,
    active: jax.Array,
) -> tuple[Cache, jax.Array]:
    """One token [B] of each of the first B slots at its position [B] -> (cache, logits [B, V] float32)."""
    hidden, ple = decoder.embed(config, params, tokens, dtype)
    attend = DecodeAttention(config, kept, positions, active)
    hidden = decoder.run_layers(config, params, hidden, ple, positions, attend)
    return attend.cache, decoder.logits(config, params, hidden)


def decode(
    config: ModelConfig, dtype: jnp.dtype, steps: int, params: Params, state: State, active: jax.Array
) -> tuple[State, jax.Array]:
    """`steps` tokens for each active slot among the first B -> (state, tokens [steps, B]); idle slots stay as
    they are.
    """
    count = active.shape[0]
    rows = jax.tree.map(lambda column: column[:count], state.rows)

    def step(carry: tuple[Cache, jax.Array, jax.Array], _: None) -> tuple[Any, jax.Array]:
        kept, tokens, positions = carry
        kept, scores = decode_step(config, dtype, params, kept, tokens, positions, active)
        chosen = sampling.choose(scores, rows, positions + 1, active)
        tokens = jnp.where(active, chosen, tokens)
        return (kept, tokens, positions + active), tokens

    start = (state.cache, state.tokens[:count], state.positions[:count])
    (kept, tokens, positions), out = lax.scan(step, start, None, length=steps)
    return replace(
        state,
        cache=kept,
        tokens=state.tokens.at[:count].set(tokens),
        positions=state.positions.at[:count].set(positions),
    ), out


def _shape(dtype: Any, *shape: int) -> Leaf:
    return jax.ShapeDtypeStruct(shape, dtype)  # type: ignore[no-untyped-call]


def _shape_of(leaf: Leaf) -> Leaf:
    return _shape(leaf.dtype, *leaf.shape)


def _prefill_program(config: ModelConfig, plan: Plan, params: Params, state: State, bucket: int) -> Program:
    number = _shape(jnp.int32)
    chunk = Chunk(
        tokens=_shape(jnp.int32, bucket),
        slot=number,
        start=number,
        valid=number,
        is_last=_shape(jnp.bool_),
    )
    row = jax.tree.map(_shape_of, sampling.rows_of())

    def run(params: Params, state: State, chunk: Chunk, row: SamplingRows) -> tuple[State, jax.Array]:
        return prefill(config, plan.activation_dtype, params, state, chunk, row)

    return Program(f"prefill[{bucket}]", run, (params, state, chunk, row), donated=1)


def _decode_program(config: ModelConfig, plan: Plan, params: Params, state: State, bucket: int) -> Program:
    def run(params: Params, state: State, active: jax.Array) -> tuple[State, jax.Array]:
        return decode(config, plan.activation_dtype, plan.window, params, state, active)

    active = _shape(jnp.bool_, bucket)
    return Program(f"decode[{bucket}]", run, (params, state, active), donated=1)


def listing(config: ModelConfig, plan: Plan, params: Params) -> list[Program]:
    """All programs of an engine; `params` may be arrays or their shapes."""
    shapes = jax.tree.map(_shape_of, params)
    init = Program("init", lambda: _empty_state(config, plan), ())
    state = jax.eval_shape(init.function)
    return [
        init,
        *(_prefill_program(config, plan, shapes, state, bucket) for bucket in plan.chunk_buckets),
        *(_decode_program(config, plan, shapes, state, bucket) for bucket in plan.row_buckets),
    ]
