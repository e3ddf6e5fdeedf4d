"""The statistics of a ladder: repeats or paired answers in, intervals, tests and verdicts out.

Pure functions over numbers. Resampling is seeded, so that the same records always give the same report.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import msgspec
import numpy as np
import numpy.typing as npt
from scipy import optimize, stats

CONFIDENCE = 0.95
ALPHA = 1 - CONFIDENCE
RESAMPLES = 10_000
SEED = 20260405
MIN_REPEATS = 6
"""Fewest repeats per arm for a claim of difference: a paired sign test of five can never reach p < 0.05."""
WIDE = 0.05
"""Relative half-width of an interval beyond which a figure is called UNSTABLE."""
FEW_FLIPS = 10
"""Below so many flips the bootstrap's interval is too narrow, and reports show the adjusted one beside it."""
MARGIN = 0.02
"""Two scores are called level only if the whole interval of their difference lies within 2 points."""
POWER = 0.80

Array = npt.NDArray[np.float64]


class Interval(msgspec.Struct, frozen=True):
    """A 95 % interval, both ends included."""

    low: float
    high: float

    def holds(self, value: float) -> bool:
        return self.low <= value <= self.high

    def inside(self, margin: float) -> bool:
        """Whether the whole interval lies strictly within -margin and +margin."""
        return -margin < self.low and self.high < margin


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
        n_a, n_b: repeats.
        ratio: of the geometric means; `interval` is Welch's t on logs, `p` its two-sided test of ratio 1.
        median_ratio: of the medians; `bootstrap` resamples the repeats of both arms.
        interval, bootstrap, p: None where an arm has one repeat only.
    """

    n_a: int
    n_b: int
    ratio: float
    median_ratio: float
    interval: Interval | None
    bootstrap: Interval | None
    p: float | None

    @property
    def enough(self) -> bool:
        """Whether there are repeats enough for any claim of difference."""
        return min(self.n_a, self.n_b) >= MIN_REPEATS

    @property
    def agree(self) -> bool:
        """Whether Welch and median bootstrap say the same about ratio 1."""
        return _side(self.interval) == _side(self.bootstrap)

    @property
    def separated(self) -> bool:
        """A difference is established (before any correction for many comparisons)."""
        return self.enough and self.agree and _side(self.interval) != 0

    def inverse(self) -> Ratio:
        """The same comparison as b over a."""
        return Ratio(
            n_a=self.n_b,
            n_b=self.n_a,
            ratio=1 / self.ratio,
            median_ratio=1 / self.median_ratio,
            interval=_inverse(self.interval),
            bootstrap=_inverse(self.bootstrap),
            p=self.p,
        )


class Paired(msgspec.Struct, frozen=True):
    """Two arms over the same questions: a 2x2 table and what follows from it.

    Attributes:
        n: questions that both arms answered.
        both, only_a, only_b, neither: how many were answered rightly by whom.
        difference: score of a - score of b, as a fraction of 1.
        interval: percentile interval of the difference from RESAMPLES paired resamples.
        adjusted: Bonett and Price's adjusted Wald interval (2012), which does not shrink to nothing when few
            or no questions flip, as the bootstrap does.
        p: exact two-sided McNemar.
        detectable: smallest true difference that this many questions show with POWER at this rate of flips;
            None if they cannot show any.
        margin: of the equivalence verdict.
        level: both intervals lie wholly inside the margin. False means "not shown", never "different".
    """

    n: int
    both: int
    only_a: int
    only_b: int
    neither: int
    difference: float
    interval: Interval
    adjusted: Interval
    p: float
    detectable: float | None
    margin: float
    level: bool

    @property
    def flips(self) -> int:
        """Questions that only one of the two got right."""
        return self.only_a + self.only_b

    @property
    def score_a(self) -> float:
        return (self.both + self.only_a) / self.n

    @property
    def score_b(self) -> float:
        return (self.both + self.only_b) / self.n

    def inverse(self) -> Paired:
        """The same comparison as b against a."""
        return msgspec.structs.replace(
            self,
            only_a=self.only_b,
            only_b=self.only_a,
            difference=-self.difference,
            interval=Interval(-self.interval.high, -self.interval.low),
            adjusted=Interval(-self.adjusted.high, -self.adjusted.low),
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
        bootstrap = _bootstrap_median(logs)
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
    """Ratio of a figure between two arms; `a` and `b` hold one positive number per valid repeat."""
    x, y = np.log(_positive(a)), np.log(_positive(b))
    shift = float(x.mean() - y.mean())
    interval = bootstrap = p = None
    if min(len(x), len(y)) > 1:
        interval, p = welch(a, b)
        bootstrap = _bootstrap_median(x, y)
    return Ratio(
        n_a=len(x),
        n_b=len(y),
        ratio=math.exp(shift),
        median_ratio=float(np.median(_positive(a)) / np.median(_positive(b))),
        interval=interval,
        bootstrap=bootstrap,
        p=p,
    )


def compare_paired(a: Sequence[bool], b: Sequence[bool], margin: float = MARGIN) -> Paired:
    """Paired comparison of right and wrong answers.

    Args:
        a, b: whether each question was answered rightly, in the same order; at least one question.
        margin: of the equivalence verdict, as a fraction of 1.
    """
    if len(a) != len(b) or not a:
        raise ValueError(f"paired answers must be of one length above 0, not {len(a)} and {len(b)}")
    n = len(a)
    both = sum(x and y for x, y in zip(a, b, strict=True))
    only_a, only_b = sum(a) - both, sum(b) - both
    interval = bootstrap_difference(only_a, only_b, n)
    adjusted = adjusted_difference(only_a, only_b, n)
    return Paired(
        n=n,
        both=both,
        only_a=only_a,
        only_b=only_b,
        neither=n - both - only_a - only_b,
        difference=(only_a - only_b) / n,
        interval=interval,
        adjusted=adjusted,
        p=mcnemar(only_a, only_b),
        detectable=detectable_difference(n, only_a + only_b),
        margin=margin,
        level=interval.inside(margin) and adjusted.inside(margin),
    )


def mcnemar(only_a: int, only_b: int) -> float:
    """Exact two-sided p of McNemar's test: a sign test of the questions that only one arm got right."""
    flips = only_a + only_b
    return float(stats.binomtest(only_a, flips, 0.5).pvalue) if flips else 1.0


def holm(p: Sequence[float]) -> list[float]:
    """Holm's step-down adjustment of a family of p-values, in the order given (Holm 1979)."""
    adjusted, running = [0.0] * len(p), 0.0
    for rank, i in enumerate(sorted(range(len(p)), key=p.__getitem__)):
        running = max(running, min(1.0, (len(p) - rank) * p[i]))
        adjusted[i] = running
    return adjusted


def bootstrap_difference(only_a: int, only_b: int, n: int) -> Interval:
    """Percentile interval of a paired difference of scores.

    Resampling n questions with replacement draws the counts of the 2x2 table from a multinomial, and the
    difference depends on those counts alone; so the counts are drawn: the same bootstrap, much cheaper.
    """
    rng = np.random.default_rng(SEED)
    shares = np.array([only_a, only_b, n - only_a - only_b]) / n
    counts = rng.multinomial(n, shares, size=RESAMPLES)
    return _percentiles((counts[:, 0] - counts[:, 1]) / n)


def adjusted_difference(only_a: int, only_b: int, n: int) -> Interval:
    """Bonett and Price's adjusted Wald interval of a paired difference of proportions (2012)."""
    share_a, share_b = (only_a + 1) / (n + 2), (only_b + 1) / (n + 2)
    centre = share_a - share_b
    half = float(stats.norm.ppf(1 - ALPHA / 2)) * math.sqrt((share_a + share_b - centre**2) / (n + 2))
    return Interval(max(-1.0, centre - half), min(1.0, centre + half))


def mcnemar_power(difference: float, flip_rate: float, n: int) -> float:
    """Chance that exact McNemar gives p < ALPHA for a true difference.

    Args:
        difference: of the two true scores, 0 to 1.
        flip_rate: true share of questions that only one arm gets right, at least `difference`.
        n: questions.
    """
    flips = np.arange(n + 1)
    chance = stats.binom.pmf(flips, n, flip_rate)
    # Largest count of the rarer kind that is still significant for each number of flips; -1 where none is.
    quantile = stats.binom.ppf(ALPHA / 2, flips, 0.5)
    critical = quantile - (stats.binom.cdf(quantile, flips, 0.5) > ALPHA / 2)
    share = (flip_rate + difference) / (2 * flip_rate)
    reject = stats.binom.cdf(critical, flips, share) + stats.binom.sf(flips - critical - 1, flips, share)
    return float(np.sum(chance * np.where(critical >= 0, reject, 0.0)))


def detectable_difference(n: int, flips: int) -> float | None:
    """Smallest true difference that n questions show with POWER, at the observed rate of flips; None if none.

    A difference cannot exceed the rate of flips, so the rate is raised to the difference where it is lower.
    """
    rate = (flips + 1) / (n + 2)

    def shortfall(difference: float) -> float:
        return mcnemar_power(difference, max(rate, difference), n) - POWER

    if shortfall(1.0) < 0:
        return None
    return float(optimize.brentq(shortfall, 1e-6, 1.0, xtol=1e-4))


def score_interval(right: int, n: int) -> Interval:
    """Wilson's interval of one score."""
    found = stats.binomtest(right, n).proportion_ci(CONFIDENCE, method="wilson")
    return Interval(float(found.low), float(found.high))


def welch(a: Sequence[float], b: Sequence[float]) -> tuple[Interval, float]:
    """Welch's interval of the ratio of two geometric means, from logs, and the two-sided p of ratio 1.

    Written out, with scipy's t distribution, because scipy's own test warns about repeats that are all alike.
    """
    x, y = np.log(_positive(a)), np.log(_positive(b))
    shift = float(x.mean() - y.mean())
    var_x, var_y = float(x.var(ddof=1)) / len(x), float(y.var(ddof=1)) / len(y)
    error = math.sqrt(var_x + var_y)
    if error < 1e-12:  # both are constants, such as a reserved block of memory
        return Interval(math.exp(shift), math.exp(shift)), float(abs(shift) < 1e-12)
    freedom = error**4 / (var_x**2 / (len(x) - 1) + var_y**2 / (len(y) - 1))
    half = float(stats.t.ppf(1 - ALPHA / 2, freedom)) * error
    p = 2 * float(stats.t.sf(abs(shift) / error, freedom))
    return Interval(math.exp(shift - half), math.exp(shift + half)), p


def _positive(values: Sequence[float]) -> Array:
    x = np.asarray(values, dtype=np.float64)
    if x.size == 0 or not bool(np.all(np.isfinite(x) & (x > 0))):
        raise ValueError(f"figures must be positive finite numbers, at least one, not {list(values)}")
    return x


def _bootstrap_median(*samples: Array) -> Interval:
    """Percentile interval of exp(median), or of exp(difference of medians) with two samples; logs in."""
    rng = np.random.default_rng(SEED)
    medians = [np.median(x[rng.integers(len(x), size=(RESAMPLES, len(x)))], axis=1) for x in samples]
    return _percentiles(np.exp(medians[0] - medians[1] if len(medians) == 2 else medians[0]))


def _percentiles(draws: Array) -> Interval:
    low, high = np.percentile(draws, [100 * ALPHA / 2, 100 * (1 - ALPHA / 2)])
    return Interval(float(low), float(high))


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
