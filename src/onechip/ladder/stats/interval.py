"""What all statistics of a ladder share: the level of confidence, intervals, Holm's correction."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
import numpy as np
import numpy.typing as npt

CONFIDENCE = 0.95
ALPHA = 1 - CONFIDENCE
RESAMPLES = 10_000
SEED = 20260405
POWER = 0.80
"""The chance with which a difference that is called detectable is detected."""

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


def holm(p: Sequence[float]) -> list[float]:
    """Holm's step-down adjustment of a family of p-values, in the order given (Holm 1979)."""
    adjusted, running = [0.0] * len(p), 0.0
    for rank, i in enumerate(sorted(range(len(p)), key=p.__getitem__)):
        running = max(running, min(1.0, (len(p) - rank) * p[i]))
        adjusted[i] = running
    return adjusted
