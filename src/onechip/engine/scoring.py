"""The program that tells how likely the tokens of a prompt are: a chunk of it in, log-probabilities out.

    score            State, rows of one prompt, the token behind each -> State, log-probabilities [T]

As `prefill`, but all layers run, and what each row gives becomes logits, a few rows at a time. It is compiled
when it is first asked for: most servers never are.
"""

from __future__ import annotations

import math
from dataclasses import replace
from functools import partial

import jax
import jax.numpy as jnp

from onechip.engine import attention, sampling
from onechip.engine.attention import Chunk
from onechip.engine.plan import Plan
from onechip.engine.programs import Computation, Program, State, chunk_shapes, empty_state, shapes_of
from onechip.engine.sampling import Chosen
from onechip.engine.types import NO_TOKEN
from onechip.kernels.api import Kernels
from onechip.models import decoder
from onechip.models.architecture import ModelConfig
from onechip.models.layout import Params


def score(
    model: Computation, params: Params, state: State, chunk: Chunk, following: jax.Array
) -> tuple[State, Chosen]:
    """Run rows of one prompt -> (state, the tokens [T] `following` the rows, with their log-probabilities).

    A token whose row's logits are not numbers comes back as NO_TOKEN.
    """
    config, kernels = model.config, model.of_first_rows(chunk.valid)
    attend = attention.of_whole_chunk(config, model.attend_rows, state.cache, chunk)
    hidden, ple = decoder.embed(config, kernels, params, chunk.tokens, model.dtype)
    hidden = decoder.run_layers(config, kernels, params, hidden, ple, attend)
    norm, weight = decoder.head(config, params)
    size = math.gcd(chunk.tokens.size, sampling.SCORED_ROWS)

    def block(hidden: jax.Array, tokens: jax.Array) -> Chosen:
        scores = model.kernels.logits(hidden, weight, norm=norm)
        told = sampling.with_logprobs(scores, tokens, jnp.zeros(size), config.softcap)
        return replace(told, tokens=jnp.where(jnp.isfinite(told.logprobs), tokens, NO_TOKEN))

    nothing = sampling.nothing_chosen(chunk.tokens.size, config.vocab)
    told = sampling.by_blocks(block, (hidden, following), size, chunk.valid, nothing)
    return replace(state, cache=attend.cache), told


def program(config: ModelConfig, plan: Plan, kernels: Kernels, params: Params) -> Program:
    """`score` for the largest chunk; `params` may be arrays or their shapes."""
    model = Computation(config, kernels, plan.activation_dtype)
    chunk = chunk_shapes(plan.chunk_buckets[-1])
    state = jax.eval_shape(partial(empty_state, config, plan))
    arguments = shapes_of(params), state, chunk, chunk.tokens
    return Program("score", partial(score, model), arguments, donated=1)
