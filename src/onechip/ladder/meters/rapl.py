"""Energy of processor packages through Linux' powercap (Intel RAPL, AMD the same): counters in, joules out.

A package's energy is that of all its cores, whoever uses them, without memory modules or the rest of the
machine. Since 2020 only root may read the counters unless an administrator has allowed it (CVE-2020-8694),
and few virtual machines have them.
"""

from __future__ import annotations

import contextlib
import re
from pathlib import Path
from typing import NamedTuple

ROOT = Path("/sys/class/powercap")
ZONE = re.compile(r"intel-rapl:\d+")
"""A whole package or platform; parts of it are named intel-rapl:0:0, and intel-rapl-mmio counts it again."""


class _Counter(NamedTuple):
    """`path` holds microjoules, from 0 to `range_uj`, then from 0 again."""

    path: Path
    range_uj: int


class Packages:
    """Counts all packages' energy from its making on; must be read before a counter goes round twice.

    At 300 W that takes a quarter of an hour with the usual range of 262 kJ.
    """

    def __init__(self, root: Path = ROOT) -> None:
        self._counters = [found for zone in sorted(_zones(root)) if (found := _counter(zone)) is not None]
        self._last = [_read(counter) for counter in self._counters]
        self._total_uj = 0

    def __len__(self) -> int:
        return len(self._counters)

    def energy_j(self) -> float | None:
        """Joules since it was made; None without a readable package."""
        if not self._counters:
            return None
        with contextlib.suppress(OSError, ValueError):
            now = [_read(counter) for counter in self._counters]
            for before, after, counter in zip(self._last, now, self._counters, strict=True):
                self._total_uj += (after - before) % (counter.range_uj + 1)
            self._last = now
            return self._total_uj / 1e6
        return None


def _zones(root: Path) -> list[Path]:
    with contextlib.suppress(OSError):
        return [path for path in root.iterdir() if ZONE.fullmatch(path.name)]
    return []


def _counter(zone: Path) -> _Counter | None:
    """Of a package that can be read; None for the platform ("psys"), which holds the packages once more."""
    with contextlib.suppress(OSError, ValueError):
        if (zone / "name").read_text().startswith("package"):
            found = _Counter(zone / "energy_uj", int((zone / "max_energy_range_uj").read_text()))
            _read(found)
            return found
    return None


def _read(counter: _Counter) -> int:
    return int(counter.path.read_text())
