"""Whole ladders with scripted engines: the order of things, deadlines, kill -9 and resume."""

from __future__ import annotations

import io
import random
import signal
import subprocess
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from functools import partial
from pathlib import Path

import pytest
from msgspec.structs import replace
from rich.console import Console

from onechip.errors import LadderError
from onechip.ladder import folder as folders
from onechip.ladder import manifest as manifests
from onechip.ladder.jobs.sweep import fit_shapes
from onechip.ladder.journal import NAME, Journal
from onechip.ladder.manifest import Manifest
from onechip.ladder.plan import Limits, Plan
from onechip.ladder.records import Arm, CellRecord
from onechip.ladder.run import Ladder
from onechip.ladder.screen import Screen
from tests.ladder.canaries import Scripted
from tests.ladder.clocks import Clock, ClockedEngine
from tests.ladder.mock_engine import Behaviour, running, serving
from tests.ladder.whole_ladders import (
    ACC_LIMIT,
    ROOT,
    SMALL,
    arm,
    asked,
    command,
    engines_of,
    here,
    journal,
    ladder,
    shut,
    wait_until,
)


@pytest.fixture(scope="module")
def whole(
    model: Path, tmp_path_factory: pytest.TempPathFactory
) -> tuple[str, list[CellRecord], Manifest, Path]:
    """Two arms, all jobs."""
    out = tmp_path_factory.mktemp("ladder") / "out"
    log = out.parent / "asked"
    words = arm("fast", usage="each", log=str(log)) + arm("slow", gap_s=0.001)
    return *ladder(out, model, *words), out


def test_every_cell_of_the_plan_is_in_the_journal(
    whole: tuple[str, list[CellRecord], Manifest, Path],
) -> None:
    _, records, _, _ = whole
    places = Counter(
        (record.cell.arm, record.cell.job, record.cell.variant, record.cell.level) for record in records
    )
    for name in ("fast", "slow"):
        assert {place[1:]: count for place, count in places.items() if place[0] == name} == {
            ("start", "cold", 1): 1,
            ("start", "warm", 1): 1,
            ("one", "alone", 1): 2,
            ("one", "four", 4): 2,
            ("sweep", "24/6", 1): 2,
            ("sweep", "24/6", 2): 2,
            ("acc", "acorn-problems", 1): 2,
            ("acc", "acorn-calls", 1): 2,
        }
    assert len({record.cell.id for record in records}) == len(records)


def test_arms_run_one_after_the_other_and_jobs_in_order(
    whole: tuple[str, list[CellRecord], Manifest, Path],
) -> None:
    order = [(record.cell.arm, record.cell.job) for record in whole[1]]
    jobs = ["start", "one", "sweep", "acc"]
    assert list(dict.fromkeys(order)) == [(name, job) for name in ("fast", "slow") for job in jobs]


def test_requests_have_the_lengths_asked_for(whole: tuple[str, list[CellRecord], Manifest, Path]) -> None:
    sweeps = [record for record in whole[1] if record.cell.job == "sweep"]
    for record in sweeps:
        assert len(record.requests) == 2 * record.cell.level
        for request in record.requests:
            assert (request.prompt_tokens, request.output_tokens, request.error) == (24, 6, None)
    of_arm = {
        name: [[r.prompt_sha256 for r in record.requests] for record in sweeps if record.cell.arm == name]
        for name in ("fast", "slow")
    }
    assert of_arm["fast"] == of_arm["slow"]
    every = [sha for cell in of_arm["fast"] for sha in cell]
    assert len(set(every)) == len(every)


def test_starts_are_timed(whole: tuple[str, list[CellRecord], Manifest, Path]) -> None:
    for record in whole[1]:
        if record.cell.job == "start":
            measured = record.measured
            stretches = ("spawn_to_port_s", "port_to_healthy_s", "healthy_to_token_s")
            assert measured["total_s"] == pytest.approx(sum(measured[name] for name in stretches))
            assert measured["total_s"] > 0.05
            assert measured["resident_bytes"] > 1 << 20


def test_the_manifest_says_what_ran(whole: tuple[str, list[CellRecord], Manifest, Path]) -> None:
    manifest = whole[2]
    assert manifest.finished_at is not None
    assert [entry.finished for entry in manifest.arms] == [True, True]
    assert manifest.arms[0].command[1].endswith("mock_engine.py")
    assert manifest.arms[0].probe["counts"]
    assert not manifest.arms[1].probe["counts"]
    assert manifest.shapes == [(24, 6)]
    assert manifest.requests == {"24/6 at 1": 2, "24/6 at 2": 4}
    assert {name: len(sha) for name, sha in manifest.prompts.items()} == {"one": 64, "sweep as ids": 64}
    assert manifest.data["acorn-problems"]["questions"] == 30
    assert manifest.machine["cores"]


def test_reports_are_written_and_a_winner_table_is_printed(
    whole: tuple[str, list[CellRecord], Manifest, Path],
) -> None:
    said, _, _, out = whole
    assert all((out / name).stat().st_size > 500 for name in ("summary.json", "report.md", "report.html"))
    assert "fast" in said
    assert "slow" in said


def test_no_engine_is_left_behind(whole: tuple[str, list[CellRecord], Manifest, Path]) -> None:
    assert not engines_of(whole[3])


def test_killed_at_random_and_resumed_equals_uninterrupted(
    whole: tuple[str, list[CellRecord], Manifest, Path], model: Path, tmp_path: Path
) -> None:
    """It cannot end before the last kill, as its last question is answered only then."""
    out, log, gate = tmp_path / "out", tmp_path / "asked", tmp_path / "gate"
    words = arm("fast", usage="each", log=str(log), gap_s=0.002, gate=str(gate))
    shut(gate, "acorn-calls", ACC_LIMIT - 1)
    rng = random.Random(7)
    start = command(str(model), "--out", str(out), *SMALL, *words)
    kills = 0
    while True:
        journaled = {
            r.prompt_sha256 for record in journal(out) if record.cell.job != "one" for r in record.requests
        }
        asked_before = len(asked(log))
        process = subprocess.Popen(start, cwd=ROOT, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        wait_until((out / manifests.NAME).exists, "the ladder's folder")
        try:
            assert process.wait(rng.uniform(1.2, 3.0) if kills < 5 else 600) == 0
            break
        except subprocess.TimeoutExpired:
            process.send_signal(signal.SIGKILL)
            process.wait()
            kills += 1
            if kills == 5:
                gate.unlink()
        wait_until(lambda: not engines_of(out), "the engine's end after its ladder's")
        assert not journaled & set(asked(log)[asked_before:]), "a finished cell was asked again"
        if (out / manifests.NAME).exists():
            start = command("resume", str(out))
    assert kills == 5
    assert cells(journal(out)) == cells([record for record in whole[1] if record.cell.arm == "fast"])
    assert (out / NAME).read_bytes().count(b"\n") == len(journal(out))
    assert set(asked(log)) == set(asked(whole[3].parent / "asked"))
    assert manifests.load(out).finished_at is not None
    assert 1 <= len(manifests.load(out).resumed_at) <= 5


def cells(records: list[CellRecord]) -> list[tuple[str, str, int, int, str]]:
    """What was measured, in order; the definition of a start holds the log's path, which differs."""
    named = (record.cell for record in records)
    return [(c.job, c.variant, c.level, c.repeat, "" if c.job == "start" else c.definition) for c in named]


def test_an_interrupt_keeps_what_was_measured_and_says_how_to_go_on(model: Path, tmp_path: Path) -> None:
    """In the middle of its first questions, at the latest."""
    out, gate = tmp_path / "out", tmp_path / "gate"
    words = arm("slow", gap_s=0.003, log=str(tmp_path / "asked"), gate=str(gate))
    shut(gate, "acorn-problems", 5)
    start = command(str(model), "--out", str(out), *SMALL, *words)
    process = subprocess.Popen(
        start,
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        # Tests that run in a shell's background inherit that Ctrl-C is ignored; a user's terminal does not.
        preexec_fn=partial(signal.signal, signal.SIGINT, signal.SIG_DFL),
    )
    wait_until(lambda: len(journal(out)) >= 3, "three cells")
    process.send_signal(signal.SIGINT)
    said, complaint = process.communicate(timeout=300)
    assert process.returncode == 130
    assert f"Interrupted. Go on with: onechip ladder resume {out}" in said
    assert complaint == ""
    assert not engines_of(out)
    assert len(journal(out)) >= 3


@pytest.fixture
def small(tmp_path: Path) -> Iterator[Callable[[Limits], tuple[Ladder, Journal]]]:
    """A ladder of one job on an engine that is running, with these deadlines."""

    def make(limits: Limits) -> tuple[Ladder, Journal]:
        behaviour = Behaviour()
        engine = stack.enter_context(running(behaviour))
        arms = (Arm("a", "openai", "none", url=f"http://127.0.0.1:{engine.port}/v1"),)
        plan = Plan("none", arms, jobs=("one",), repeats=2, one_tokens=4, limits=limits)
        manifest = folders.create(tmp_path / "out", plan)
        journal = Journal(tmp_path / "out")
        stack.callback(journal.close)
        screen = Screen(Console(file=io.StringIO()))
        return Ladder(tmp_path / "out", manifest, journal, screen, None, bird=Scripted()), journal

    with ExitStack() as stack:
        yield make


def test_cells_past_their_job_s_deadline_are_not_run(
    small: Callable[[Limits], tuple[Ladder, Journal]],
) -> None:
    ladder, kept = small(Limits(job_s=0))
    ladder.run()
    assert [record.invalid for record in kept.records] == [
        ["Not run: the job's deadline of 0 s had passed."]
    ] * 4


def test_a_ladder_past_its_deadline_stops_and_can_go_on(
    small: Callable[[Limits], tuple[Ladder, Journal]],
) -> None:
    ladder, kept = small(Limits(ladder_s=0))
    with pytest.raises(
        LadderError, match="The ladder's deadline of 0 s has passed; what was measured is kept"
    ):
        ladder.run()
    assert kept.records == []
    assert not ladder.progress.manifest.arms[0].finished


def test_a_sweep_s_cells_take_as_long_as_asked(tmp_path: Path) -> None:
    """A wave takes 0.4 s by the clock of engine and client, so a cell of 3 s has eight; all get them."""
    clock, arms = Clock(), []
    with clock.fitted(), ExitStack() as stack:
        for name, ttft_s in (("first", 0.4), ("other", 0.02)):
            engine = stack.enter_context(serving(ClockedEngine(Behaviour(ttft_s=ttft_s), clock)))
            arms.append(Arm(name, "openai", "none", url=f"http://127.0.0.1:{engine.port}/v1"))
        limits, shapes = Limits(cool_s=0), ((24, 6),)
        sweep = Plan("none", tuple(arms), ("sweep",), levels=(1, 2), shapes=shapes, repeats=1, limits=limits)
        manifest, records = here(tmp_path / "out", replace(sweep, least_cell_s=3))
    assert manifest.requests == {"24/6 at 1": 8, "24/6 at 2": 16}
    assert [(record.cell.arm, len(record.requests)) for record in records] == [
        ("first", 8),
        ("first", 16),
        ("other", 8),
        ("other", 16),
    ]


def test_shapes_are_halved_until_they_fit() -> None:
    assert fit_shapes([(512, 128), (128, 512)], None) == ([(512, 128), (128, 512)], [])
    assert fit_shapes([(512, 128)], 640) == ([(512, 128)], [])
    shapes, notes = fit_shapes([(512, 128), (64, 16)], 200)
    assert shapes == [(128, 32), (64, 16)]
    assert notes == ["The sweep's shape 512/128 was run as 128/32, because the context is 200 tokens."]
    assert fit_shapes([(12, 3)], 20) == ([(12, 3)], [])
    with pytest.raises(LadderError, match="too short for shape 512/128"):
        fit_shapes([(512, 128)], 30)
