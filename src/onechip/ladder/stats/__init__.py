"""The statistics of a ladder: repeats or paired answers in, intervals, tests and verdicts out.

Pure functions over numbers. Resampling is seeded, so that the same records always give the same report.
`repeats.py` has figures of speed, `questions.py` right and wrong answers, `interval.py` what both need.
"""

from onechip.ladder.stats.interval import ALPHA, CONFIDENCE, POWER, RESAMPLES, Interval, holm
from onechip.ladder.stats.questions import (
    FEW_FLIPS,
    MARGIN,
    Paired,
    adjusted_difference,
    bootstrap_difference,
    compare_paired,
    detectable_difference,
    flip_interval,
    mcnemar,
    mcnemar_power,
    score_interval,
)
from onechip.ladder.stats.repeats import (
    MIN_REPEATS,
    WIDE,
    Ratio,
    Spread,
    compare,
    compare_blocks,
    describe,
    median_bootstrap,
    welch,
)

__all__ = [
    "ALPHA",
    "CONFIDENCE",
    "FEW_FLIPS",
    "MARGIN",
    "MIN_REPEATS",
    "POWER",
    "RESAMPLES",
    "WIDE",
    "Interval",
    "Paired",
    "Ratio",
    "Spread",
    "adjusted_difference",
    "bootstrap_difference",
    "compare",
    "compare_blocks",
    "compare_paired",
    "describe",
    "detectable_difference",
    "flip_interval",
    "holm",
    "mcnemar",
    "mcnemar_power",
    "median_bootstrap",
    "score_interval",
    "welch",
]
