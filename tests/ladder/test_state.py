"""The machine's state, and the wait until it is at rest."""

from __future__ import annotations

import subprocess
import sys
from types import SimpleNamespace

import pytest

from onechip.ladder import state
from onechip.ladder.state import Others, Rest, cool_down, look


def test_what_is_told_is_positive_and_what_is_not_is_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    found = look()
    assert found["memory_available_bytes"] > 1 << 20
    assert found["load_1m"] >= 0
    monkeypatch.setattr(state.psutil, "cpu_freq", lambda: None)
    monkeypatch.setattr(state.psutil, "sensors_temperatures", dict)
    assert set(look()) == {"memory_available_bytes", "load_1m"}


def test_the_engine_s_work_is_not_that_of_others(monkeypatch: pytest.MonkeyPatch) -> None:
    """Readings of the clock, of all cores, and of the engine's tree: two of four busy cores are its own."""
    before, after = (0.0, 100.0, 5.0, 50.0), (10.0, 140.0, 6.0, 70.0)
    taken = iter([before, after, before])
    monkeypatch.setattr(Others, "_taken", lambda self: next(taken))
    assert Others(1).measured() == {"others_cpu_cores": 2.0, "steal_cores": 0.1}
    assert Others(None).measured() == {}


def test_processor_time_of_a_tree() -> None:
    """Of a child that works for a tenth of a second."""
    work = "import sys, time\nwhile time.process_time() < 0.1: pass\nprint(flush=True)\nsys.stdin.read()"
    child = subprocess.Popen([sys.executable, "-c", work], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    with child:
        assert child.stdout is not None
        child.stdout.readline()
        assert 0.09 <= state._tree_s(child.pid) < 30
        assert child.stdin is not None
        child.stdin.close()
    assert state._tree_s(child.pid) == 0.0


@pytest.mark.parametrize(
    ("now", "back"),
    [
        (Rest(0.1, 50.0), True),
        (Rest(0.19, 52.9), True),
        (Rest(0.21, 50.0), False),
        (Rest(0.1, 53.1), False),
        (Rest(0.1, None), True),
    ],
)
def test_at_rest(now: Rest, back: bool) -> None:
    assert now.back_at(Rest(0.1, 50.0)) is back
    assert Rest.of(now.as_dict()) == now


@pytest.fixture
def looks(monkeypatch: pytest.MonkeyPatch) -> list[Rest]:
    """What the machine is like, look for look; a second passes at each."""
    left: list[Rest] = []
    clock = iter(range(1000))
    monkeypatch.setattr(Rest, "now", classmethod(lambda cls: left.pop(0)))
    monkeypatch.setattr(state, "time", SimpleNamespace(monotonic=lambda: float(next(clock))))
    return left


def test_cooling_down_ends_when_it_is_cool(looks: list[Rest]) -> None:
    looks += [Rest(0.9, 80.0), Rest(0.1, 70.0), Rest(0.1, 51.0)]
    ticks: list[int] = []
    assert cool_down(Rest(0.1, 50.0), 60, lambda: ticks.append(1)) == (3.0, True)
    assert len(ticks) == 2


def test_cooling_down_is_bounded(looks: list[Rest]) -> None:
    looks += [Rest(0.9)] * 99
    assert cool_down(Rest(0.1), 5, lambda: None) == (5.0, False)
