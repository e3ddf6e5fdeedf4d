"""Choosing tokens on the device, against the same rules written with sorting in NumPy."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from onechip.engine import sampling
from onechip.engine.sampling import SamplingRows
from onechip.engine.types import NO_TOKEN, SamplingParams

VOCABULARY = 50


@jax.jit
def choose(logits: jax.Array, params: SamplingRows, positions: jax.Array) -> jax.Array:
    return sampling.choose(logits, params.draw, positions, sampling.banned_stops(params, positions), None)


filtered = jax.jit(sampling.filtered)


def rows(*params: SamplingParams, prompt_length: int = 0, stops: tuple[int, ...] = ()) -> SamplingRows:
    single = [sampling.rows_of(entry, prompt_length, stops) for entry in params]
    return jax.tree.map(lambda *leaves: jnp.concatenate(leaves), *single)


def kept_by_sorting(logits: np.ndarray, params: SamplingParams) -> set[int]:
    """Which tokens min_p, top_k and top_p leave, for logits without ties."""
    scaled = logits.astype(np.float64) / params.temperature
    order = np.argsort(-scaled)
    probabilities = np.exp(scaled - scaled.max())
    kept = [i for i in order if probabilities[i] >= params.min_p]
    kept = kept[: params.top_k or None]
    share = probabilities[kept] / probabilities[kept].sum()
    before = np.concatenate([[0], np.cumsum(share)[:-1]])
    return {i for i, reached in zip(kept, before, strict=True) if reached < params.top_p}


@settings(max_examples=150, deadline=None)
@given(
    seed=st.integers(0, 10**6),
    temperature=st.floats(0.1, 4),
    top_k=st.integers(0, VOCABULARY + 5),
    top_p=st.floats(0.01, 1),
    min_p=st.one_of(st.just(0.0), st.floats(0.001, 0.9)),
)
def test_filters_keep_what_sorting_keeps(
    seed: int, temperature: float, top_k: int, top_p: float, min_p: float
) -> None:
    logits = np.random.default_rng(seed).normal(0, 3, VOCABULARY).astype(np.float32)
    params = SamplingParams(temperature=temperature, top_k=top_k, top_p=top_p, min_p=min_p)
    out = np.asarray(filtered(jnp.asarray(logits)[None], rows(params).draw))[0]
    kept = set(np.flatnonzero(np.isfinite(out)).tolist())
    wanted = kept_by_sorting(logits, params)
    # float32 sums may put the border of the nucleus one token further or nearer.
    assert len(kept ^ wanted) <= 1
    assert int(logits.argmax()) in kept


def test_ties_at_the_threshold_are_all_kept() -> None:
    logits = jnp.asarray([[3.0, 1.0, 3.0, 2.0, 2.0, 0.0]])
    out = filtered(logits, rows(SamplingParams(temperature=1, top_k=3)).draw)
    np.testing.assert_array_equal(np.isfinite(out)[0], [True, False, True, True, True, False])


def test_greedy_is_argmax_and_the_first_of_equals() -> None:
    logits = np.random.default_rng(0).normal(size=(8, VOCABULARY)).astype(np.float32)
    logits[3, 7] = logits[3, 30] = 99
    params = rows(*[SamplingParams()] * 8)
    chosen = choose(jnp.asarray(logits), params, jnp.arange(8))
    np.testing.assert_array_equal(chosen, logits.argmax(-1))
    assert chosen[3] == 7


@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_logits_that_are_no_numbers_choose_no_token(temperature: float) -> None:
    logits = jnp.zeros((2, VOCABULARY)).at[0].set(jnp.nan)
    params = rows(*[SamplingParams(temperature=temperature)] * 2)
    chosen = choose(logits, params, jnp.arange(2))
    assert chosen[0] == NO_TOKEN
    assert chosen[1] >= 0


def test_draws_follow_the_distribution() -> None:
    """20,000 draws from five tokens; a share may be off by four standard errors."""
    logits = jnp.log(jnp.asarray([0.5, 0.25, 0.15, 0.08, 0.02]))
    count = 20_000
    one = sampling.rows_of(SamplingParams(temperature=1.0, seed=5))
    many = jax.tree.map(lambda leaf: jnp.repeat(leaf, count, axis=0), one)
    drawn = choose(jnp.tile(logits, (count, 1)), many, jnp.arange(count))
    shares = np.bincount(np.asarray(drawn), minlength=5) / count
    truth = np.exp(np.asarray(logits))
    assert (np.abs(shares - truth) < 4 * np.sqrt(truth * (1 - truth) / count)).all()


def test_noise_is_a_function_of_seed_and_position() -> None:
    logits = jnp.zeros((4, VOCABULARY))
    params = rows(*[SamplingParams(temperature=1, seed=seed) for seed in (1, 2, 1, 1)])
    positions = jnp.asarray([10, 10, 11, 10])
    first = np.asarray(choose(logits, params, positions))
    assert first[0] == first[3]
    draws = [np.asarray(choose(logits, params, positions + 100 * i)) for i in range(20)]
    assert any(draw[0] != draw[1] for draw in draws)
    assert any(draw[0] != draw[2] for draw in draws)
    alone = choose(logits[:1], jax.tree.map(lambda leaf: leaf[:1], params), positions[:1])
    assert alone[0] == first[0]


def test_greedy_rows_stay_greedy_beside_drawn_ones() -> None:
    logits = jnp.asarray(np.random.default_rng(1).normal(size=(2, VOCABULARY)), jnp.float32)
    params = rows(SamplingParams(), SamplingParams(temperature=5.0, seed=3))
    chosen = choose(logits, params, jnp.asarray([4, 4]))
    assert chosen[0] == logits[0].argmax()


@pytest.mark.parametrize(("position", "allowed"), [(12, False), (13, True)])
def test_stop_ids_wait_for_min_tokens(position: int, allowed: bool) -> None:
    logits = jnp.zeros((1, VOCABULARY)).at[0, 9].set(5).at[0, 4].set(4).at[0, 30].set(3)
    params = rows(SamplingParams(min_tokens=3), prompt_length=10, stops=(9, 4))
    [chosen] = np.asarray(choose(logits, params, jnp.asarray([position])))
    assert chosen == (9 if allowed else 30)
