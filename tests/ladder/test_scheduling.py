"""Which way to a core is taken, and that nothing of it is left afterwards."""

from __future__ import annotations

import contextlib
import gc
import os
import sys
import threading

import pytest

from onechip.ladder import scheduling
from onechip.ladder.scheduling import ORDINARY, REAL_TIME, SHORT_SLICE, undisturbed

linux = pytest.mark.skipif(sys.platform != "linux", reason="Linux' scheduler")


def test_everything_is_as_before_afterwards() -> None:
    before = (scheduling._policy(), sys.getswitchinterval())
    with contextlib.suppress(KeyError), undisturbed():
        assert not gc.isenabled()
        assert sys.getswitchinterval() < before[1]
        raise KeyError
    assert gc.isenabled()
    assert (scheduling._policy(), sys.getswitchinterval()) == before


@linux
def test_real_time_where_it_is_allowed_and_not_for_threads_that_start_meanwhile() -> None:
    found: list[int] = []
    with undisturbed() as way:
        thread = threading.Thread(target=lambda: found.append(os.sched_getscheduler(0)))
        thread.start()
        thread.join()
        real_time = os.sched_getscheduler(0) & os.SCHED_RR == os.SCHED_RR
    assert real_time == (way == REAL_TIME)
    assert found == [os.SCHED_OTHER]


@linux
def test_a_short_slice_where_real_time_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """The kernel itself grants it (Linux 6.12) or has not heard of it."""
    monkeypatch.setattr(scheduling, "_set_policy", lambda wanted: False)
    with undisturbed() as way:
        assert way in (SHORT_SLICE, ORDINARY)
    release = tuple(int(part) for part in os.uname().release.split(".")[:2])
    if release >= (6, 12) and os.uname().machine in scheduling.SYSCALLS:
        assert way == SHORT_SLICE
    assert scheduling.scheduling().startswith(f"{way}, on ")


def test_a_system_with_neither(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scheduling, "_set_policy", lambda wanted: False)
    monkeypatch.setattr(scheduling, "SYSCALLS", {})
    with undisturbed() as way:
        assert way == ORDINARY
