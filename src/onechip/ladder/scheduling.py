"""How the client's thread gets a core while it measures: nothing in, a context and the way's name out.

On a machine that the engine fills, an ordinary thread that wakes waits for another's slice to end, and its
stamps are milliseconds late. In real time (SCHED_RR, the lowest priority) it runs at once; Linux asks for
CAP_SYS_NICE or RLIMIT_RTPRIO. What needs no permission was tried and did not help (docs/measuring.md).
"""

from __future__ import annotations

import contextlib
import gc
import os
import sys
from collections.abc import Iterator

REAL_TIME, ORDINARY = "real time", "as any process"
REAL_TIME_POLICY = (getattr(os, "SCHED_RR", 0) | getattr(os, "SCHED_RESET_ON_FORK", 0), 1)
"""Policy and priority; threads and processes that start meanwhile do not inherit it."""
SWITCH_S = 1e-4
"""After what time another Python thread must give up the interpreter; Python's own 5 ms would be our lag."""


@contextlib.contextmanager
def undisturbed() -> Iterator[str]:
    """First in line for a core where the system allows it, and no garbage collection; gives the way.

    The client sleeps nearly always; first in line means that its stamps are on time, not that the engine gets
    less. No core is set aside for it: on two cores that would be half of the engine's machine.
    """
    switch_s = sys.getswitchinterval()
    with first_in_line() as way:
        sys.setswitchinterval(SWITCH_S)
        gc.collect()
        gc.disable()
        try:
            yield way
        finally:
            gc.enable()
            sys.setswitchinterval(switch_s)


def scheduling() -> str:
    """How this process is scheduled while it measures and on which cores, for the manifest."""
    with first_in_line() as way:
        if not hasattr(os, "sched_getaffinity"):
            return way
        return f"{way}, on {len(os.sched_getaffinity(0))} of {os.cpu_count()} cores"


@contextlib.contextmanager
def first_in_line() -> Iterator[str]:
    """This thread alone, where the system allows it; gives the way."""
    before = _policy()
    if not _set_policy(REAL_TIME_POLICY):
        yield ORDINARY
        return
    try:
        yield REAL_TIME
    finally:
        _set_policy(before)


def _policy() -> tuple[int, int]:
    """Policy and priority of this thread; (0, 0) where the system has no such thing."""
    if not hasattr(os, "sched_getscheduler"):
        return 0, 0
    return os.sched_getscheduler(0), os.sched_getparam(0).sched_priority


def _set_policy(wanted: tuple[int, int]) -> bool:
    """Whether the system let us."""
    if not hasattr(os, "sched_setscheduler"):
        return False
    try:
        os.sched_setscheduler(0, wanted[0], os.sched_param(wanted[1]))
    except OSError:
        return False
    return True
