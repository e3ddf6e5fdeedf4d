"""Figures of speed, one number a repeat, in; their spread, and ratios between two arms, out.

Everything is computed on logarithms. Arms that ran one after the other are compared by Welch's t; arms that
alternated in A B B A blocks by the pairs of neighbouring blocks, in which a linear drift of the machine
favours each arm in turn by the same amount.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from functools import lru_cache

import msgspec
import numpy as np
from scipy import optimize, stats

from onechip.ladder.stats.interval import ALPHA, CONFIDENCE, POWER, RESAMPLES, SEED, Array, Interval

MIN_REPEATS = 6
"""Fewest repeats per arm for a claim of difference: a paired sign test of five can never reach p < 0.05."""
WIDE = 0.05
"""Relative half-width of an interval beyond which a figure is called UNSTABLE."""
NOTHING = 1e-12
"""Standard errors of logs below it are those of constants, such as a reserved block of memory."""


class Spread(msgspec.Struct, frozen=True):
    """One figure over the repeats of one cell.

    Attributes:
        n: repeats.
        minimum, median, maximum: over the repeats.
        spread: maximum / minimum - 1.
        mean: geometric mean.
        interval: Student-t interval of the geometric mean, from logs; None with one repeat.
        bootstrap: percentile interval of the median, RESAMPLES resamples; None with one repeat.
        half_width: relative half-width of `interval`; None with one repeat.
        unstable: why the figure is UNSTABLE, one sentence each; empty if it is not.
    """

    n: int
    minimum: float
    median: float
    maximum: float
    spread: float
    mean: float
    interval: Interval | None
    bootstrap: Interval | None
    half_width: float | None
    unstable: tuple[str, ...] = ()


class Ratio(msgspec.Struct, frozen=True):
    """How many times as large a figure is in arm a as in arm b, over the repeats of both.

    Attributes:
        n_a, n_b: repeats; with `blocks` both are the number of pairs.
        ratio: of the geometric means; `p` is the two-sided t-test of ratio 1, `interval` its interval.
        median_ratio: of the medians, with `blocks` the median of the pairs' ratios; `bootstrap` resamples the
            repeats of both arms, or the pairs.
        interval, bootstrap, p: None where an arm has one repeat only.
        blocks: the arms ran in A B B A blocks, and the t-test is of pairs; else it is Welch's.
        detectable: smallest true ratio above 1 (its inverse below) that so many repeats of this spread show
            with POWER; None with one repeat.
    """

    n_a: int
    n_b: int
    ratio: float
    median_ratio: float
    interval: Interval | None
    bootstrap: Interval | None
    p: float | None
    blocks: bool = False
    detectable: float | None = None

    @property
    def enough(self) -> bool:
        """Whether there are repeats enough for any claim of difference."""
        return min(self.n_a, self.n_b) >= MIN_REPEATS

    @property
    def agree(self) -> bool:
        """Whether t-test and median bootstrap say the same about ratio 1."""
        return _side(self.interval) == _side(self.bootstrap)

    @property
    def separated(self) -> bool:
        """A difference is established (before any correction for many comparisons)."""
        return self.enough and self.agree and _side(self.interval) != 0

    def inverse(self) -> Ratio:
        """The same comparison as b over a."""
        return msgspec.structs.replace(
            self,
            n_a=self.n_b,
            n_b=self.n_a,
            ratio=1 / self.ratio,
            median_ratio=1 / self.median_ratio,
            interval=_inverse(self.interval),
            bootstrap=_inverse(self.bootstrap),
        )


def describe(values: Sequence[float]) -> Spread:
    """Summarise the repeats of one figure.

    Args:
        values: one positive number per valid repeat, at least one.
    """
    x = _positive(values)
    logs = np.log(x)
    mean, n = float(logs.mean()), len(x)
    interval = bootstrap = half_width = None
    if n > 1:
        half = float(stats.t.ppf(1 - ALPHA / 2, n - 1)) * float(logs.std(ddof=1)) / math.sqrt(n)
        interval = Interval(math.exp(mean - half), math.exp(mean + half))
        half_width = math.expm1(half)
        bootstrap = _of_logs(*median_bootstrap(logs))
    median = float(np.median(x))
    return Spread(
        n=n,
        minimum=float(x.min()),
        median=median,
        maximum=float(x.max()),
        spread=float(x.max() / x.min() - 1),
        mean=math.exp(mean),
        interval=interval,
        bootstrap=bootstrap,
        half_width=half_width,
        unstable=_unstable(median, math.exp(mean), interval, bootstrap, half_width),
    )


def compare(a: Sequence[float], b: Sequence[float]) -> Ratio:
    """Ratio of a figure between two arms that ran one after the other.

    Args:
        a, b: one positive number per valid repeat.
    """
    x, y = np.log(_positive(a)), np.log(_positive(b))
    found = Ratio(
        n_a=len(x),
        n_b=len(y),
        ratio=math.exp(float(x.mean() - y.mean())),
        median_ratio=float(np.median(_positive(a)) / np.median(_positive(b))),
        interval=None,
        bootstrap=None,
        p=None,
    )
    if min(len(x), len(y)) == 1:
        return found
    return _tested(found, *_welch(x, y), bootstrap=_of_logs(*median_bootstrap(x, y)))


def compare_blocks(a: Iterable[tuple[int, float]], b: Iterable[tuple[int, float]]) -> Ratio | None:
    """Ratio of a figure between two arms that ran in A B B A blocks; None if no pair of blocks has both.

    The unit is a pair of neighbouring blocks, 1 with 2, 3 with 4 and so on. A block is one start of an
    engine, and its repeats are averaged (in logs), since they share that start. A paired t-test over the
    pairs; in every second pair b ran first, so a linear drift biases nothing, and only adds to the spread.

    Args:
        a, b: (number of the block, positive figure), one for each valid repeat.
    """
    of_a, of_b = _by_pair(a), _by_pair(b)
    common = sorted(of_a.keys() & of_b.keys())
    if not common:
        return None
    logs = np.array([of_a[pair] - of_b[pair] for pair in common])
    n, shift = len(logs), float(logs.mean())
    found = Ratio(n, n, math.exp(shift), math.exp(float(np.median(logs))), None, None, None, blocks=True)
    if n == 1:
        return found
    error = float(logs.std(ddof=1)) / math.sqrt(n)
    return _tested(found, shift, error, n - 1.0, bootstrap=_of_logs(*median_bootstrap(logs)))


def welch(a: Sequence[float], b: Sequence[float]) -> tuple[Interval, float]:
    """Welch's interval of the ratio of two geometric means, from logs, and the two-sided p of ratio 1."""
    return _t_test(*_welch(np.log(_positive(a)), np.log(_positive(b))))


def median_bootstrap(*logs: Array, resamples: int = RESAMPLES) -> tuple[Array, Array]:
    """Ends of the percentile interval of a median, or of the difference of two medians.

    Args:
        logs: one array of repeats, or two, each [..., repeats] with at least two.
        resamples: how many.
    """

    def statistic(*samples: Array, axis: int) -> Array:
        medians = [np.median(sample, axis=axis) for sample in samples]
        return np.asarray(medians[0] - medians[1] if len(medians) == 2 else medians[0])

    found = stats.bootstrap(
        logs,
        statistic,
        vectorized=True,
        axis=-1,
        n_resamples=resamples,
        confidence_level=CONFIDENCE,
        method="percentile",
        rng=np.random.default_rng(SEED),
    ).confidence_interval
    return np.asarray(found.low), np.asarray(found.high)


def _positive(values: Sequence[float]) -> Array:
    x = np.asarray(values, dtype=np.float64)
    if x.size == 0 or not bool(np.all(np.isfinite(x) & (x > 0))):
        raise ValueError(f"figures must be positive finite numbers, at least one, not {list(values)}")
    return x


def _by_pair(found: Iterable[tuple[int, float]]) -> dict[int, float]:
    """Pair of blocks -> mean log of one arm's repeats in it."""
    repeats = list(found)
    if not repeats:
        return {}
    grouped: dict[int, list[float]] = {}
    for (block, _), log in zip(repeats, np.log(_positive([value for _, value in repeats])), strict=True):
        grouped.setdefault((block - 1) // 2, []).append(float(log))
    return {pair: sum(logs) / len(logs) for pair, logs in grouped.items()}


def _welch(x: Array, y: Array) -> tuple[float, float, float]:
    """Difference of two means, its standard error, and Welch and Satterthwaite's degrees of freedom.

    Written out, with scipy's t distribution, because scipy's own test warns about repeats that are all alike.
    """
    var_x, var_y = float(x.var(ddof=1)) / len(x), float(y.var(ddof=1)) / len(y)
    error = math.sqrt(var_x + var_y)
    spare = var_x**2 / (len(x) - 1) + var_y**2 / (len(y) - 1)
    freedom = error**4 / spare if error >= NOTHING else float(len(x) + len(y) - 2)
    return float(x.mean() - y.mean()), error, freedom


def _t_test(shift: float, error: float, freedom: float) -> tuple[Interval, float]:
    """Interval of exp(shift), and the two-sided p of shift 0."""
    if error < NOTHING:
        return Interval(math.exp(shift), math.exp(shift)), float(abs(shift) < NOTHING)
    half = float(stats.t.ppf(1 - ALPHA / 2, freedom)) * error
    p = 2 * float(stats.t.sf(abs(shift) / error, freedom))
    return Interval(math.exp(shift - half), math.exp(shift + half)), p


def _tested(found: Ratio, shift: float, error: float, freedom: float, bootstrap: Interval) -> Ratio:
    interval, p = _t_test(shift, error, freedom)
    detectable = math.exp(_noncentrality(round(freedom, 3)) * error)
    return msgspec.structs.replace(found, interval=interval, bootstrap=bootstrap, p=p, detectable=detectable)


@lru_cache(maxsize=4096)
def _noncentrality(freedom: float) -> float:
    """True difference in standard errors that a two-sided t-test shows with POWER.

    By the noncentral t distribution; the chance to find the difference with the wrong sign is left out.
    """
    critical = float(stats.t.ppf(1 - ALPHA / 2, freedom))

    def shortfall(shift: float) -> float:
        return float(stats.nct.sf(critical, freedom, shift)) - POWER

    return float(optimize.brentq(shortfall, 1.0, 1.5 * critical + 1, xtol=1e-4))


def _of_logs(low: Array, high: Array) -> Interval:
    return Interval(math.exp(float(low)), math.exp(float(high)))


def _inverse(interval: Interval | None) -> Interval | None:
    return None if interval is None else Interval(1 / interval.high, 1 / interval.low)


def _side(interval: Interval | None) -> int:
    """-1 wholly below ratio 1, 1 wholly above, 0 neither."""
    if interval is None or interval.holds(1.0):
        return 0
    return 1 if interval.low > 1.0 else -1


def _unstable(
    median: float,
    mean: float,
    interval: Interval | None,
    bootstrap: Interval | None,
    half_width: float | None,
) -> tuple[str, ...]:
    if interval is None or bootstrap is None or half_width is None:
        return ()
    reasons = []
    if half_width > WIDE:
        reasons.append(f"the interval's half-width is {half_width:.1%}, over {WIDE:.0%}")
    slack = 1e-9 * median
    if not (interval.low - slack <= median <= interval.high + slack):
        reasons.append("the median lies outside the t-interval of the mean")
    if not (bootstrap.low - slack <= mean <= bootstrap.high + slack):
        reasons.append("the mean lies outside the bootstrap interval of the median")
    return tuple(reasons)
