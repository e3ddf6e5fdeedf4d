"""How the client's thread gets a core while it measures: nothing in, a context and its name out.

On a machine that the engine fills, a thread that wakes waits for another's slice to end, some 3 to 10 ms, and
its stamps are as late. Three ways, the first that the system allows:

real time: SCHED_RR at its lowest priority. Wakes at once. Linux asks for CAP_SYS_NICE or RLIMIT_RTPRIO.
short slice: since Linux 6.12 any thread may ask for shorter slices; it then preempts one that has longer ones
    if it has had less than its share (EEVDF). Sooner on the average, not at once.
as any process: elsewhere.
"""

from __future__ import annotations

import contextlib
import ctypes
import gc
import os
import platform
import sys
from collections.abc import Iterator

REAL_TIME, SHORT_SLICE, ORDINARY = "real time", "short slice", "as any process"
REAL_TIME_POLICY = (getattr(os, "SCHED_RR", 0) | getattr(os, "SCHED_RESET_ON_FORK", 0), 1)
"""Policy and priority; threads and processes that start meanwhile do not inherit it."""
SLICE_NS = 100_000
"""The shortest that Linux grants."""
SWITCH_S = 1e-4
"""After what time another Python thread must give up the interpreter; Python's own 5 ms would be our lag."""
SYSCALLS = {"x86_64": (314, 315), "aarch64": (274, 275)}
"""Numbers of sched_setattr and sched_getattr; the C library has no functions for them."""


class _Attributes(ctypes.Structure):
    """struct sched_attr, first version (linux/sched/types.h)."""

    _fields_ = (
        ("size", ctypes.c_uint32),
        ("policy", ctypes.c_uint32),
        ("flags", ctypes.c_uint64),
        ("nice", ctypes.c_int32),
        ("priority", ctypes.c_uint32),
        ("runtime", ctypes.c_uint64),
        ("deadline", ctypes.c_uint64),
        ("period", ctypes.c_uint64),
    )


@contextlib.contextmanager
def undisturbed() -> Iterator[str]:
    """First in line for a core, and no garbage collection; gives the way that the system allowed.

    The client sleeps nearly always; first in line means that its stamps are on time, not that the engine gets
    less. No core is set aside for it: on two cores that would be half of the engine's machine. A better nice
    value does not help: on a full machine it changes shares, not who runs at a wake-up.
    """
    switch_s = sys.getswitchinterval()
    with _first_in_line() as way:
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
    with _first_in_line() as way:
        if not hasattr(os, "sched_getaffinity"):
            return way
        return f"{way}, on {len(os.sched_getaffinity(0))} of {os.cpu_count()} cores"


@contextlib.contextmanager
def _first_in_line() -> Iterator[str]:
    before = _policy()
    if _set_policy(REAL_TIME_POLICY):
        try:
            yield REAL_TIME
        finally:
            _set_policy(before)
    elif _set_slice(SLICE_NS):
        try:
            yield SHORT_SLICE
        finally:
            _set_slice(0)
    else:
        yield ORDINARY


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


def _set_slice(wanted_ns: int) -> bool:
    """Asks for slices of this length, 0 for the usual ones; whether they were granted."""
    calls = SYSCALLS.get(platform.machine())
    if sys.platform != "linux" or calls is None or _policy()[0] != os.SCHED_OTHER:
        return False
    set_attributes, get_attributes = calls
    libc = ctypes.CDLL(None)
    nice = os.getpriority(os.PRIO_PROCESS, 0)
    size = ctypes.sizeof(_Attributes)
    asked = _Attributes(size=size, policy=os.SCHED_OTHER, nice=nice, runtime=wanted_ns)
    if libc.syscall(set_attributes, 0, ctypes.byref(asked), 0) != 0:
        return False
    # A kernel before 6.12 takes the value and forgets it.
    granted = _Attributes()
    told = libc.syscall(get_attributes, 0, ctypes.byref(granted), size, 0) == 0
    return told and wanted_ns > 0 and granted.runtime == wanted_ns
