"""Whole ladders with engines that fail: what each failure costs."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from onechip.errors import LadderError
from onechip.ladder.journal import read_records
from onechip.ladder.plan import Limits, Plan
from onechip.ladder.records import Arm, CellRecord
from tests.ladder.clocks import Clock, ClockedEngine
from tests.ladder.mock_engine import Behaviour, running, serving
from tests.ladder.whole_ladders import ROOT, arm, command, here, ladder


def test_a_dying_engine_costs_its_cells_and_not_the_other_arm_s(model: Path, tmp_path: Path) -> None:
    """It dies at its 60th request, in whatever cell that is, each time that it is started."""
    words = arm("mortal", die_at=60, log=str(tmp_path / "a")) + arm("sound")
    _, records, manifest = ladder(tmp_path / "out", model, *words, "--jobs", "one,acc")
    mortal = [record for record in records if record.cell.arm == "mortal"]
    sound = [record for record in records if record.cell.arm == "sound"]
    assert [record.cell.variant for record in mortal] == [record.cell.variant for record in sound]
    dead = [record for record in mortal if record.invalid]
    assert 0 < len(dead) < len(mortal)
    assert any("The engine exited with code 7" in reason for reason in dead[0].invalid)
    assert manifest.arm("mortal").failures[0].what == "It exited with code 7."
    assert manifest.arm("sound").notes == []


def test_an_engine_that_does_not_start_costs_its_arm(model: Path, tmp_path: Path) -> None:
    words = arm("broken", no_such_behaviour=1) + arm("sound")
    said, records, manifest = ladder(tmp_path / "out", model, *words, "--jobs", "start,one")
    broken = [record for record in records if record.cell.arm == "broken"]
    assert [(record.cell.job, record.cell.variant) for record in broken] == [("start", "cold")]
    assert broken[0].invalid == [
        "It did not come up: the engine exited with code 1 before it opened its port."
    ]
    assert "no_such_behaviour" in manifest.arm("broken").failures[0].log[-1]
    assert not manifest.arm("broken").finished
    assert sum(record.cell.arm == "sound" for record in records) == 6
    assert "1 of 2 arms did not come up: broken; what went wrong is above and in the report. Go on" in said


@pytest.mark.parametrize("job", ["start", "one"])
def test_a_ladder_that_measured_nothing_fails_after_its_report(model: Path, tmp_path: Path, job: str) -> None:
    words = [*arm("broken", no_such_behaviour=1), "--arm", "nobody = openai http://127.0.0.1:1/v1"]
    out = tmp_path / "out"
    said, _, _ = ladder(out, model, *words, "--jobs", job, code=LadderError.exit_code)
    assert "onechip: Nothing was measured, as 2 of 2 arms did not come up: broken, nobody; what went" in said
    assert (out / "report.html").exists()


def test_a_stalled_stream_costs_one_request_and_its_cell(tmp_path: Path) -> None:
    clock = Clock()
    with clock.fitted(), serving(ClockedEngine(Behaviour(fault="stall", faulty=(19,)), clock)) as engine:
        arm = Arm("stalls", "openai", "none", url=f"http://127.0.0.1:{engine.port}/v1")
        limits = Limits(stall_s=3, request_s=9999)
        plan = Plan("none", (arm,), ("one",), repeats=2, one_tokens=4, limits=limits)
        _, records = here(tmp_path / "out", plan)
    errors = [request.error for record in records for request in record.requests if request.error]
    assert errors == ["stalled: no byte for 3 s."]
    assert [any("failed" in reason for reason in record.invalid) for record in records] == [
        True,
        *[False] * 3,
    ]


def test_invalid_cells_run_again_only_when_asked_for(model: Path, tmp_path: Path) -> None:
    out, behaviour = tmp_path / "out", Behaviour(fault="refuse", faulty=tuple(range(30, 900)))
    with running(behaviour) as engine:
        url = f"http://127.0.0.1:{engine.port}/v1"
        _, records, _ = ladder(out, model, "--engines", f"openai={url}", "--jobs", "one")
        assert failed(records)
        behaviour.fault = None
        again = command("resume", str(out))
        assert subprocess.run(again, capture_output=True, cwd=ROOT, timeout=600).returncode == 0
        assert failed(read_records(out)) == failed(records)
        assert (
            subprocess.run([*again, "--retry-invalid"], capture_output=True, cwd=ROOT, timeout=600).returncode
            == 0
        )
    assert [record.cell for record in read_records(out)] == [record.cell for record in records]
    assert not failed(read_records(out))


def failed(records: list[CellRecord]) -> list[CellRecord]:
    return [record for record in records if any("failed" in reason for reason in record.invalid)]


def test_a_prefix_cache_makes_sweep_cells_invalid_only_if_prompts_repeat(model: Path, tmp_path: Path) -> None:
    _, records, _ = ladder(tmp_path / "out", model, *arm("caches", prefix_cache=True), "--jobs", "sweep")
    assert not any("prefix cache" in reason for record in records for reason in record.invalid)


def test_lengths_that_differ_make_cells_invalid(model: Path, tmp_path: Path) -> None:
    words = [*arm("short", short=1), "--jobs", "sweep"]
    said, records, _ = ladder(tmp_path / "out", model, *words, code=LadderError.exit_code)
    assert "Nothing was measured, as no cell is valid" in said
    reasons = [reason for record in records for reason in record.invalid if "output length" in reason]
    assert len(records) == 4
    assert [record.cell.repeat for record in records if "output length" in record.invalid[0]] == [0, 0]
    assert reasons[0] == (
        "2 of 2 requests had another output length: asked for 6 output tokens, got 5. It has no field that"
        " holds an answer to a length, so it stops when the model does."
    )
    skipped = [record.invalid for record in records if record.cell.repeat == 1]
    assert skipped == [["Not run: an earlier repeat was INVALID for its length, as this would be."]] * 2
