"""The chip canary: nothing in, seconds that a fixed copy and a fixed matrix product take on these cores out.

The work never changes, so a reading that moves says that the machine did: clocks, heat, a neighbour on the
same host. It runs between cells, on the cores that the engine has, while the engine is idle.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from onechip.ladder.scheduling import undisturbed

COPY_BYTES = 16 << 20
"""For each core: source and copy together are more than a core's share of most last-level caches."""
PRODUCTS, SIDE = 128, 64
"""Square matrices of float32, small enough that BLAS multiplies each on the core that asks; 67 MFLOP in
all."""
ROUNDS = 8
MOST_READINGS = 6
MOST_CORES = 16
"""Of larger chips so many are read, spread evenly: the operands take 34 MB each."""
SETTLED = 1.01
"""A reading counts once its best has not become better than this factor by reading again."""
MOST_MOVED = 0.05

Array = npt.NDArray[np.float32]


@dataclass(frozen=True, slots=True)
class Reading:
    """Seconds of the slowest core, each the best of several rounds."""

    copy_s: float
    matmul_s: float

    def best(self, other: Reading) -> Reading:
        return Reading(min(self.copy_s, other.copy_s), min(self.matmul_s, other.matmul_s))

    def factor(self, later: Reading) -> float:
        """By how much the part that moved more differs, the larger over the smaller."""
        pairs = ((self.copy_s, later.copy_s), (self.matmul_s, later.matmul_s))
        return max(max(pair) / min(pair) for pair in pairs)


class Canary:
    """Holds its operands from the first reading on.

    Args:
        cores: numbers of the cores to read; one thread is bound to each, where the system can do that.
    """

    def __init__(self, cores: Sequence[int]) -> None:
        self.cores = tuple(cores)[:: -(-len(cores) // MOST_CORES)]
        self._work: list[_Core] = []

    def read(self) -> Reading:
        """The best of readings that agree; some 40 ms on a quiet machine."""
        if not self._work:
            self._work = [_Core(core) for core in self.cores]
            self._pass()
        best = self._pass()
        for _ in range(MOST_READINGS - 1):
            better = best.best(self._pass())
            settled = best.factor(better) <= SETTLED
            best = better
            if settled:
                break
        return best

    def _pass(self) -> Reading:
        start = threading.Barrier(len(self._work))
        # Threads inherit how this one is scheduled: engines that spin while they wait do not slow them down.
        with undisturbed():
            threads = [threading.Thread(target=core.run, args=(start,)) for core in self._work]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
        return Reading(max(core.copy_s for core in self._work), max(core.matmul_s for core in self._work))


class _Core:
    """The work of one core, and its best seconds in the newest pass."""

    def __init__(self, number: int) -> None:
        self.number = number
        self.copy_s = self.matmul_s = 0.0
        self._source = np.ones(COPY_BYTES // 4, np.float32)
        self._copy = np.empty_like(self._source)
        self._left: Array = np.broadcast_to(np.ones((SIDE, SIDE), np.float32), (PRODUCTS, SIDE, SIDE))
        self._right = np.ones((PRODUCTS, SIDE, SIDE), np.float32)
        self._product = np.empty_like(self._right)

    def run(self, start: threading.Barrier) -> None:
        if hasattr(os, "sched_setaffinity"):
            os.sched_setaffinity(0, {self.number})
        start.wait()
        stamps = [self._round() for _ in range(ROUNDS)]
        self.copy_s = min(copied - begun for begun, copied, _ in stamps)
        self.matmul_s = min(multiplied - copied for _, copied, multiplied in stamps)

    def _round(self) -> tuple[float, float, float]:
        begun = time.perf_counter()
        np.copyto(self._copy, self._source)
        copied = time.perf_counter()
        np.matmul(self._left, self._right, out=self._product)
        return begun, copied, time.perf_counter()


def measured(before: Reading, after: Reading) -> dict[str, float]:
    """For CellRecord.measured."""
    return {
        "canary_copy_before_s": before.copy_s,
        "canary_copy_after_s": after.copy_s,
        "canary_matmul_before_s": before.matmul_s,
        "canary_matmul_after_s": after.matmul_s,
    }


def moved(before: Reading, after: Reading) -> list[str]:
    """One sentence for each part of the canary that moved more than MOST_MOVED."""
    found = []
    for what, was_s, is_s in (
        ("copy", before.copy_s, after.copy_s),
        ("matrix product", before.matmul_s, after.matmul_s),
    ):
        change = is_s / was_s - 1
        if abs(change) > MOST_MOVED:
            found.append(
                f"The chip canary moved: its fixed {what} took {1e3 * was_s:.2f} ms before and"
                f" {1e3 * is_s:.2f} ms after ({change:+.0%}, limit {MOST_MOVED:.0%})."
            )
    return found
