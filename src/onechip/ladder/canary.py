"""The chip canary: nothing in, seconds that a fixed copy and a fixed matrix product take on these cores out.

The work never changes, so a reading that moves says that the machine did: clocks, heat, a neighbour on the
same host. It runs between cells, on the cores that the engine has, while the engine is idle.
"""

from __future__ import annotations

import math
import os
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np
import numpy.typing as npt

from onechip.ladder.scheduling import first_in_line

COPY_BYTES = 4 << 20
"""For each core. It stays in the last-level cache: on a shared host a copy through memory moves by 10 %
from one half second to the next, with the neighbours' traffic, and would refuse every second cell."""
PRODUCTS, SIDE = 32, 64
"""Square matrices of float32, small enough that BLAS multiplies each on the core that asks; 17 MFLOP in
all."""
PASS_S = 0.02
"""For each part."""
MOST_READINGS = 6
MOST_CORES = 16
"""Of larger chips so many are read, spread evenly."""
SETTLED = 1.01
"""A reading counts once its best has not become better than this factor by reading again."""
MOST_MOVED = 0.05
LOOKS, LOOK_AGAIN_S = 2, 0.1

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
        """The best of passes that agree; some 70 ms on a quiet machine."""
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

    def again(self, before: Reading) -> Reading:
        """A reading to be held against one from before; what seems to have moved is looked at again."""
        after = self.read()
        for _ in range(LOOKS):
            if not moved(before, after):
                break
            time.sleep(LOOK_AGAIN_S)
            after = after.best(self.read())
        return after

    def _pass(self) -> Reading:
        start = threading.Barrier(len(self._work))
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
        # An engine that spins while it waits does not slow it down then.
        with first_in_line():
            start.wait()
            self.copy_s = _best(partial(np.copyto, self._copy, self._source))
            self.matmul_s = _best(partial(np.matmul, self._left, self._right, out=self._product))


def _best(work: Callable[[], object]) -> float:
    """Seconds of the fastest of as many as fit in PASS_S, and of one at the least."""
    best, now = math.inf, time.perf_counter()
    end = now + PASS_S
    while True:
        begun = now
        work()
        now = time.perf_counter()
        best = min(best, now - begun)
        if now >= end:
            return best


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
                f"The chip canary moved: its fixed {what} took {1e6 * was_s:.0f} µs before and"
                f" {1e6 * is_s:.0f} µs after ({change:+.1%}, limit {MOST_MOVED:.0%})."
            )
    return found
