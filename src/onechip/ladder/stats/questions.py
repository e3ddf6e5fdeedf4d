"""Right and wrong answers of two arms to the same questions in; difference, intervals and exact tests out."""

from __future__ import annotations

import math
from collections.abc import Sequence

import msgspec
import numpy as np
from scipy import optimize, stats

from onechip.ladder.stats.interval import ALPHA, CONFIDENCE, POWER, RESAMPLES, SEED, Interval

FEW_FLIPS = 10
"""Below so many flips the bootstrap's interval is too narrow, and reports show the adjusted one beside it."""
MARGIN = 0.02
"""Two scores are called level only if the whole interval of their difference lies within 2 points."""


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


def bootstrap_difference(only_a: int, only_b: int, n: int) -> Interval:
    """Percentile interval of a paired difference of scores.

    Resampling n questions with replacement draws the counts of the 2x2 table from a multinomial, and the
    difference depends on those counts alone; so the counts are drawn: the same bootstrap, much cheaper.
    """
    rng = np.random.default_rng(SEED)
    shares = np.array([only_a, only_b, n - only_a - only_b]) / n
    counts = rng.multinomial(n, shares, size=RESAMPLES)
    low, high = np.quantile((counts[:, 0] - counts[:, 1]) / n, [ALPHA / 2, 1 - ALPHA / 2])
    return Interval(float(low), float(high))


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


def flip_interval(flips: float, n: int) -> Interval:
    """Clopper and Pearson's interval of a rate of flips.

    Args:
        flips: mean number between two askings of `n` questions; need not be whole. Questions are the sample
            however often each was asked, as the askings of one question are not independent.
    """
    low = float(stats.beta.ppf(ALPHA / 2, flips, n - flips + 1)) if flips > 0 else 0.0
    high = float(stats.beta.ppf(1 - ALPHA / 2, flips + 1, n - flips)) if flips < n else 1.0
    return Interval(low, high)
