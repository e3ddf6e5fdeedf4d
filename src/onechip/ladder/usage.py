"""What arms took while they worked, and how the machine was meanwhile: cell records in; peaks of memory and
ranges of readings out."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from statistics import median

import msgspec

from onechip.ladder import stats
from onechip.ladder.figures import Measure, Place, Places
from onechip.ladder.records import CellRecord

PEAKS = ("resident_peak_bytes", "own_peak_bytes", "device_peak_bytes")
PEAK_PLACE = Place("memory", "peak of all cells", 0)
"""Where a peak over all of an arm's cells stands."""
READINGS = {
    "load_1m": ("load average of a minute", ""),
    "others_cpu_cores": ("cores that other programs kept busy", "cores"),
    "steal_cores": ("cores that the hypervisor gave to others", "cores"),
    "clock_mhz": ("processor clock", "MHz"),
    "temperature_c": ("hottest sensor", "°C"),
    "memory_available_bytes": ("memory available", "bytes"),
    "canary_copy_before_s": ("canary, copy, before the cell", "s"),
    "canary_copy_after_s": ("canary, copy, after the cell", "s"),
    "canary_matmul_before_s": ("canary, matrix product, before the cell", "s"),
    "canary_matmul_after_s": ("canary, matrix product, after the cell", "s"),
}
"""Keys of CellRecord.measured that tell of the machine, not of the engine: label and unit."""


class Usage(msgspec.Struct, frozen=True):
    """What the valid cells of an arm at a place took.

    Attributes:
        n: cells with any reading.
        resident_peak_bytes, own_peak_bytes, hwm_bytes, device_peak_bytes: the most of all of them; see
            meters.sampler.Sampler.end. None where not available.
        gpu_w, cpu_w: median over the cells of the mean power while they ran; None where not available.
    """

    arm: str
    place: Place
    n: int
    resident_peak_bytes: float | None = None
    own_peak_bytes: float | None = None
    hwm_bytes: float | None = None
    device_peak_bytes: float | None = None
    gpu_w: float | None = None
    cpu_w: float | None = None


class Reading(msgspec.Struct, frozen=True):
    """A reading of the machine (a key of READINGS) over an arm's cells, invalid ones included."""

    arm: str
    reading: str
    n: int
    minimum: float
    median: float
    maximum: float


def usages(found: Places) -> Iterator[Usage]:
    """Memory and power of every arm at every place that has a reading."""
    for (arm, place), records in found.items():
        read = [record.measured for record in records if "metered_s" in record.measured]
        if read:
            yield Usage(
                arm,
                place,
                len(read),
                **{name: _most(read, name) for name in (*PEAKS, "hwm_bytes")},
                gpu_w=_power(read, "gpu_j"),
                cpu_w=_power(read, "cpu_j"),
            )


def _most(read: Iterable[dict[str, float]], name: str) -> float | None:
    return max((found[name] for found in read if name in found), default=None)


def _power(read: Iterable[dict[str, float]], name: str) -> float | None:
    """Watts."""
    known = [found[name] / found["metered_s"] for found in read if name in found and found["metered_s"] > 0]
    return median(known) if known else None


def peaks(records: Iterable[CellRecord]) -> Iterator[Measure]:
    """The most memory that each arm took over all of its valid cells, its starts among them.

    One value for each block of starts (Cell.block), which without blocks is one for the whole ladder: cells
    of one process are no repeats of a peak, as memory once taken mostly stays.
    """
    most: dict[tuple[str, str], dict[int, float]] = {}
    for record in records:
        if record.invalid:
            continue
        for name in PEAKS:
            if name in record.measured:
                blocks = most.setdefault((record.cell.arm, name), {})
                value, block = record.measured[name], record.cell.block
                blocks[block] = max(value, blocks.get(block, 0.0))
    for (arm, name), blocks in most.items():
        values = tuple(value for value in blocks.values() if value > 0)
        if values:
            yield Measure(arm, PEAK_PLACE, name, median(values), values, stats.describe(values))


def readings(records: Sequence[CellRecord], arms: Iterable[str]) -> Iterator[Reading]:
    """Ranges of what was read of the machine beside each arm's cells."""
    for arm in arms:
        mine = [record.measured for record in records if record.cell.arm == arm]
        for name in READINGS:
            known = [found[name] for found in mine if name in found]
            if known:
                yield Reading(arm, name, len(known), min(known), median(known), max(known))
