"""The program beside an engine that reads its meters: lines "begin" and "end" in, one JSON object each out.

It is a process of its own, since the ladder's is the one that stamps tokens and must not be held up. It reads
every PERIOD_S at the lowest priority, so on a machine whose cores are all busy a reading may come late; the
kernel's own peak of each process (VmHWM) misses nothing.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import sys
import time

from onechip.ladder.meters.nvml import Gpus, gpus
from onechip.ladder.meters.rapl import Packages
from onechip.ladder.meters.tree import Resident, Tree

PERIOD_S = 0.25
NICE = 19


class Sampler:
    """Readings of one stretch of time, from `begin` to `end`."""

    def __init__(self, tree: Tree, cards: Gpus | None, packages: Packages) -> None:
        self._tree = tree
        self._cards = cards
        self._packages = packages
        self.begin()

    def begin(self) -> None:
        """Forgets what was read before."""
        self._resident: list[Resident] = []
        self._device: list[int] = []
        self._began_s = time.perf_counter()
        self._gpu_j = None if self._cards is None else self._cards.energy_j()
        self._cpu_j = self._packages.energy_j()
        self.read()

    def read(self, *, find: bool = False) -> None:
        """One reading of everything that has no counter of its own."""
        resident = self._tree.resident(find=find)
        if resident is not None:
            self._resident.append(resident)
        device = None if self._cards is None else self._cards.used_bytes()
        if device is not None:
            self._device.append(device)
        self._packages.energy_j()  # before a counter has gone round

    def end(self) -> dict[str, float]:
        """The stretch so far.

        Returns:
            resident_peak_bytes, own_peak_bytes: the most that was resident in the process tree at a reading,
            and the most of it that was not pages of mapped files. hwm_bytes: Tree.peak, since the engine was
            spawned. device_peak_bytes: the most that was taken on all GPUs, by whomever. gpu_j, cpu_j: drawn
            by all GPUs, by all processor packages. metered_s: the stretch's seconds. What is not known is
            left out.
        """
        gpu_j = None if self._cards is None else self._cards.energy_j()
        cpu_j = self._packages.energy_j()
        seconds = time.perf_counter() - self._began_s
        self.read(find=True)
        found = {
            "metered_s": seconds,
            "resident_peak_bytes": max((found.total for found in self._resident), default=None),
            "own_peak_bytes": max((found.own for found in self._resident), default=None),
            "hwm_bytes": self._tree.peak or None,
            "device_peak_bytes": max(self._device, default=None),
            "gpu_j": _less(gpu_j, self._gpu_j),
            "cpu_j": _less(cpu_j, self._cpu_j),
        }
        return {name: float(value) for name, value in found.items() if value is not None}


def _less(after: float | None, before: float | None) -> float | None:
    return None if after is None or before is None else after - before


def main(pid: int) -> None:
    """Serves the lines of the standard input until it ends; `pid` is the engine's."""
    with contextlib.suppress(OSError):
        os.nice(NICE)
    sampler = Sampler(Tree(pid), gpus(), Packages())
    print("{}", flush=True)
    waiting = b""
    while True:
        if not select.select([0], [], [], PERIOD_S)[0]:
            sampler.read()
            continue
        if not (more := os.read(0, 4096)):
            return
        *lines, waiting = (waiting + more).split(b"\n")
        for line in lines:
            answer = sampler.end() if line == b"end" else {}
            if line == b"begin":
                sampler.begin()
            print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    main(int(sys.argv[1]))
