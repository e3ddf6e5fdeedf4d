"""Cores for the engine and for the client."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from onechip.errors import UsageError
from onechip.ladder import pin
from onechip.ladder.engines.engine import Launch
from onechip.ladder.engines.port import free_port
from onechip.ladder.engines.process import EngineProcess


@pytest.fixture
def eight(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: set(range(8)))


@pytest.mark.parametrize(
    ("text", "cores"), [("0", (0,)), ("0-5", (0, 1, 2, 3, 4, 5)), ("6, 1-2,4", (1, 2, 4, 6))]
)
def test_words(text: str, cores: tuple[int, ...], eight: None) -> None:
    assert pin.parse(text) == cores
    assert pin.parse(pin.listed(cores)) == cores
    assert set(pin.rest(cores)) == set(range(8)) - set(cores)


def test_what_cannot_be_done(eight: None, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(UsageError, match=r"--pin 0-7: that leaves no core for the client; leave one of 0-7"):
        pin.parse("0-7")
    with pytest.raises(UsageError, match=r"--pin 6-9: this process may use cores 0-7 only"):
        pin.parse("6-9")
    with pytest.raises(UsageError, match=r"--pin 5-2: give numbers of cores and ranges of them, like 0-5,8"):
        pin.parse("5-2")
    monkeypatch.delattr(os, "sched_setaffinity")
    with pytest.raises(UsageError, match="this system cannot bind a process to cores; leave it out"):
        pin.parse("1")


def test_whatever_starts_meanwhile_is_bound(tmp_path: Path) -> None:
    """The engine to its core, the ladder as it was."""
    ours = pin.allowed()
    log = tmp_path / "logs" / "log"
    log.parent.mkdir()
    said = "import os; print(sorted(os.sched_getaffinity(0)), flush=True)"
    process = EngineProcess(Launch([sys.executable, "-c", said], {}), free_port(), log, ours[:1])
    process.spawn()
    process.died(60)
    assert process.last_lines() == (str(list(ours[:1])),)
    process.stop()
    assert pin.allowed() == ours
    with pin.bound(ours[-1:]):
        done = subprocess.run([sys.executable, "-c", said], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == str(list(ours[-1:]))
    with pin.bound(()):
        assert pin.allowed() == ours
