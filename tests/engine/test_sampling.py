"""Choosing tokens on the device, against the same rules written with sorting in NumPy."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from onechip.engine import sampling
from onechip.engine.sampling import SamplingRows, likeliest
from onechip.engine.types import NO_TOKEN, SamplingParams

VOCABULARY = 50
NEAR = 2e-5
"""How far float32 may be off a border: 50 roundings of 2**-24, and quotients up to 120 rounded to 2**-18."""


@jax.jit
def choose(logits: jax.Array, params: SamplingRows, positions: jax.Array) -> jax.Array:
    return sampling.choose(logits, params.draw, positions, sampling.banned_stops(params, positions), None)


filtered = jax.jit(sampling.filtered)


def rows(*params: SamplingParams, prompt_length: int = 0, stops: tuple[int, ...] = ()) -> SamplingRows:
    single = [sampling.rows_of(entry, prompt_length, stops) for entry in params]
    return jax.tree.map(lambda *leaves: jnp.concatenate(leaves), *single)


def kept_by_sorting(logits: np.ndarray, params: SamplingParams, slack: float) -> set[int]:
    """Which tokens min_p, top_k and top_p leave, for logits without ties.

    Args:
        params: as float32 holds them.
        slack: how much further than wished the borders of min_p (relatively) and top_p are put.
    """
    scaled = logits.astype(np.float64) / params.temperature
    order = np.argsort(-scaled)
    probabilities = np.exp(scaled - scaled.max())
    kept = [i for i in order if probabilities[i] >= params.min_p * (1 - slack)]
    kept = kept[: params.top_k or None]
    share = probabilities[kept] / probabilities[kept].sum()
    before = np.concatenate([[0], np.cumsum(share)[:-1]])
    top_p = 2.0 if params.top_p == 1 else params.top_p + slack
    return {i for i, reached in zip(kept, before, strict=True) if reached < top_p}


@settings(max_examples=150, deadline=None)
@given(
    seed=st.integers(0, 10**6),
    temperature=st.floats(np.float32(0.1), 4, width=32),
    top_k=st.integers(0, VOCABULARY + 5),
    top_p=st.floats(np.float32(0.01), 1, width=32),
    min_p=st.one_of(st.just(0.0), st.floats(np.float32(0.001), np.float32(0.9), width=32)),
)
@example(seed=2, temperature=float(np.float32(0.2)), top_k=0, top_p=1 - 2**-24, min_p=0.0)
def test_filters_keep_what_sorting_keeps(
    seed: int, temperature: float, top_k: int, top_p: float, min_p: float
) -> None:
    logits = np.random.default_rng(seed).normal(0, 3, VOCABULARY).astype(np.float32)
    params = SamplingParams(temperature=temperature, top_k=top_k, top_p=top_p, min_p=min_p)
    out = np.asarray(filtered(jnp.asarray(logits)[None], rows(params).draw))[0]
    kept = set(np.flatnonzero(np.isfinite(out)).tolist())
    # Where the nucleus ends among unlikely tokens that may be several of them, but hardly any of its sum.
    assert kept_by_sorting(logits, params, -NEAR) <= kept <= kept_by_sorting(logits, params, NEAR)
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


CAP = 6.0


@jax.jit
def steered(scores: jax.Array, wishes: sampling.Wishes) -> sampling.Chosen:
    return sampling.steered(scores, wishes, jnp.int32(scores.shape[0]), sampling.choose, CAP)


@settings(max_examples=40, deadline=None)
@given(seed=st.integers(0, 10**6))
def test_steered_choice_is_the_rule_written_in_numpy(seed: int) -> None:
    """Softcap, penalties, bias, mask, argmax and log-probabilities of 12 rows, each with its own wishes."""
    rng = np.random.default_rng(seed)
    count = 12
    scores = rng.normal(0, 5, (count, VOCABULARY)).astype(np.float32)
    flags = rng.random((4, count)) < 0.5
    masked, adjusted, reported = flags[:3]
    temperature = np.where(flags[3], 0, 1.7).astype(np.float32)
    allowed = rng.random((count, VOCABULARY)) < 0.3
    allowed[np.arange(count), rng.integers(0, VOCABULARY, count)] = True
    ids = np.stack([rng.permutation(VOCABULARY)[:10] for _ in range(count)]).astype(np.int32)
    ids[:, 7:] = VOCABULARY
    scale = rng.uniform(0.5, 2, ids.shape).astype(np.float32)
    bias = rng.normal(0, 4, ids.shape).astype(np.float32)
    ids[~adjusted], scale[~adjusted], bias[~adjusted] = VOCABULARY, 1, 0
    bits = np.zeros((count, 64), np.bool_)
    bits[:, :VOCABULARY] = allowed
    packed = np.packbits(bits, axis=1, bitorder="little").view("<u4")
    steer = sampling.Steer(packed, masked, adjusted, reported, ids, scale, bias)
    draw = rows(*(SamplingParams(temperature=float(t), seed=seed) for t in temperature)).draw
    wishes = sampling.Wishes(draw, jnp.arange(count), jnp.full((count, 1), -1), steer)
    chosen = jax.tree.map(np.asarray, steered(jnp.asarray(scores), wishes))

    logits = CAP * np.tanh(scores.astype(np.float64) / CAP)
    for row, (columns, scales, added) in enumerate(zip(ids, scale, bias, strict=True)):
        for id, by, more in zip(columns[:7], scales, added, strict=False):
            if id < VOCABULARY:
                logits[row, id] = (
                    logits[row, id] / by if logits[row, id] > 0 else logits[row, id] * by
                ) + more
        may = allowed[row] if masked[row] else np.ones(VOCABULARY, np.bool_)
        assert may[chosen.tokens[row]]
        if temperature[row] == 0:
            assert logits[row, chosen.tokens[row]] == pytest.approx(
                np.where(may, logits[row], -99).max(), abs=1e-4
            )
        if reported[row]:
            scaled = logits[row] / (temperature[row] or 1)
            truth = scaled - np.logaddexp.reduce(scaled)
            assert chosen.logprobs[row] == pytest.approx(truth[chosen.tokens[row]], abs=1e-4)
            np.testing.assert_allclose(chosen.top_logprobs[row], np.sort(truth)[::-1][:20], atol=1e-4)
            np.testing.assert_allclose(truth[chosen.top[row]], chosen.top_logprobs[row], atol=1e-4)


def test_steered_rows_without_wishes_are_drawn_as_ever() -> None:
    """Also where others in the batch are masked and adjusted."""
    rng = np.random.default_rng(7)
    scores = jnp.asarray(rng.normal(0, 5, (6, VOCABULARY)).astype(np.float32))
    params = rows(*(SamplingParams(temperature=float(n % 3), top_k=9, seed=n) for n in range(6)))
    positions, nothing = jnp.arange(6), jnp.full((6, 1), -1)
    plain = sampling.choose(scores, params.draw, positions, nothing, CAP)
    first = np.arange(6) < 2
    steer = sampling.Steer(
        allowed=np.full((6, 2), 1, np.uint32),
        masked=first,
        adjusted=first,
        reported=~first,
        ids=np.full((6, 3), 4, np.int32) + np.arange(3, dtype=np.int32),
        scale=np.where(first[:, None], np.float32(2), np.ones((6, 3), np.float32)),
        bias=np.zeros((6, 3), np.float32),
    )
    chosen = steered(scores, sampling.Wishes(params.draw, positions, nothing, steer))
    assert chosen.tokens[2:].tolist() == plain[2:].tolist()
    assert chosen.tokens[:2].tolist() == [0, 0]


def test_a_softcap_does_not_lift_what_is_banned() -> None:
    """A small cap leaves all tokens likely; one that is banned must not come at all."""
    scores = jnp.zeros((64, VOCABULARY))
    params = rows(*(SamplingParams(temperature=1.0, seed=n) for n in range(64)))
    banned = jnp.tile(jnp.arange(VOCABULARY - 1), (64, 1))
    chosen = jax.jit(sampling.choose, static_argnums=4)(scores, params.draw, jnp.arange(64), banned, 1.0)
    assert set(chosen.tolist()) == {VOCABULARY - 1}


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 2**32 - 1), st.sampled_from([20, 127, 128, 129, 3000]), st.integers(1, 20))
def test_the_likeliest_are_those_of_top_k_also_where_many_are_equal(
    seed: int, vocabulary: int, different: int
) -> None:
    scores = jnp.asarray(
        np.random.default_rng(seed).integers(0, different, (3, vocabulary)).astype(np.float32)
    )
    for found, truth in zip(
        jax.jit(likeliest, static_argnums=1)(scores, 20), jax.lax.top_k(scores, 20), strict=True
    ):
        np.testing.assert_array_equal(found, truth)
