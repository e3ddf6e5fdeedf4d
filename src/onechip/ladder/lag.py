"""How late an event loop is: a timer that becomes readable at known moments in, the lags of its reads out.

What a timer's expiry waits before the loop sees it, the bytes of an answer wait too before they are stamped.
"""

from __future__ import annotations

import asyncio
import ctypes
import math
import os
import sys
from collections.abc import Sequence
from time import perf_counter_ns

PERIOD_NS = 5_000_000
CLOCK_MONOTONIC, ABSOLUTE = 1, 1  # time.h, sys/timerfd.h


class _TimerSpec(ctypes.Structure):
    """struct itimerspec: period and first expiry, each in seconds and nanoseconds."""

    _fields_ = (
        ("period_s", ctypes.c_long),
        ("period_ns", ctypes.c_long),
        ("first_s", ctypes.c_long),
        ("first_ns", ctypes.c_long),
    )


class LagProbe:
    """Samples the running loop's lag every PERIOD_NS, from `start` to `stop`.

    The moments are fixed beforehand, and one that passes while the loop is held up counts with all that it
    waited. A probe that sleeps, looks and sleeps again would see one hold of 100 ms as one sample among 200 a
    second and lose it beyond the 99th percentile, though a tenth of a second's events was late ("coordinated
    omission").

    On Linux the timer is the kernel's (timerfd), exact to some 50 microseconds; elsewhere it is the loop's
    own, which libuv rounds to whole milliseconds.

    Attributes:
        lags_ns: one for each moment that has passed.
    """

    def __init__(self) -> None:
        self.lags_ns: list[int] = []
        self._due = 0
        self._loop: asyncio.AbstractEventLoop | None = None
        self._timer: int | None = None
        self._next: asyncio.TimerHandle | None = None

    def start(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._due = perf_counter_ns() + PERIOD_NS
        self._timer = _kernel_timer(self._due)
        if self._timer is not None:
            self._loop.add_reader(self._timer, self._read)
        else:
            self._arm()

    def stop(self) -> None:
        """Ends the sampling; moments that have passed unseen count until now."""
        self._note(perf_counter_ns())
        if self._timer is not None and self._loop is not None:
            self._loop.remove_reader(self._timer)
            os.close(self._timer)
            self._timer = None
        if self._next is not None:
            self._next.cancel()

    def _read(self) -> None:
        now = perf_counter_ns()
        assert self._timer is not None
        os.read(self._timer, 8)
        self._note(now)

    def _arm(self) -> None:
        """Where there is no kernel's timer."""
        now = perf_counter_ns()
        self._note(now)
        assert self._loop is not None
        self._next = self._loop.call_later((self._due - now) / 1e9, self._arm)

    def _note(self, now: int) -> None:
        while self._due <= now:
            self.lags_ns.append(now - self._due)
            self._due += PERIOD_NS


def _kernel_timer(first: int) -> int | None:
    """A descriptor that is readable at `first` (perf_counter_ns) and every PERIOD_NS after; None without one.

    Python has this call since 3.13; Linux' perf_counter is CLOCK_MONOTONIC.
    """
    if sys.platform != "linux":
        return None
    libc = ctypes.CDLL(None)
    timer = int(libc.timerfd_create(CLOCK_MONOTONIC, os.O_NONBLOCK | os.O_CLOEXEC))
    if timer < 0:
        return None
    spec = _TimerSpec(0, PERIOD_NS, *divmod(first, 10**9))
    if libc.timerfd_settime(timer, ABSOLUTE, ctypes.byref(spec), None) != 0:
        os.close(timer)
        return None
    return timer


def percentile(values: Sequence[int], share: float) -> int:
    """The smallest value that at least `share` of them do not exceed (nearest rank); 0 of none."""
    if not values:
        return 0
    return sorted(values)[max(0, math.ceil(share * len(values)) - 1)]
