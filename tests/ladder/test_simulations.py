"""Statistics against planted truths: coverage of intervals, power, and what drift does to an order."""

from __future__ import annotations

from collections import Counter

import numpy as np
import numpy.typing as npt
import pytest

from onechip.ladder import stats

DRAWS = 1_600
"""Draws per simulation: the standard error of a coverage of 95 % is then 0.55 points."""
TRUTH = 1.07
RESAMPLES = 600
BATCH = 400

Array = npt.NDArray[np.float64]


def repeats(rng: np.random.Generator, n: int, deviation: float, stalls: bool) -> Array:
    """Logs of DRAWS x n repeats around 0; a stall takes up to a tenth of the speed of one repeat in five."""
    noise = rng.normal(0, deviation, size=(DRAWS, n))
    if stalls:
        noise -= rng.uniform(0, 0.1, noise.shape) * (rng.random(noise.shape) < 0.2)
    return noise


def speeds(logs: Array) -> list[list[float]]:
    return np.exp(logs).tolist()


def alternating(n: int) -> tuple[list[int], list[int]]:
    """Blocks of A and of B in A B B A A B B A ..., `n` each, 1-based."""
    order = [1 + quad + place for quad in range(0, 2 * n, 4) for place in (0, 3)]
    return order[:n], [block for block in range(1, 2 * n + 1) if block not in order]


def blocks(a: Array, b: Array, starts: int, per_start: int = 1) -> stats.Ratio:
    """One draw's repeats of both arms, put into A B B A blocks."""
    of_a, of_b = (np.repeat(found, per_start).tolist() for found in alternating(starts))
    found = stats.compare_blocks(
        zip(of_a, np.exp(a).tolist(), strict=True), zip(of_b, np.exp(b).tolist(), strict=True)
    )
    assert found is not None
    return found


@pytest.fixture
def no_bootstrap(monkeypatch: pytest.MonkeyPatch) -> None:
    """The t-tests of blocks alone: their bootstraps have a simulation of their own."""
    ends = np.zeros(()), np.zeros(())
    monkeypatch.setattr("onechip.ladder.stats.repeats.median_bootstrap", lambda *logs: ends)


@pytest.mark.parametrize("stalls", [False, True])
@pytest.mark.parametrize("n", [6, 10])
def test_welch_s_interval_covers_a_planted_ratio(n: int, stalls: bool) -> None:
    rng = np.random.default_rng(7)
    a, b = speeds(np.log(TRUTH) + repeats(rng, n, 0.02, stalls)), speeds(repeats(rng, n, 0.035, stalls))
    hits = sum(stats.welch(x, y)[0].holds(TRUTH) for x, y in zip(a, b, strict=True))
    assert 0.93 <= hits / DRAWS <= 0.97


@pytest.mark.parametrize("stalls", [False, True])
@pytest.mark.parametrize("n", [6, 10])
def test_the_bootstrap_of_medians_covers_a_planted_ratio(n: int, stalls: bool) -> None:
    rng = np.random.default_rng(8)
    a, b = np.log(TRUTH) + repeats(rng, n, 0.02, stalls), repeats(rng, n, 0.02, stalls)
    hits = 0
    for at in range(0, DRAWS, BATCH):
        low, high = stats.median_bootstrap(a[at : at + BATCH], b[at : at + BATCH], resamples=RESAMPLES)
        hits += int(np.sum((low <= np.log(TRUTH)) & (np.log(TRUTH) <= high)))
    assert 0.93 <= hits / DRAWS <= 0.97


def test_the_bootstrap_of_one_median_is_a_little_short_with_six_repeats() -> None:
    low, high = stats.median_bootstrap(
        repeats(np.random.default_rng(14), 6, 0.02, False), resamples=RESAMPLES
    )
    assert 0.91 <= np.mean((low <= 0) & (high >= 0)) <= 0.95


def test_rare_long_stalls_make_welch_s_interval_too_wide_and_not_too_narrow() -> None:
    """One repeat in ten is slower by 10 to 40 %."""
    rng = np.random.default_rng(15)

    def stalled() -> list[list[float]]:
        lost = rng.uniform(0.1, 0.4, (DRAWS, 6)) * (rng.random((DRAWS, 6)) < 0.1)
        return speeds(rng.normal(0, 0.02, (DRAWS, 6)) - lost)

    hits = sum(stats.welch(a, b)[0].holds(1.0) for a, b in zip(stalled(), stalled(), strict=True))
    assert hits / DRAWS >= 0.97


@pytest.mark.usefixtures("no_bootstrap")
@pytest.mark.parametrize("stalls", [False, True])
@pytest.mark.parametrize("n", [6, 10])
def test_the_interval_of_blocks_covers_a_planted_ratio_under_drift(n: int, stalls: bool) -> None:
    rng = np.random.default_rng(9)
    a, b = np.log(TRUTH) + repeats(rng, n, 0.02, stalls), repeats(rng, n, 0.02, stalls)
    drift = 0.03 * np.arange(2 * n) / (2 * n - 1)
    of_a, of_b = alternating(n)
    a, b = a + drift[np.array(of_a) - 1], b + drift[np.array(of_b) - 1]
    found = (blocks(x, y, n).interval for x, y in zip(a, b, strict=True))
    hits = sum(interval.holds(TRUTH) for interval in found if interval is not None)
    assert 0.93 <= hits / DRAWS <= 0.97


@pytest.mark.usefixtures("no_bootstrap")
def test_repeats_that_share_a_start_are_no_samples_of_their_own() -> None:
    """Every start of an engine is 2 % faster or slower than another; five repeats of it do not show that."""
    rng = np.random.default_rng(10)
    starts, per_start, hits, naive = 6, 5, 0, 0
    for _ in range(DRAWS // 2):
        a, b = (
            np.repeat(rng.normal(0, 0.02, starts), per_start) + rng.normal(0, 0.005, starts * per_start)
            for _ in range(2)
        )
        interval = blocks(a, b, starts, per_start).interval
        hits += interval is not None and interval.holds(1.0)
        naive += stats.welch(np.exp(a).tolist(), np.exp(b).tolist())[0].holds(1.0)
    assert 0.93 <= 2 * hits / DRAWS <= 0.97
    assert 2 * naive / DRAWS < 0.75


def test_drift_biases_one_block_each_and_not_alternating_blocks() -> None:
    """3 % over eight runs: 1.7 % in A A A A B B B B, nothing in A B B A A B B A."""
    speed = 100 * np.exp(0.03 * np.arange(8) / 7)
    straight = stats.compare(speed[:4].tolist(), speed[4:].tolist())
    assert straight.ratio == pytest.approx(1 - 0.017, abs=0.0005)
    of_a, of_b = alternating(4)
    mixed = blocks(*(np.log(speed[np.array(found) - 1]) for found in (of_a, of_b)), 4)
    assert mixed.ratio == pytest.approx(1, abs=1e-9)


@pytest.mark.parametrize(
    "drift",
    [
        lambda t: t,
        lambda t: 1 - np.exp(-4 * t),  # a machine that warms up
        lambda t: t**2,
        lambda t: np.sin(2 * np.pi * t),
    ],
    ids=["linear", "saturating", "growing", "waving"],
)
@pytest.mark.parametrize("n", [6, 10, 12])
def test_drift_of_any_slow_shape_biases_blocks_by_less_than_a_tenth_of_it(drift, n: int) -> None:
    line = 0.03 * np.asarray(drift(np.arange(2 * n) / (2 * n - 1)), dtype=np.float64)
    of_a, of_b = (np.array(found) - 1 for found in alternating(n))
    assert abs(blocks(line[of_a], line[of_b], n).ratio - 1) < 0.003


def test_a_sudden_step_falls_into_one_pair_of_blocks_at_the_worst() -> None:
    """A clock that drops by 3 % once, at any moment of twelve runs each."""
    of_a, of_b = (np.array(found) - 1 for found in alternating(12))
    steps = [-0.03 * (np.arange(24) >= at) for at in range(1, 24)]
    assert max(abs(blocks(step[of_a], step[of_b], 12).ratio - 1) for step in steps) < 0.03 / 12 + 1e-4


@pytest.mark.parametrize("n", [6, 10])
def test_the_detectable_ratio_is_detected_as_often_as_it_says(n: int) -> None:
    """Of repeats whose standard deviation is 2 %, exactly."""
    rng = np.random.default_rng(12)
    wave = np.where(np.arange(n) % 2, 1.0, -1.0) * 0.02 * np.sqrt((n - 1) / n)
    detectable = stats.compare(np.exp(wave).tolist(), np.exp(wave).tolist()).detectable
    assert detectable is not None
    a, b = speeds(np.log(detectable) + repeats(rng, n, 0.02, False)), speeds(repeats(rng, n, 0.02, False))
    found = np.mean([stats.welch(x, y)[1] < stats.ALPHA for x, y in zip(a, b, strict=True)])
    assert found == pytest.approx(stats.POWER, abs=0.03)


@pytest.mark.parametrize("interval", [stats.bootstrap_difference, stats.adjusted_difference])
def test_the_paired_interval_covers_a_planted_difference(interval) -> None:
    rng = np.random.default_rng(11)
    n, only_a, only_b = 400, 0.09, 0.06
    tables = rng.multinomial(n, [only_a, only_b, 1 - only_a - only_b], size=DRAWS // 2).tolist()
    seen = Counter((a, b) for a, b, _ in tables)
    hits = sum(times * interval(a, b, n).holds(only_a - only_b) for (a, b), times in seen.items())
    assert 0.93 <= 2 * hits / DRAWS <= 0.97


def test_the_detectable_difference_is_detected_as_often_as_it_says() -> None:
    n, flips = 400, 60
    detectable = stats.detectable_difference(n, flips)
    assert detectable is not None
    rate = (flips + 1) / (n + 2)
    shares = [(rate + detectable) / 2, (rate - detectable) / 2, 1 - rate]
    tables = np.random.default_rng(13).multinomial(n, shares, size=DRAWS)
    found = np.mean([stats.mcnemar(a, b) < stats.ALPHA for a, b, _ in tables.tolist()])
    assert found == pytest.approx(stats.POWER, abs=0.03)
