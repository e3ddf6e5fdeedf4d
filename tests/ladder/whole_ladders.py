"""Ladders of scripted engines: a command line in, for a process of its own, or a plan; its journal out."""

from __future__ import annotations

import io
import json
import shlex
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psutil
from rich.console import Console

from onechip.ladder import folder as folders
from onechip.ladder import manifest as manifests
from onechip.ladder.canary import Canary
from onechip.ladder.checkpoint import TokenCounter
from onechip.ladder.data import load
from onechip.ladder.journal import NAME, Journal, read_records
from onechip.ladder.manifest import Manifest
from onechip.ladder.plan import Plan
from onechip.ladder.prompts import digest
from onechip.ladder.records import CellRecord
from onechip.ladder.run import Ladder
from onechip.ladder.screen import Screen
from tests.ladder.canaries import Scripted

ACC_LIMIT = 30
SMALL = [
    "--levels",
    "1,2",
    "--shapes",
    "24/6",
    "--repeats",
    "2",
    "--acc-limit",
    str(ACC_LIMIT),
    "--cell-seconds",
    "0",
    "--cool-down",
    "0",
    "--quick",
]
ROOT = Path(__file__).parents[2]


def command(*words: str) -> list[str]:
    return [sys.executable, "-m", "tests.ladder.mock_ladder", "ladder", *words]


def arm(name: str, **behaviour: Any) -> list[str]:
    return ["--arm", f"{name} = mock {shlex.quote(json.dumps(behaviour))}"]


def shut(gate: Path, questions: str, number: int) -> None:
    """Engines with this gate do not answer this question of an acorn set as long as the file is there: the
    ladder goes on until it has asked it, and no further."""
    (found,) = (each for each in load("acorn", None, 160) if each.name == questions)
    gate.write_text(digest(found.questions[number].fields))


def ladder(out: Path, model: Path, *words: str, code: int = 0) -> tuple[str, list[CellRecord], Manifest]:
    """Runs one to its end, with this exit code; what it said, its records and its manifest."""
    done = subprocess.run(
        command(str(model), "--out", str(out), *SMALL, *words),
        capture_output=True,
        cwd=ROOT,
        text=True,
        timeout=600,
    )
    assert done.returncode == code, done.stdout + done.stderr
    return done.stdout + done.stderr, read_records(out), manifests.load(out)


def here(
    out: Path, plan: Plan, tokens: TokenCounter | None = None, bird: Canary | None = None
) -> tuple[Manifest, list[CellRecord]]:
    """Runs one to its end in this process, by this canary or by one that sits still."""
    manifest, journal = folders.create(out, plan), Journal(out)
    screen = Screen(Console(file=io.StringIO()))
    try:
        Ladder(out, manifest, journal, screen, tokens, bird=bird or Scripted()).run()
    finally:
        journal.close()
    return manifest, journal.records


def engines_of(out: Path) -> list[int]:
    """Mock engines whose log file lies beside this folder."""
    found = []
    for process in psutil.process_iter(["cmdline"]):
        line = " ".join(process.info["cmdline"] or [])
        if "mock_engine.py" in line and str(out.parent) in line:
            found.append(process.pid)
    return found


def journal(out: Path) -> list[CellRecord]:
    return read_records(out) if (out / NAME).exists() else []


def asked(log: Path) -> list[str]:
    return log.read_text().split() if log.exists() else []


def wait_until(reached: Callable[[], bool], what: str) -> None:
    end = time.monotonic() + 300
    while not reached():
        assert time.monotonic() < end, f"waited 300 s for {what}"
        time.sleep(0.05)
