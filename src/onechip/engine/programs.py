"""The compiled programs: what each computes, its name and its shapes. All others are in scoring.py.

    init             -> State                                      empty caches
    prefill[T]       State, rows of prompts -> State                               for each chunk bucket T
    join             State, last tokens of prompts -> State
    decode[B]        State, which slots are active -> State, tokens [steps, B]      for each row bucket B
    move             State, rows of the cache -> State                             if prompts are reused
    forward          State, which slots are active -> State, scores [slots, V]
    choose           State, scores, what the host adds -> State, tokens [slots] and their log-probabilities

`forward` and `choose` together are one step of `decode` for all slots, cut where the next token is chosen:
the host finds out what may come next while the device computes.

State stays on the device and is donated from call to call. Prefill takes all tokens of a prompt but the last,
and runs the layers that write a cache, nothing else: exact, because nothing reads what the others would give.
The last token is run by the next decode step, among those of the other requests, and so gives the first token
of the answer.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from onechip.engine import attention, cache, sampling
from onechip.engine.attention import Chunk
from onechip.engine.cache import Cache, Moves
from onechip.engine.plan import Plan
from onechip.engine.prefixes import Copies
from onechip.engine.sampling import SamplingRows, Steer
from onechip.engine.types import Request
from onechip.kernels.api import AttendRows, DrawTokens, Kernels, Leaf
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
        going: [slots] bool, False once that token ended the slot's answer, until the next request joins:
            nothing is written behind an answer's end, so it can be gone on with.
        rows: each slot's sampling parameters.
        kept: rings that no slot owns, of sliding layers; see prefixes.py.
    """

    cache: Cache
    tokens: jax.Array
    positions: jax.Array
    going: jax.Array
    rows: SamplingRows
    kept: Cache


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Joins:
    """Requests whose prompts are in but for the last token.

    Attributes:
        slots: [slots] int32; unused entries are past the last slot.
        tokens, positions: [slots] int32, the last token of each prompt and where it stands.
        rows: sampling parameters of each.
    """

    slots: Leaf
    tokens: Leaf
    positions: Leaf
    rows: SamplingRows


def joins_of(joins: Sequence[tuple[int, Request]], slots: int) -> Joins:
    """(slot, request) of prompts that are in, as `join` takes them: `slots` entries, on the host."""
    numbers = np.full((3, slots), slots, np.int32)  # a slot past the last is dropped
    rows = []
    for column, (slot, request) in enumerate(joins):
        numbers[:, column] = slot, request.prompt[-1], len(request.prompt) - 1
        params = request.sampling
        rows.append(sampling.rows_of(params, len(request.prompt), params.stop_token_ids))
    rows += [sampling.rows_of()] * (slots - len(rows))
    stacked = jax.tree.map(lambda *leaves: np.concatenate(leaves), *rows)
    return Joins(slots=numbers[0], tokens=numbers[1], positions=numbers[2], rows=stacked)


@dataclass(frozen=True)
class Program:
    """A function to compile for these shapes; the result takes over the memory of argument `donated`."""

    name: str
    function: Callable[..., Any]
    arguments: tuple[Any, ...]
    donated: int | None = None


def empty_state(config: ModelConfig, plan: Plan) -> State:
    """What the device keeps, before any request."""

    def column(row: Any) -> jax.Array:
        return jnp.tile(jnp.asarray(row), (plan.slots,) + (1,) * (row.ndim - 1))

    return State(
        cache=cache.empty(config, plan.slots, plan.context, plan.activation_dtype),
        tokens=jnp.zeros(plan.slots, jnp.int32),
        positions=jnp.zeros(plan.slots, jnp.int32),
        going=jnp.ones(plan.slots, jnp.bool_),
        kept=cache.empty_kept(config, plan.reuse.kept if plan.reuse else 0, plan.activation_dtype),
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
        return self.kernels.attend_rows(self.config.head_dims)

    def of_first_rows(self, count: jax.Array) -> Kernels:
        """The kernels where only the first `count` rows matter.

        Plain attention multiplies what stands in other rows by 0, and memory that nobody wrote may hold NaN:
        then all rows are computed.
        """
        return self.kernels if self.attend_rows is None else self.kernels.first_rows(count)

    @property
    def draw(self) -> DrawTokens:
        """The choice of tokens from logits that stand in memory."""
        return self.kernels.draw or sampling.choose

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
            return self.draw(scores, rows.draw, positions, banned, self.config.softcap)

        def greedy() -> jax.Array:
            return self.kernels.greedy(hidden, weight, norm=norm, banned=banned)

        chosen: jax.Array = lax.cond(jnp.any(active & (rows.draw.temperature > 0)), draw, greedy)
        return chosen


def prefill(model: Computation, params: Params, state: State, chunk: Chunk) -> tuple[State, jax.Array]:
    """Run rows of prompts through the layers that write a cache -> (state, how many rows it were)."""
    config, kernels = model.config, model.of_first_rows(chunk.valid)
    attend = attention.of_chunk(config, model.attend_rows, state.cache, chunk)
    hidden, ple = decoder.embed(config, kernels, params, chunk.tokens, model.dtype)
    decoder.run_layers(config, kernels, params, hidden, ple, attend, last=config.first_shared)
    return replace(state, cache=attend.cache), chunk.valid + 0


def join(state: State, joins: Joins) -> State:
    """Put down the last token of prompts that are otherwise in: the next decode step runs it."""

    def set_rows(all_: jax.Array, some: jax.Array) -> jax.Array:
        return all_.at[joins.slots].set(some, mode="drop")

    return replace(
        state,
        tokens=set_rows(state.tokens, joins.tokens),
        positions=set_rows(state.positions, joins.positions),
        going=set_rows(state.going, jnp.ones_like(state.going)),
        rows=jax.tree.map(set_rows, state.rows, joins.rows),
    )


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
    attend = attention.of_step(config, model.attend_rows, kept, positions, active)
    hidden, ple = decoder.embed(config, kernels, params, tokens, model.dtype)
    hidden = decoder.run_layers(config, kernels, params, hidden, ple, attend)
    return attend.cache, hidden


def decode(
    model: Computation, steps: int, params: Params, state: State, active: jax.Array
) -> tuple[State, jax.Array]:
    """`steps` tokens for each active slot among the first B -> (state, tokens [steps, B]); idle slots stay as
    they are, and so do those whose answer has ended.
    """
    count = active.shape[0]
    model = replace(model, kernels=model.of_first_rows(_end(active)))
    rows = jax.tree.map(lambda column: column[:count], state.rows)

    def step(carry: tuple[Cache, jax.Array, jax.Array, jax.Array], _: None) -> tuple[Any, jax.Array]:
        kept, tokens, positions, going = carry
        running = active & going
        kept, hidden = decode_step(model, params, kept, tokens, positions, running)
        chosen = model.next_tokens(params, hidden, rows, positions + 1, running)
        tokens, positions = jnp.where(running, chosen, tokens), positions + running
        going &= ~(running & sampling.ends(rows, tokens, positions))
        return (kept, tokens, positions, going), tokens

    start = (state.cache, state.tokens[:count], state.positions[:count], state.going[:count])
    (kept, tokens, positions, going), out = lax.scan(step, start, None, length=steps)
    return replace(
        state,
        cache=kept,
        tokens=state.tokens.at[:count].set(tokens),
        positions=state.positions.at[:count].set(positions),
        going=state.going.at[:count].set(going),
    ), out


def move(config: ModelConfig, state: State, moves: Moves) -> State:
    """Copy rings and spans between rows of the cache."""
    moved, kept = cache.move(config, state.cache, state.kept, moves)
    return replace(state, cache=moved, kept=kept)


def moves_of(copies: Copies, slots: int) -> Iterator[Moves]:
    """Copies as `move` takes them: so many of each kind at a time, on the host."""
    for first in range(0, max(map(len, (copies.keeps, copies.rings, copies.spans))), slots):
        keeps, rings = (np.zeros((slots, 2), np.int32) for _ in range(2))
        spans, counts = np.zeros((slots, 3), np.int32), np.zeros(3, np.int32)
        for kind, (rows, all_) in enumerate(
            ((keeps, copies.keeps), (rings, copies.rings), (spans, copies.spans))
        ):
            some = all_[first : first + slots]
            counts[kind] = len(some)
            rows[: len(some)] = np.array(some, np.int32).reshape(len(some), rows.shape[1])
        yield Moves(keeps, rings, spans, counts)


def forward(model: Computation, params: Params, state: State, active: jax.Array) -> tuple[State, jax.Array]:
    """Run each active slot's newest token -> (state, scores [slots, V] float32 before the softcap of what
    follows it).
    """
    model = replace(model, kernels=model.of_first_rows(_end(active)))
    running = active & state.going
    kept, hidden = decode_step(model, params, state.cache, state.tokens, state.positions, running)
    norm, weight = decoder.head(model.config, params)
    return replace(state, cache=kept), model.kernels.logits(hidden, weight, norm=norm)


def choose(
    model: Computation, state: State, scores: jax.Array, steer: Steer, active: jax.Array
) -> tuple[State, sampling.Chosen]:
    """Each active slot's next token, of the scores that `forward` gave."""
    positions = state.positions + 1
    wishes = sampling.Wishes(state.rows.draw, positions, sampling.banned_stops(state.rows, positions), steer)
    chosen = sampling.steered(scores, wishes, _end(active), model.draw, model.config.softcap)
    running = active & state.going
    tokens, positions = jnp.where(running, chosen.tokens, state.tokens), state.positions + running
    going = state.going & ~(running & sampling.ends(state.rows, tokens, positions))
    state = replace(state, tokens=tokens, positions=positions, going=going)
    return state, replace(chosen, tokens=tokens)


def _end(active: jax.Array) -> jax.Array:
    """One more than the last active row."""
    return jnp.max(jnp.where(active, jnp.arange(1, active.shape[0] + 1, dtype=jnp.int32), 0))


def _shape(dtype: Any, *shape: int) -> Leaf:
    return jax.ShapeDtypeStruct(shape, dtype)  # type: ignore[no-untyped-call]


def _shape_of(leaf: Leaf) -> Leaf:
    return _shape(leaf.dtype, *leaf.shape)


def shapes_of(leaves: Any) -> Any:
    """The shapes of a pytree's arrays."""
    return jax.tree.map(_shape_of, leaves)


def chunk_shapes(bucket: int) -> Chunk:
    """Of a chunk of so many rows."""
    row = _shape(jnp.int32, bucket)
    return Chunk(tokens=row, slots=row, positions=row, valid=_shape(jnp.int32))


def _prefill_program(model: Computation, params: Params, state: State, bucket: int) -> Program:
    arguments = params, state, chunk_shapes(bucket)
    return Program(f"prefill[{bucket}]", partial(prefill, model), arguments, donated=1)


def _join_program(state: State) -> Program:
    number = _shape_of(state.tokens)
    joins = Joins(number, number, number, shapes_of(state.rows))
    return Program("join", join, (state, joins), donated=0)


def _decode_program(model: Computation, steps: int, params: Params, state: State, bucket: int) -> Program:
    active = _shape(jnp.bool_, bucket)
    run = partial(decode, model, steps)
    return Program(f"decode[{bucket}]", run, (params, state, active), donated=1)


def _steered_programs(
    model: Computation, plan: Plan, params: Params, state: State
) -> tuple[Program, Program]:
    slots, vocabulary = plan.slots, model.config.vocab
    row, flag = partial(_shape, jnp.float32, slots), _shape(jnp.bool_, slots)
    most = sampling.adjustable(vocabulary, plan.context)
    steer = Steer(
        allowed=_shape(jnp.uint32, slots, sampling.words(vocabulary)),
        masked=flag,
        adjusted=flag,
        reported=flag,
        ids=_shape(jnp.int32, slots, most),
        scale=row(most),
        bias=row(most),
    )
    return (
        Program("forward", partial(forward, model), (params, state, flag), donated=1),
        Program("choose", partial(choose, model), (state, row(vocabulary), steer, flag), donated=0),
    )


def _move_program(config: ModelConfig, state: State) -> Program:
    slots = state.tokens.shape[0]
    pairs, triples = _shape(jnp.int32, slots, 2), _shape(jnp.int32, slots, 3)
    moves = Moves(pairs, pairs, triples, _shape(jnp.int32, 3))
    return Program("move", partial(move, config), (state, moves), donated=0)


def listing(config: ModelConfig, plan: Plan, kernels: Kernels, params: Params) -> list[Program]:
    """All programs of an engine; `params` may be arrays or their shapes."""
    shapes = shapes_of(params)
    model = Computation(config, kernels, plan.activation_dtype)
    init = Program("init", partial(empty_state, config, plan), ())
    state = jax.eval_shape(init.function)
    return [
        init,
        _join_program(state),
        *([_move_program(config, state)] if plan.reuse else []),
        *(_prefill_program(model, shapes, state, bucket) for bucket in plan.chunk_buckets),
        *(_decode_program(model, plan.window, shapes, state, bucket) for bucket in plan.row_buckets),
        *_steered_programs(model, plan, shapes, state),
    ]
