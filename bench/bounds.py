"""What this machine can do at best, measured now: bytes read a second, operations a second.

    python bench/bounds.py

The loops are bench/native/tiles.cc's, which is compiled once into build/bench/: reads of 32 MiB at a time out
of 512 MiB in huge pages, and chains of one instruction on registers. Both give the best of a hundred short
runs, so what else runs on the machine costs them little; figures that are held against them are medians.
"""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from onechip.kernels.cpu import library

ROOT = Path(__file__).resolve().parent.parent
NATIVE = ROOT / "src" / "onechip" / "kernels" / "cpu" / "native"
SOURCE = ROOT / "bench" / "native" / "tiles.cc"
BINARY = ROOT / "build" / "bench" / "tiles"
FLAGS = ("-std=c++20", "-O3", "-ffp-contract=off", "-fno-math-errno", "-pthread")
READ = re.compile(r"^read, (\d+) threads?: ([\d.]+) GB/s", re.MULTILINE)
PEAK = re.compile(r"^peak (\w+): ([\d.]+) GOP/s a thread", re.MULTILINE)
INSTRUCTIONS = {
    "avx2": {"int8": "vpmaddubsw", "bf16": "vfmadd231ps", "f32": "vfmadd231ps"},
    "avx512_vnni": {"int8": "vpdpbusd", "bf16": "vfmadd231ps", "f32": "vfmadd231ps"},
    "avx512_bf16": {"int8": "vpdpbusd", "bf16": "vdpbf16ps", "f32": "vfmadd231ps"},
    "amx": {"int8": "tdpbssd", "bf16": "tdpbf16ps", "f32": "vfmadd231ps"},
}
"""Instruction set of the kernels -> what multiplies each kind of activations."""


class BoundsError(Exception):
    """The bounds cannot be measured; the message is one sentence that says why."""


@dataclass(frozen=True)
class Bounds:
    """Attributes:
    threads: cores that this process may use.
    read: threads at work -> bytes a second that they read from memory together.
    peak: kind of activations ("int8", "bf16", "f32") -> multiplications and additions a second of one
        thread.
    instructions: kind -> the instruction that was measured.
    """

    threads: int
    read: Mapping[int, float]
    peak: Mapping[str, float]
    instructions: Mapping[str, str]

    @property
    def read_bytes_s(self) -> float:
        """Of as many threads as were measured."""
        return self.read[max(self.read)]

    def operations_s(self, kind: str) -> float:
        """Of all threads: each has a core of its own, so they are taken to multiply as fast as one alone."""
        return self.peak[kind] * self.threads

    def seconds(self, read_bytes: float, operations: Mapping[str, float]) -> float:
        """The least time for some work: reading and arithmetic go on side by side, the longer one counts.

        Args:
            read_bytes: from memory. operations: kind of activations -> multiplications and additions.
        """
        reading = read_bytes / self.read_bytes_s
        return max(reading, sum(count / self.operations_s(kind) for kind, count in operations.items()))


def best(first: Bounds, second: Bounds) -> Bounds:
    """The larger of each figure: a bound that was measured while others worked is too low, never too high."""
    read = {threads: max(rate, second.read.get(threads, 0)) for threads, rate in first.read.items()}
    peak = {kind: max(rate, second.peak.get(kind, 0)) for kind, rate in first.peak.items()}
    return Bounds(first.threads, read, peak, first.instructions)


def drift(before: Bounds, after: Bounds) -> str:
    """One sentence on how far the machine's own figures moved between two measurements."""
    pairs = [(before.read_bytes_s, after.read_bytes_s), (before.peak["int8"], after.peak["int8"])]
    reading, int8 = (abs(later / earlier - 1) for earlier, later in pairs)
    return (
        f"Bounds are the better of two measurements, before and after; reading moved by {reading:.0%} between"
        f" them, int8 by {int8:.0%}."
    )


def measure() -> Bounds:
    """The machine as it is now; compiles the loops first if they are not there. Takes some seconds.

    Raises:
        BoundsError: they cannot be compiled, or do not run here.
    """
    try:
        instruction_set = library.instruction_set() or "none"
    except library.LibraryError as error:
        raise BoundsError(str(error)) from None
    if instruction_set not in INSTRUCTIONS:
        raise BoundsError(f"there are no bounds for a processor whose instruction set is {instruction_set}.")
    _build()
    said = subprocess.run([BINARY], capture_output=True, text=True)
    if said.returncode != 0:
        raise BoundsError(f"{BINARY} ended with code {said.returncode}: {said.stderr.strip()[-200:]}.")
    return parse(said.stdout, len(os.sched_getaffinity(0)), INSTRUCTIONS[instruction_set])


def parse(said: str, threads: int, instructions: Mapping[str, str]) -> Bounds:
    """What tiles.cc prints.

    Raises:
        BoundsError: a figure is missing.
    """
    read = {int(count): float(rate) * 1e9 for count, rate in READ.findall(said)}
    peak = {kind: float(rate) * 1e9 for kind, rate in PEAK.findall(said)}
    if not read or peak.keys() != instructions.keys():
        raise BoundsError(f"{SOURCE} did not print its peaks as bench/bounds.py reads them, but: {said!r}.")
    return Bounds(threads, read, peak, instructions)


def _build() -> None:
    """Compiles the loops where a source is newer than what was compiled."""
    sources = [SOURCE, *sorted(NATIVE.glob("tiles*.cc"))]
    newest = max(path.stat().st_mtime for path in (*sources, *NATIVE.glob("*.h")))
    if BINARY.exists() and BINARY.stat().st_mtime > newest:
        return
    BINARY.parent.mkdir(parents=True, exist_ok=True)
    fresh = BINARY.with_name(f"{BINARY.name}.{os.getpid()}")
    command = ["g++", *FLAGS, f"-I{NATIVE}", *map(str, sources), "-o", str(fresh)]
    try:
        done = subprocess.run(command, capture_output=True, text=True)
    except OSError as error:
        raise BoundsError(f"g++ cannot be run ({error.strerror}): the loops of {SOURCE} need it.") from None
    if done.returncode != 0:
        raise BoundsError(f"{SOURCE} does not compile: {done.stderr.strip()[:300]}")
    fresh.replace(BINARY)


def main() -> None:
    print("\n".join(table(measure())))


def table(bounds: Bounds) -> list[str]:
    """As Markdown: reads of one and of all threads, operations of a thread and of all."""
    lines = ["| bound | one thread | all threads | instruction |", "|---|---|---|---|"]
    one, most = bounds.read[min(bounds.read)] / 1e9, bounds.read_bytes_s / 1e9
    counted = "" if max(bounds.read) == bounds.threads else f" ({max(bounds.read)} of {bounds.threads})"
    lines.append(f"| reading, huge pages | {one:.1f} GB/s | {most:.1f} GB/s{counted} | |")
    for kind, rate in bounds.peak.items():
        together = bounds.operations_s(kind) / 1e9
        lines.append(
            f"| {kind} | {rate / 1e9:.0f} GOP/s | {together:.0f} GOP/s | `{bounds.instructions[kind]}` |"
        )
    return lines


if __name__ == "__main__":
    main()
