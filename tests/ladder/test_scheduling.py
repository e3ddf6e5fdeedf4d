"""Which way to a core is taken, and that nothing of it is left afterwards."""

from __future__ import annotations

import contextlib
import gc
import os
import sys
import threading

import pytest

from onechip.ladder import scheduling
from onechip.ladder.scheduling import ORDINARY, REAL_TIME, undisturbed

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


def test_a_system_that_does_not_let_us(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise PermissionError

    monkeypatch.setattr(os, "sched_setscheduler", refuse, raising=False)
    with undisturbed() as way:
        assert way == ORDINARY
        assert not gc.isenabled()
    assert scheduling.scheduling().startswith(ORDINARY)
