"""The order of things: a manifest and a journal in, every missing cell measured, one engine at a time.

An engine that dies costs the cell that it died in and is started again a few times; one that does not start
costs its own arm. Whatever happens to the ladder itself, what is in the journal stays, and the next run goes
on behind it.
"""

from __future__ import annotations

import re
import shutil
import time
from dataclasses import replace
from functools import partial
from pathlib import Path

import msgspec

from onechip.errors import EngineError, LadderError
from onechip.ladder import manifest as manifests
from onechip.ladder import probe, prompts, weights
from onechip.ladder.checkpoint import TokenCounter, missing_field
from onechip.ladder.disk import writing
from onechip.ladder.engines import ENGINES, engine
from onechip.ladder.engines.engine import Start
from onechip.ladder.engines.port import PortTakenError, free_port
from onechip.ladder.engines.process import EngineProcess
from onechip.ladder.host import this_host
from onechip.ladder.jobs import TASKS, start, sweep
from onechip.ladder.jobs.task import Task, now, run, warm
from onechip.ladder.journal import Journal
from onechip.ladder.machine import engine_variables
from onechip.ladder.manifest import ArmManifest, Failure, Manifest
from onechip.ladder.records import Arm, Cell, CellRecord, JobName
from onechip.ladder.screen import Screen, label
from onechip.ladder.session import Session
from onechip.ladder.target import Target
from onechip.ladder.validity import hopeless

MOST_DEATHS = 3
"""After so many deaths, or times that it stopped answering, an arm's remaining cells are not run."""
DEATH_S = 1.0
"""How long to wait for an engine to be seen dead after a request failed."""


class Ladder:
    """One ladder in its results folder."""

    def __init__(
        self,
        folder: Path,
        manifest: Manifest,
        journal: Journal,
        screen: Screen,
        counter: TokenCounter | None,
        api_key: str | None = None,
        retry_invalid: bool = False,
    ) -> None:
        self.folder = folder
        self.manifest = manifest
        self.journal = journal
        self.screen = screen
        self.counter = counter
        self.api_key = api_key
        self.retry_invalid = retry_invalid
        self._end_s = time.monotonic() + manifest.plan.limits.ladder_s

    def run(self) -> None:
        """Measures every cell that is not in the journal.

        Raises:
            LadderError: the ladder's own deadline passed.
        """
        with writing(self.folder, self.folder):
            (self.folder / "logs").mkdir(exist_ok=True)
        with self.screen.shown():
            for arm in self.manifest.plan.arms:
                entry = self.manifest.arm(arm.name)
                if self._wanted(arm, entry):
                    self.screen.say(f"{arm.name}")
                    ArmRun(self, arm, entry).run()
                    self.save()
        self.manifest.finished_at = now()
        self.save()

    def shortfall(self) -> str | None:
        """One sentence on the arms of a ladder that has run that failed; None if none did.

        Raises:
            LadderError: nothing was measured.
        """
        entries = [self.manifest.arm(arm.name) for arm in self.manifest.plan.arms]
        absent = [entry.name for entry in entries if not entry.finished]
        broken = {record.cell.arm for record in self.journal.records if record.invalid}
        lame = [e.name for e in entries if e.finished and e.failures and e.name in broken]
        said = [
            f"{len(names)} of {len(entries)} arms {what}: {', '.join(names)}"
            for names, what in ((absent, "did not come up"), (lame, "failed on the way"))
            if names
        ]
        why = f"{' and '.join(said)}; what went wrong is above and in the report."
        again = f"Go on with: onechip ladder resume {self.folder} --retry-invalid"
        if all(record.invalid for record in self.journal.records):
            raise LadderError(f"Nothing was measured, as {why if said else 'no cell is valid.'} {again}")
        return f"{why} {again}" if said else None

    def _wanted(self, arm: Arm, entry: ArmManifest) -> bool:
        invalid = any(record.invalid and record.cell.arm == arm.name for record in self.journal.records)
        return not entry.finished or (self.retry_invalid and invalid)

    def pending(self, cell: Cell) -> bool:
        """Whether a cell is still to be measured."""
        record = self.journal.get(cell.id)
        return record is None or (self.retry_invalid and bool(record.invalid))

    def check_deadline(self) -> None:
        if time.monotonic() > self._end_s:
            raise LadderError(
                f"The ladder's deadline of {self.manifest.plan.limits.ladder_s:.0f} s has passed; what was"
                f" measured is kept. Go on with: onechip ladder resume {self.folder}"
            )

    def save(self) -> None:
        manifests.save(self.manifest, self.folder)


class ArmRun:
    """One arm from its first start to its last stop."""

    def __init__(self, ladder: Ladder, arm: Arm, entry: ArmManifest) -> None:
        self.ladder = ladder
        self.arm = arm
        self.entry = entry
        self.engine = ENGINES[arm.engine]
        self.checkpoint: Path | None = None
        self.process: EngineProcess | None = None
        self.deaths = 0
        self._during = "getting its weights"
        self._warmed: set[str] = set()

    def run(self) -> None:
        self.entry.version = self.engine.version() or "not installed"
        try:
            self.checkpoint = self._weights()
            self.session = self._session(self._first_start())
            for name in self.ladder.manifest.plan.jobs:
                if name in TASKS:
                    self._job(name)
            self.entry.finished = True
            shutil.rmtree(self._cache, ignore_errors=True)
        except EngineError as error:
            self._fail(f"It did not come up: {error}", error)
        finally:
            self._stop()

    def _note(self, text: str) -> None:
        self.entry.notes.append(text)
        self.ladder.screen.say(f"           {text}")
        self.ladder.save()

    def _fail(self, what: str, error: EngineError | None = None) -> None:
        """Keeps what went wrong with the last lines of the engine's log, and says it."""
        log = error.log if error is not None else ()
        if not log and self.process is not None:
            log = self.process.last_lines()
        if self.checkpoint is not None and (hint := missing_field(self.checkpoint, log)) is not None:
            what = f"{what} {hint}"
        self.entry.failures.append(Failure(self._during, what, log))
        for line in (what, *(f"| {line}" for line in log)):
            self.ladder.screen.say(f"           {line}")
        self.ladder.save()

    # Starting and stopping

    def _weights(self) -> Path:
        """The arm's weights, made if the cache has none; raises EngineError, also where no engine is."""
        if self.engine.launch is None:
            return Path()
        hindrance = self.engine.hindrance(this_host())
        if hindrance is not None:
            raise EngineError(hindrance)
        screen, manifest = self.ladder.screen, self.ladder.manifest
        made = weights.prepare(self.arm.model, self.arm.form, manifest.source, screen.doing)
        if self.engine.own is not None:
            made = self.engine.own(self.arm, made, screen.doing)
        self.entry.checkpoint = made.hashes
        self.entry.weights = {k: v for k, v in msgspec.to_builtins(made).items() if k != "hashes"}
        return Path(made.path)

    def _first_start(self) -> Target:
        """The recorded starts that are missing, cold before warm; the last one stays up for the jobs."""
        if self.engine.launch is None:
            assert self.arm.url is not None
            return Target.parse(self.arm.url, self.ladder.api_key)
        cold, warm = start.cell(self.arm, "cold"), start.cell(self.arm, "warm")
        if "start" in self.ladder.manifest.plan.jobs:
            if self.ladder.pending(cold):
                shutil.rmtree(self._cache, ignore_errors=True)
                self._recorded_start(cold)
                self._stop()
            if self.ladder.pending(warm):
                return self._recorded_start(warm)
        return self._start()[0]

    def _recorded_start(self, cell: Cell) -> Target:
        self.ladder.check_deadline()
        self._during = label(cell)
        try:
            target, measured = self._start()
        except EngineError as error:
            self.ladder.journal.append(start.record(cell, {}, [f"It did not come up: {error}"]))
            raise
        self._journal(start.record(cell, measured, []), 1, 1)
        return target

    def _start(self) -> tuple[Target, dict[str, float]]:
        """Launches the engine, once more if another program has its port; raises EngineError."""
        try:
            return self._launched()
        except PortTakenError as error:
            self._fail(f"It was started again on another port: {error}", error)
            self._stop()
            return self._launched()

    def _launched(self) -> tuple[Target, dict[str, float]]:
        """Raises EngineError."""
        assert self.engine.launch is not None
        with writing(self._cache, self.ladder.folder):
            self._cache.mkdir(parents=True, exist_ok=True)
        port = free_port()
        launch = engine.launch(self.engine, self._how(port))
        self.entry.command = launch.command
        self.entry.environment = engine_variables() | launch.environment
        self.ladder.save()
        self.ladder.screen.doing(f"{self.arm.name}: starting")
        self.process = EngineProcess(
            launch, port, self.ladder.folder / "logs" / f"{_slug(self.arm.name)}.log"
        )
        self._warmed.clear()
        waiting = partial(self.ladder.screen.waiting, self.arm.name)
        limits = self.ladder.manifest.plan.limits
        return self.process.target, start.launch(self.process, self.arm, limits, waiting)

    def _how(self, port: int) -> Start:
        assert self.checkpoint is not None
        plan = self.ladder.manifest.plan
        return Start(self.arm, self.checkpoint, port, self._cache, this_host(), plan.at_once, plan.longest)

    def _stop(self) -> None:
        if self.process is not None:
            self.ladder.screen.doing(f"{self.arm.name}: stopping")
            note = self.process.stop()
            self.process = None
            if note is not None:
                self._note(note)

    @property
    def _cache(self) -> Path:
        """Of the engine's compiled programs: empty before the cold start, filled before the warm one."""
        return self.ladder.folder.absolute() / "cache" / _slug(self.arm.name)

    # Asking

    def _session(self, target: Target) -> Session:
        """Probes the engine; decides the sweep's shapes if no arm has yet."""
        self._during = "asking what it can do"
        self.ladder.screen.doing(f"{self.arm.name}: {self._during}")
        manifest = self.ladder.manifest
        features = probe.probe(target, self.arm.model)
        self.entry.probe = msgspec.to_builtins(features)
        if "acc" in manifest.plan.jobs and not features.tools:
            self._note("It takes no tools, so sets of function calls are left out.")
        recipe = self._recipe(target, features) if "sweep" in manifest.plan.jobs else None
        self.ladder.save()
        return Session(
            manifest.plan,
            self.arm,
            target,
            features,
            recipe,
            tuple(manifest.shapes),
            manifest.requests,
            self.ladder.counter,
            self.ladder.screen.tick,
            None if self.process is None else self.process.meter,
        )

    def _recipe(self, target: Target, features: probe.Features) -> prompts.Recipe | None:
        """How to make the sweep's prompts, and its shapes if no arm has decided them; None: no sweep."""
        manifest = self.ladder.manifest
        try:
            recipe = probe.find_recipe(target, features, self.ladder.counter)
            if not manifest.shapes:
                manifest.shapes, notes = sweep.fit_shapes(manifest.plan.shapes, features.context)
                manifest.notes += notes
        except LadderError as error:
            self._note(error.message)
            return None
        self.entry.probe["prompts"] = recipe.way
        manifest.prompts[f"sweep as {recipe.way}"] = recipe.sha256
        return recipe

    def _job(self, name: JobName) -> None:
        """Measures one job's missing cells."""
        if name == "sweep" and not self._sized():
            return
        limits = self.session.plan.limits
        end_s = time.monotonic() + limits.job_s
        tasks = TASKS[name](self.session)
        for number, task in enumerate(tasks, start=1):
            if not self.ladder.pending(task.cell):
                continue
            self.ladder.check_deadline()
            if self.deaths >= MOST_DEATHS:
                record = _not_run(task.cell, f"the engine had failed {self.deaths} times")
            elif not self.session.features.fixed and hopeless(task.cell, self.ladder.journal.records):
                record = _not_run(task.cell, "an earlier repeat was INVALID for its length, as this would be")
            elif time.monotonic() > end_s:
                record = _not_run(task.cell, f"the job's deadline of {limits.job_s:.0f} s had passed")
            else:
                self._during = label(task.cell)
                self.ladder.screen.doing(f"{self.arm.name}: {self._during} ({number} of {len(tasks)})")
                record = self._cell(task)
            self._journal(record, number, len(tasks))
            self._revive(record)

    def _sized(self) -> bool:
        """Whether the sweep can run; the first arm that can decides how much work a cell is."""
        manifest = self.ladder.manifest
        if self.session.recipe is not None and not manifest.requests:
            self.ladder.screen.doing(f"{self.arm.name}: finding how long a cell of the sweep takes")
            manifest.requests.update(sweep.size(self.session))
            self.ladder.save()
        return self.session.recipe is not None

    def _cell(self, task: Task) -> CellRecord:
        if task.warm_up is not None and task.warm_up[0] not in self._warmed:
            self._warmed.add(task.warm_up[0])
            warm(task, self.session)
        record = run(task, self.session)
        failed = any(request.error for request in record.requests)
        if self.process is not None and self.process.died(DEATH_S if failed else 0.0):
            record.invalid.append(f"The engine {self.process.obituary()}.")
        return record

    def _revive(self, record: CellRecord) -> None:
        """Starts an engine that died or stopped answering again, for the cells that are left."""
        why = self._lost(record)
        if why is None:
            return
        self.deaths += 1
        self._fail(why)
        if self.process is None:
            return
        self._stop()
        if self.deaths < MOST_DEATHS:
            try:
                target = self._start()[0]
                self.session = replace(self.session, target=target, meter=self.process.meter)
            except EngineError as error:
                self.deaths = MOST_DEATHS
                self._fail(f"It did not come up again: {error}", error)
                self._stop()

    def _lost(self, record: CellRecord) -> str | None:
        """One sentence if the engine is gone; one that failed a whole cell must answer a plain question."""
        if self.process is not None and not self.process.alive:
            return f"It {self.process.obituary()}."
        if not record.requests or not all(request.error for request in record.requests):
            return None
        session = self.session
        error = probe.refusal(session.target, session.features, session.plan.limits.stall_s)
        return None if error is None else f"It does not answer any more: {error}"

    def _journal(self, record: CellRecord, number: int, total: int) -> None:
        self.ladder.journal.append(record)
        self.ladder.screen.finished(record, number, total)


def _not_run(cell: Cell, why: str) -> CellRecord:
    return CellRecord(cell, now(), invalid=[f"Not run: {why}."])


def _slug(name: str) -> str:
    """An arm's name as a file name."""
    return re.sub(r"[^\w.-]+", "-", name).strip("-") or "arm"
