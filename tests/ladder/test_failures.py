"""Engines that fail in every way, as real processes: every ladder ends with a report and loses one arm."""

from __future__ import annotations

import errno
import io
import json
import os
import re
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from msgspec.structs import replace
from rich.console import Console

from onechip.errors import EngineError, LadderError
from onechip.ladder import client as clients
from onechip.ladder import folder as folders
from onechip.ladder import launcher as launching
from onechip.ladder import manifest as manifests
from onechip.ladder import weights
from onechip.ladder.engines import ENGINES, memory, port
from onechip.ladder.engines import process as processes
from onechip.ladder.engines.engine import Launch
from onechip.ladder.engines.process import EngineProcess
from onechip.ladder.journal import Journal, read_records
from onechip.ladder.manifest import ArmManifest
from onechip.ladder.plan import Limits, Plan
from onechip.ladder.records import Arm, CellRecord
from onechip.ladder.report import write_report
from onechip.ladder.run import Ladder
from onechip.ladder.screen import Screen
from tests.ladder import busy, mock_engine, mock_ladder
from tests.ladder.canaries import Scripted
from tests.ladder.mock_engine import Behaviour

ROOT = Path(__file__).parents[2]


class Made:
    """A ladder of two arms, the first of which fails, run to its end and reported."""

    def __init__(self, out: Path, failing: str, limits: Limits) -> None:
        self.out = out
        (out.parent / "config.json").write_text("{}")
        model = str(out.parent)
        bad = (
            Arm("bad", "openai", model, url=failing)
            if failing.startswith("http")
            else Arm("bad", "mock", model, (failing,))
        )
        arms = (bad, Arm("good", "mock", model, ("{}",)))
        plan = Plan(
            model,
            arms,
            jobs=("start", "one"),
            repeats=2,
            one_tokens=4,
            limits=replace(limits, cool_s=0),
        )
        manifest = folders.create(out, plan)
        self.said = io.StringIO()
        journal = Journal(out)
        screen = Screen(Console(file=self.said, width=200))
        self.ladder = Ladder(out, manifest, journal, screen, None, bird=Scripted())
        try:
            self.ladder.run()
        finally:
            journal.close()
        self.shortfall: str | None = self.ladder.shortfall()
        self.summary = write_report(out)

    def records(self, arm: str) -> list[CellRecord]:
        return [record for record in read_records(self.out) if record.cell.arm == arm]

    @property
    def bad(self) -> ArmManifest:
        return manifests.load(self.out).arm("bad")

    def check(self, what: str, log: str) -> None:
        """The other arm is whole, and both reports and the screen say what went wrong."""
        good = self.records("good")
        assert len(good) == 6
        assert not any(record.invalid for record in good)
        for text in [(self.out / name).read_text() for name in ("report.md", "report.html")]:
            assert "What went wrong" in text
            assert what in text
            assert log in text
        assert what in self.said.getvalue()
        assert log in self.said.getvalue()
        lost = not self.bad.finished or any(record.invalid for record in self.records("bad"))
        assert (self.shortfall is not None and "of 2 arms" in self.shortfall) is lost


@pytest.fixture
def make(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[type[Made]]:
    monkeypatch.setitem(ENGINES, "mock", mock_ladder.MOCK)
    busy.overlook(monkeypatch.setattr)
    return Made


def test_a_crash_at_once(make: type[Made], tmp_path: Path) -> None:
    made = make(tmp_path / "out", '{"start": "crash"}', Limits())
    made.check("the engine exited with code 1 before it opened its port.", "no engine oil")
    assert [record.cell.variant for record in made.records("bad")] == ["cold"]
    assert made.shortfall.startswith("1 of 2 arms did not come up: bad; what went wrong is above")


def test_a_crash_while_loading(make: type[Made], tmp_path: Path) -> None:
    made = make(tmp_path / "out", '{"start": "crash loading"}', Limits())
    made.check("the engine exited with code 1 before it answered /health with 200.", "out of engine memory")
    assert made.bad.failures[0].during == "start cold"
    assert made.bad.failures[0].log[-2:] == ("loading shard 2 of 3", "out of engine memory")


class Hurry:
    """The machine's clock, a hundred times as fast while the arm that fails does nothing but let us wait.

    For all else deadlines are far away, however busy the machine is.
    """

    process_time = staticmethod(time.process_time)
    sleep = staticmethod(time.sleep)

    def __init__(self, logs: Path, words: str) -> None:
        self._logs = logs
        self._words = words
        self._now_s = self._seen_s = time.perf_counter()

    def perf_counter(self) -> float:
        seen_s = time.perf_counter()
        self._now_s += (seen_s - self._seen_s) * (100 if self._waits() else 1)
        self._seen_s = seen_s
        return self._now_s

    def perf_counter_ns(self) -> int:
        return round(self.perf_counter() * 1e9)

    def _waits(self) -> bool:
        """Whether it is its turn, and its log ends with these words."""
        if not (self._logs / "bad.log").exists() or (self._logs / "good.log").exists():
            return False
        last = (self._logs / "bad.log").read_text().splitlines()[-1:]
        return any(line.startswith(self._words) for line in last)


def test_a_hang_while_loading(make: type[Made], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(processes, "time", Hurry(tmp_path / "out" / "logs", "mock engine at "))
    made = make(tmp_path / "out", '{"start": "hang"}', Limits(start_s=300))
    made.check("the engine had not answered /health with 200 300 s after it was spawned.", "mock engine at ")


def test_an_engine_that_wants_a_key_is_not_waited_for(make: type[Made], tmp_path: Path) -> None:
    made = make(tmp_path / "out", '{"key": true}', Limits(start_s=60))
    made.check("wants an API key (HTTP 401)", "mock engine at ")
    assert made.shortfall.startswith("1 of 2 arms did not come up: bad; ")


def test_a_list_of_models_in_another_shape_costs_that_arm(make: type[Made], tmp_path: Path) -> None:
    with mock_engine.running(Behaviour(models={"data": "x"})) as engine:
        made = make(tmp_path / "out", f"http://127.0.0.1:{engine.port}", Limits())
    made.check("It did not come up: ", "answers in another shape than OpenAI")


@pytest.mark.parametrize(
    ("start", "what"),
    [
        ("hang", r"answered /health with 200, 300 s"),
        ("elsewhere", r"opened its port \d+ \(it listens on \d+\), 300 s"),
    ],
)
def test_what_is_waited_for_is_said(
    make: type[Made], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, start: str, what: str
) -> None:
    monkeypatch.setattr(processes, "time", Hurry(tmp_path / "out" / "logs", "mock engine at "))
    made = make(tmp_path / "out", json.dumps({"start": start}), Limits(start_s=300))
    said = re.findall(f"waiting until it has {what} at most", made.said.getvalue())
    assert len(said) == 1


def test_weights_that_cannot_be_made_are_said_to_be_the_matter(
    make: type[Made], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(model: str, form: str, *_: object) -> weights.Weights:
        raise EngineError("the disk is read-only.")

    monkeypatch.setattr(weights, "prepare", fail)
    with pytest.raises(LadderError, match="Nothing was measured"):
        make(tmp_path / "out", "{}", Limits())
    assert manifests.load(tmp_path / "out").arm("bad").failures[0].during == "getting its weights"


def test_after_everything_was_measured_again_nothing_is_left_to_go_on_with(
    make: type[Made], tmp_path: Path
) -> None:
    made = make(tmp_path / "out", '{"fault": "refuse", "faulty_from": 17}', Limits())
    assert made.shortfall is not None
    journal = Journal(made.out)
    for record in journal.records:
        record.invalid.clear()
        journal.append(record)
    again = Ladder(made.out, made.ladder.progress.manifest, journal, made.ladder.progress.screen, None)
    journal.close()
    assert again.shortfall() is None


def test_a_hang_in_every_stream(make: type[Made], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """From its 22nd request on: it is restarted twice, and what is left then is not run."""
    hurry = Hurry(tmp_path / "out" / "logs", "stalls")
    monkeypatch.setattr(clients, "perf_counter_ns", hurry.perf_counter_ns)
    made = make(tmp_path / "out", '{"fault": "stall", "faulty_from": 22}', Limits(stall_s=5))
    made.check("It does not answer any more: ", "mock engine at ")
    invalid = [record.invalid[0] for record in made.records("bad") if record.invalid]
    assert any("stalled: no byte for 5 s." in reason for reason in invalid)
    assert made.shortfall.startswith("1 of 2 arms failed on the way: bad; ")


def test_500s_until_it_is_started_again(make: type[Made], tmp_path: Path) -> None:
    made = make(tmp_path / "out", '{"fault": "refuse", "faulty_from": 17}', Limits())
    made.check("It does not answer any more: HTTP 500: the engine is unwell", "mock engine at ")
    bad = made.records("bad")
    assert len(bad) == 6
    assert [bool(record.invalid) for record in bad[:4]] == [False, False, True, False]
    assert bad[2].invalid == ["6 of 6 requests failed: HTTP 500: the engine is unwell"]
    assert made.bad.failures[0].during == "one, alone, repeat 1"


def test_500s_from_an_engine_that_the_ladder_cannot_start_again(make: type[Made], tmp_path: Path) -> None:
    with mock_engine.running(Behaviour(fault="refuse", faulty_from=16)) as engine:
        made = make(tmp_path / "out", f"http://127.0.0.1:{engine.port}", Limits())
    made.check("It does not answer any more: HTTP 500: the engine is unwell", "")
    assert [record.invalid for record in made.records("bad")] == [
        ["6 of 6 requests failed: HTTP 500: the engine is unwell"],
        ["4 of 4 requests failed: HTTP 500: the engine is unwell"],
        ["6 of 6 requests failed: HTTP 500: the engine is unwell"],
        ["Not run: the engine had failed 3 times."],
    ]


@pytest.mark.parametrize("late", [False, True], ids=["before the launch", "during the start"])
def test_a_port_that_somebody_else_took(
    make: type[Made], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, late: bool
) -> None:
    """The other program answers everything that an engine answers, and is asked for nothing."""
    log = tmp_path / "asked of the other"
    other = subprocess.Popen(
        [sys.executable, mock_engine.__file__, "0", json.dumps({"log": str(log)})],
        cwd=ROOT,
        start_new_session=True,
        stdout=subprocess.PIPE,
        env=os.environ | {"PYTHONPATH": str(ROOT)},
    )
    assert other.stdout is not None
    taken = int(other.stdout.readline().split()[-1])
    ports = iter([taken])
    monkeypatch.setattr(launching, "free_port", lambda: next(ports, None) or port.free_port())
    if late:
        seen = iter([False])
        is_open = port.is_open
        monkeypatch.setattr(
            "onechip.ladder.engines.process.is_open", lambda at: next(seen, None) is not False and is_open(at)
        )
    try:
        made = make(tmp_path / "out", "{}", Limits())
    finally:
        other.kill()
        other.wait()
        other.stdout.close()
    made.check(f"It was started again on another port: port {taken} was taken by ", f"process {other.pid}")
    assert not any(record.invalid for record in made.records("bad"))
    assert not log.exists()


def test_an_engine_that_dies_of_a_port_in_use(tmp_path: Path) -> None:
    """Bound by somebody who does not listen: only its own words tell."""
    with socket.socket() as holder:
        holder.bind(("127.0.0.1", 0))
        number = holder.getsockname()[1]
        command = [sys.executable, mock_engine.__file__, str(number), "{}"]
        process = EngineProcess(Launch(command, {"PYTHONPATH": str(ROOT)}), number, tmp_path / "log")
        try:
            process.spawn()
            with pytest.raises(
                port.PortTakenError, match="exited with code 1 before it opened its port"
            ) as said:
                process.wait_ready(lambda: True, 300, lambda what: None)
            assert "address already in use" in "\n".join(said.value.log)
        finally:
            process.stop()


class FullDisk:
    """os.write and files of a results folder, until `room` bytes are used up."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, room: int) -> None:
        self.room = room
        self.write = os.write
        monkeypatch.setattr(os, "write", self.take)

    def take(self, handle: int, data: bytes) -> int:
        if self.room <= 0:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        written = self.write(handle, bytes(data)[: self.room])
        self.room -= written
        return written


def test_a_full_disk_keeps_what_was_measured_and_the_ladder_goes_on(
    make: type[Made], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = tmp_path / "out"
    with monkeypatch.context() as patch:
        FullDisk(patch, 2_500)
        with pytest.raises(LadderError) as said:
            make(out, "{}", Limits())
    assert said.value.message == (
        f"The disk is full (No space left on device): {out}/journal.jsonl could not be written. What was"
        f" measured before is kept. Make room, then go on with: onechip ladder resume {out}"
    )
    kept = read_records(out)
    assert 0 < len(kept) < 6
    assert (out / "journal.jsonl").read_bytes().endswith(b"\n")
    journal = Journal(out)
    assert journal.torn is None
    screen = Screen(Console(file=io.StringIO()))
    Ladder(out, folders.reopen(out), journal, screen, None, bird=Scripted()).run()
    journal.close()
    records = read_records(out)
    assert records[: len(kept)] == kept
    assert len(records) == 12
    assert not any(record.invalid for record in records)


def test_memory_that_comes_back_late_or_not_at_all(monkeypatch: pytest.MonkeyPatch) -> None:
    gib = 1 << 30
    readings = iter([memory.Taken(2 * gib, None), memory.Taken(6 * gib, None)])
    monkeypatch.setattr(memory, "taken", lambda: next(readings))
    assert memory.missing(memory.Taken(6 * gib, None), 4 * gib) is None
    assert next(readings, None) is None
    monkeypatch.setattr(memory, "WAIT_S", 0.0)
    monkeypatch.setattr(memory, "taken", lambda: memory.Taken(2 * gib, None))
    said = memory.missing(memory.Taken(6 * gib, None), 3 * gib)
    assert said == "3.0 GiB of memory had not come back 0 s after it stopped."
    monkeypatch.setattr(memory, "taken", lambda: memory.Taken(6 * gib, 5 * gib))
    said = memory.missing(memory.Taken(6 * gib, gib), 3 * gib)
    assert said == "4.0 GiB of GPU memory had not come back 0 s after it stopped."
