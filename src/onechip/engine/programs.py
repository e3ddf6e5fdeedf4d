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
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

from onechip.engine import cache, sampling
from onechip.engine.attention import Chunk, ChunkAttention, StepAttention
from onechip.engine.cache import Cache
from onechip.engine.plan import Plan
from onechip.engine.sampling import SamplingRows
from onechip.kernels.api import AttendRows, Kernels, Leaf
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


@dataclass(frozen=True)
class Computation:
    """What all programs of an engine have in common.

    Attributes:
        kernels: who multiplies.
        dtype: of the activations.
    """

    config: ModelConfig
    kernels: Kernels
    dtype: jnp.dtype

    @property
    def attend_rows(self) -> AttendRows | None:
        """The kernels' own attention, if they have it for this model."""
        return self.kernels.attend_rows({layer.head_dim for layer in self.config.layers})

    def next_tokens(
        self,
        params: Params,
        hidden: jax.Array,
        rows: SamplingRows,
        positions: jax.Array,
        active: jax.Array,
    ) -> jax.Array:
        """Hidden rows [B, H] after the last layer -> the tokens [B] that will stand at positions [B].

        Where nobody draws, logits are not written out: the kernels look for the largest as they multiply.
        """
        norm, weight = decoder.head(self.config, params)
        banned = sampling.banned_stops(rows, positions)

        def draw() -> jax.Array:
            scores = self.kernels.logits(hidden, weight, norm=norm)
            choose = self.kernels.draw or sampling.choose
            return choose(scores, rows.draw, positions, banned, self.config.softcap)

        def greedy() -> jax.Array:
            return self.kernels.greedy(hidden, weight, norm=norm, banned=banned)

        chosen: jax.Array = lax.cond(jnp.any(active & (rows.draw.temperature > 0)), draw, greedy)
        return chosen


def _run_chunk(
    model: Computation, params: Params, kept: Cache, chunk: Chunk
) -> tuple[Cache, Callable[[], jax.Array]]:
    """Run a chunk through the layers that write a cache.

    Returns:
        The cache, and a function that runs the chunk's last row through the other layers -> hidden [1, H].
    """
    config, kernels = model.config, model.kernels
    own = config.first_shared
    of_chunk = kernels.first_rows(chunk.valid)
    attention = ChunkAttention(config, model.attend_rows, kept, chunk)
    hidden, ple = decoder.embed(config, of_chunk, params, chunk.tokens, model.dtype)
    hidden = decoder.run_layers(config, of_chunk, params, hidden, ple, attention.of_all, last=own)

    def last_row() -> jax.Array:
        row, row_ple = (lax.dynamic_slice_in_dim(rows, chunk.valid - 1, 1) for rows in (hidden, ple))
        return decoder.run_layers(config, kernels, params, row, row_ple, attention.of_last, first=own)

    return attention.cache, last_row


def prefill(
    model: Computation, params: Params, state: State, chunk: Chunk, row: SamplingRows
) -> tuple[State, jax.Array]:
    """Run one chunk, and choose the first token if it is the last -> (state, token, a scalar int32)."""
    kept, last_row = _run_chunk(model, params, state.cache, chunk)
    after = chunk.start + chunk.valid

    def first_token() -> jax.Array:
        return model.next_tokens(params, last_row(), row, after[None], jnp.ones(1, bool))[0]

    token = lax.cond(chunk.is_last, first_token, lambda: jnp.int32(0))
    return State(
        cache=kept,
        tokens=state.tokens.at[chunk.slot].set(token),
        positions=state.positions.at[chunk.slot].set(after),
        rows=jax.tree.map(lambda all_, one: all_.at[chunk.slot].set(one[0]), state.rows, row),
    ), token


def decode_step(
    model: Computation,
    params: Params,
    kept: Cache,
    tokens: jax.Array,
    positions: jax.Array,
    active: jax.Array,
) -> tuple[Cache, jax.Array]:
    """One token [B] of each of the first B slots at its position [B] -> (cache, hidden [B, H])."""
    config, kernels = model.config, model.kernels
    attention = StepAttention(config, model.attend_rows, kept, positions, active)
    hidden, ple = decoder.embed(config, kernels, params, tokens, model.dtype)
    hidden = decoder.run_layers(config, kernels, params, hidden, ple, attention.of_all)
    return attention.cache, hidden


def decode(
    model: Computation, steps: int, params: Params, state: State, active: jax.Array
) -> tuple[State, jax.Array]:
    """`steps` tokens for each active slot among the first B -> (state, tokens [steps, B]); idle slots stay as
    they are.
    """
    count = active.shape[0]
    last = jnp.max(jnp.where(active, jnp.arange(1, count + 1, dtype=jnp.int32), 0))
    model = replace(model, kernels=model.kernels.first_rows(last))
    rows = jax.tree.map(lambda column: column[:count], state.rows)

    def step(carry: tuple[Cache, jax.Array, jax.Array], _: None) -> tuple[Any, jax.Array]:
        kept, tokens, positions = carry
        kept, hidden = decode_step(model, params, kept, tokens, positions, active)
        chosen = model.next_tokens(params, hidden, rows, positions + 1, active)
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


def _prefill_program(model: Computation, params: Params, state: State, bucket: int) -> Program:
    number = _shape(jnp.int32)
    chunk = Chunk(
        tokens=_shape(jnp.int32, bucket),
        slot=number,
        start=number,
        valid=number,
        is_last=_shape(jnp.bool_),
    )
    row = jax.tree.map(_shape_of, sampling.rows_of())
    run = partial(prefill, model)
    return Program(f"prefill[{bucket}]", run, (params, state, chunk, row), donated=1)


def _decode_program(model: Computation, steps: int, params: Params, state: State, bucket: int) -> Program:
    active = _shape(jnp.bool_, bucket)
    run = partial(decode, model, steps)
    return Program(f"decode[{bucket}]", run, (params, state, active), donated=1)


def listing(config: ModelConfig, plan: Plan, kernels: Kernels, params: Params) -> list[Program]:
    """All programs of an engine; `params` may be arrays or their shapes."""
    shapes = jax.tree.map(_shape_of, params)
    model = Computation(config, kernels, plan.activation_dtype)
    init = Program("init", partial(_empty_state, config, plan), ())
    state = jax.eval_shape(init.function)
    return [
        init,
        *(_prefill_program(model, shapes, state, bucket) for bucket in plan.chunk_buckets),
        *(_decode_program(model, plan.window, shapes, state, bucket) for bucket in plan.row_buckets),
    ]
