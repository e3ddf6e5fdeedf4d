"""Cores for the engine and cores for the client: the words of --pin in, processes bound to them out."""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Iterable, Iterator

from onechip.errors import UsageError

RANGE = re.compile(r"(\d+)(?:-(\d+))?")


def allowed() -> tuple[int, ...]:
    """Numbers of the cores that this process may use, as far as the system tells."""
    if hasattr(os, "sched_getaffinity"):
        return tuple(sorted(os.sched_getaffinity(0)))
    return tuple(range(os.cpu_count() or 1))


def parse(text: str) -> tuple[int, ...]:
    """Reads "0-5,8".

    Raises:
        UsageError: it is no list of cores, they are not ours, or none is left for the client.
    """
    cores: set[int] = set()
    for word in text.split(","):
        match = RANGE.fullmatch(word.strip())
        if match is None or int(match[1]) > int(match[2] or match[1]):
            raise UsageError(f"--pin {text}: give numbers of cores and ranges of them, like 0-5,8.")
        cores |= set(range(int(match[1]), int(match[2] or match[1]) + 1))
    check(cores)
    return tuple(sorted(cores))


def check(cores: Iterable[int]) -> None:
    """Raises UsageError where the cores cannot be given to an engine here."""
    wanted, ours = set(cores), allowed()
    said = f"--pin {listed(wanted)}"
    if not hasattr(os, "sched_setaffinity"):
        raise UsageError(f"{said}: this system cannot bind a process to cores; leave it out.")
    if not wanted <= set(ours):
        raise UsageError(f"{said}: this process may use cores {listed(ours)} only.")
    if wanted == set(ours):
        raise UsageError(f"{said}: that leaves no core for the client; leave one of {listed(ours)} out.")


def rest(cores: Iterable[int]) -> tuple[int, ...]:
    """What is left for the client."""
    return tuple(core for core in allowed() if core not in set(cores))


def listed(cores: Iterable[int]) -> str:
    """Cores in the words of --pin, ranges joined: "0-5,8"."""
    runs: list[list[int]] = []
    for core in sorted(cores):
        if runs and core == runs[-1][1] + 1:
            runs[-1][1] = core
        else:
            runs.append([core, core])
    return ",".join(f"{first}-{last}" if last > first else f"{first}" for first, last in runs)


@contextlib.contextmanager
def bound(cores: Iterable[int]) -> Iterator[None]:
    """This thread, and whatever it starts meanwhile, runs on these cores alone; on all of ours if there are
    none."""
    wanted = set(cores)
    if not wanted:
        yield
        return
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, wanted)
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)
