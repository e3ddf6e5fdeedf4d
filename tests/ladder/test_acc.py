"""Job `acc` with a scripted engine: many questions at once, asked again, and killed inside a set."""

from __future__ import annotations

import json
import subprocess
from collections import Counter
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest
from typer.testing import CliRunner

from onechip.cli import app
from onechip.errors import UsageError
from onechip.ladder import manifest as manifests
from onechip.ladder.jobs import acc
from onechip.ladder.journal import NAME, read_records
from onechip.ladder.plan import Plan
from onechip.ladder.probe import Features
from onechip.ladder.records import Arm, CellRecord
from onechip.ladder.session import Session
from tests.ladder.whole_ladders import ROOT, arm, asked, command, engines_of, shut, wait_until

QUESTIONS, BLOCK = 40, 20
FEATURES = Features(
    model="acorn",
    context=None,
    usage=True,
    counts=True,
    cached=False,
    completions=True,
    token_ids=True,
    limit="max_tokens",
    fixed="ignore_eos",
    tokenize=True,
    thinking_off=True,
    tools=True,
    calls=True,
    seed=True,
    greedy=True,
    logprobs=False,
)
WORDS = ["--jobs", "acc", "--acc-level", "4", "--acc-limit", str(QUESTIONS), "--repeat-acc", "1"]


def records(out: Path) -> list[CellRecord]:
    return read_records(out) if (out / NAME).exists() else []


def test_a_kill_inside_a_set_loses_one_block_at_the_most(tmp_path: Path) -> None:
    """Four questions at once, twice over; killed in the first asking's second block."""
    (model := tmp_path / "model").mkdir()
    (model / "config.json").write_text("{}")
    out, log, gate = tmp_path / "out", tmp_path / "asked", tmp_path / "gate"
    behaviour = {"usage": "each", "log": str(log), "gate": str(gate)}
    words = [str(model), "--out", str(out), *WORDS, *arm("a", **behaviour)]
    shut(gate, "acorn-problems", BLOCK + 5)
    process = subprocess.Popen(command(*words), cwd=ROOT, stdout=subprocess.DEVNULL)
    wait_until(lambda: gate.read_text() in asked(log), "the second block")
    process.kill()
    process.wait()
    wait_until(lambda: not engines_of(out), "the engine's end after its ladder's")
    assert len(records(out)) == 1
    gate.unlink()
    kept = {request.prompt_sha256 for record in records(out) for request in record.requests}
    done = subprocess.run(command("resume", str(out)), cwd=ROOT, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stdout + done.stderr
    found = records(out)
    assert all(not record.invalid for record in found)
    assert {(record.cell.level, len(record.requests)) for record in found} == {(4, BLOCK)}
    for asking in (0, 1):
        for variant in ("acorn-problems", "acorn-calls"):
            mine = [r for r in found if (r.cell.repeat, r.cell.variant) == (asking, variant)]
            questions = [request.extra["question"] for record in mine for request in record.requests]
            assert len(questions) == len(set(questions)) == QUESTIONS
    # Every question twice, and those of one block once more.
    times = Counter(asked(log))
    hashes = {request.prompt_sha256 for record in found for request in record.requests}
    assert sum(times[sha] for sha in hashes) <= 2 * 2 * QUESTIONS + BLOCK
    assert all(times[sha] == 2 for sha in kept)
    assert all(request.extra["asked"] for record in found for request in record.requests)
    controls = json.loads((out / "summary.json").read_text("utf-8"))["controls"]
    assert [(c["askings"], c["n"], c["flips"], c["texts"]) for c in controls] == [(2, QUESTIONS, 0, 0)] * 2
    assert manifests.load(out).finished_at is not None


def test_times_asked_must_be_a_number_of_times(tmp_path: Path) -> None:
    words = ["ladder", "acorn", "--repeat-acc", "-1", "--out", str(tmp_path / "out")]
    error = CliRunner().invoke(app, words).exception
    assert isinstance(error, UsageError)
    assert error.message == "--repeat-acc -1: give 0 to 1000."


@pytest.mark.parametrize(("level", "size"), [(1, 20), (4, 20), (16, 64)])
def test_a_block_has_waves_enough_for_its_slots(level: int, size: int) -> None:
    plan = Plan("acorn", (Arm("a", "openai", "acorn"),), jobs=("acc",), acc_level=level)
    session = cast(Session, SimpleNamespace(plan=plan, arm=plan.arms[0], features=FEATURES))
    made = [task for task in acc.tasks(session) if task.cell.variant == "acorn-problems"]
    assert len(made) == -(-200 // size)
