"""The machine's state while a ladder runs: nothing in, readings out, and the wait until it is at rest again.

What a system does not tell is left out, never guessed.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Callable
from dataclasses import dataclass

import psutil

LOOK_S = 0.5
"""How long the share of busy cores is watched."""
SLACK_SHARE = 0.1
"""Of all cores: so much busier than before the ladder still counts as at rest."""
SLACK_C = 3.0
BUSY = ("user", "nice", "system", "irq", "softirq")
"""Fields of the system's processor times that are work."""


def look() -> dict[str, float]:
    """The machine now, for CellRecord.measured: load_1m, clock_mhz (mean of the cores), temperature_c (the
    hottest sensor), memory_available_bytes."""
    found = {"memory_available_bytes": float(psutil.virtual_memory().available)}
    with contextlib.suppress(OSError):
        found["load_1m"] = os.getloadavg()[0]
    with contextlib.suppress(OSError, NotImplementedError, AttributeError):
        clock = psutil.cpu_freq()
        if clock is not None and clock.current > 0:
            found["clock_mhz"] = float(clock.current)
    temperature = _temperature_c()
    if temperature is not None:
        found["temperature_c"] = temperature
    return found


def _temperature_c() -> float | None:
    """Of the hottest sensor; None on machines without any, as virtual ones."""
    with contextlib.suppress(OSError, AttributeError):
        sensors = psutil.sensors_temperatures()
        return max((reading.current for found in sensors.values() for reading in found), default=None)
    return None


class Others:
    """The cores that other processes than the ladder and its engine keep busy, from its making on.

    Args:
        engine: process id of the engine's first process; None where the ladder did not start it, and then its
            work cannot be told from that of others.
    """

    def __init__(self, engine: int | None) -> None:
        self._engine = engine
        self._begun = self._taken()

    def measured(self) -> dict[str, float]:
        """For CellRecord.measured: others_cpu_cores, and steal_cores, which a hypervisor gave to its other
        guests."""
        if self._engine is None:
            return {}
        wall, busy, stolen, own = (now - then for now, then in zip(self._taken(), self._begun, strict=True))
        if wall <= 0:
            return {}
        return {"others_cpu_cores": max(0.0, busy - own) / wall, "steal_cores": max(0.0, stolen) / wall}

    def _taken(self) -> tuple[float, float, float, float]:
        """Seconds: on the wall, of all cores' work, stolen, of the ladder and the engine."""
        times = psutil.cpu_times()
        busy = sum(getattr(times, name, 0.0) for name in BUSY)
        own = time.process_time() + _tree_s(self._engine)
        return time.perf_counter(), busy, getattr(times, "steal", 0.0), own


def _tree_s(pid: int | None) -> float:
    """Processor time of a process and its children, ended ones included that were waited for."""
    total = 0.0
    if pid is None:
        return total
    with contextlib.suppress(psutil.Error):
        root = psutil.Process(pid)
        for process in (root, *root.children(recursive=True)):
            with contextlib.suppress(psutil.Error):
                total += sum(process.cpu_times()[:4])
    return total


@dataclass(frozen=True, slots=True)
class Rest:
    """How busy and how hot a machine is: share of all cores, and the hottest sensor where there is one."""

    busy_share: float
    temperature_c: float | None = None

    @classmethod
    def now(cls) -> Rest:
        """Watches for LOOK_S."""
        return cls(psutil.cpu_percent(interval=LOOK_S) / 100, _temperature_c())

    @classmethod
    def of(cls, found: dict[str, float]) -> Rest:
        return cls(found["busy_share"], found.get("temperature_c"))

    def as_dict(self) -> dict[str, float]:
        found = {"busy_share": self.busy_share}
        return found if self.temperature_c is None else found | {"temperature_c": self.temperature_c}

    def back_at(self, before: Rest) -> bool:
        """Whether the machine is about as idle and as cool as it was."""
        if self.busy_share > before.busy_share + SLACK_SHARE:
            return False
        known = self.temperature_c is not None and before.temperature_c is not None
        return not known or (self.temperature_c or 0.0) <= (before.temperature_c or 0.0) + SLACK_C


def cool_down(before: Rest, limit_s: float, tick: Callable[[], None]) -> tuple[float, bool]:
    """Waits until the machine is back where it was before the ladder; seconds, and whether it is.

    Args:
        limit_s: the longest wait; with 0 the machine is looked at once.
        tick: called after each look.
    """
    begun = time.monotonic()
    while True:
        rested = Rest.now().back_at(before)
        waited = time.monotonic() - begun
        if rested or waited >= limit_s:
            return waited, rested
        tick()
