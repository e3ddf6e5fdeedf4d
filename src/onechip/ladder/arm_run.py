"""One arm, block after block: what a block wants in, every cell of it that is missing measured."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import replace

import msgspec

from onechip.errors import EngineError, LadderError
from onechip.ladder import probe, prompts, recipes, repeats, state
from onechip.ladder.blocks import Block
from onechip.ladder.checkpoint import missing_field
from onechip.ladder.figures import Place
from onechip.ladder.jobs import ONCE, REPEATED, sweep
from onechip.ladder.jobs.task import Task, now, run, warm
from onechip.ladder.launcher import Launcher
from onechip.ladder.manifest import ArmManifest, Failure, Visit
from onechip.ladder.observer import Observer
from onechip.ladder.progress import Progress
from onechip.ladder.records import Arm, Cell, CellRecord, JobName
from onechip.ladder.screen import label
from onechip.ladder.session import Session
from onechip.ladder.target import Target
from onechip.ladder.validity import hopeless

MOST_DEATHS = 3
"""After so many deaths in a block, or times that it stopped answering, its remaining cells are not run."""
DEATH_S = 1.0
"""How long to wait for an engine to be seen dead after a request failed."""
HERE = ("127.0.0.1", "localhost", "::1")


class ArmRun:
    """One arm from its first start to its last stop."""

    def __init__(self, progress: Progress, arm: Arm, entry: ArmManifest) -> None:
        self.progress = progress
        self.arm = arm
        self.entry = entry
        self.launcher = Launcher(progress, arm, entry, self._fail)
        self._features: probe.Features | None = None
        self._recipe: prompts.Recipe | None = None
        self._deaths = 0
        self._during = ""
        self._warmed: set[str] = set()

    def visit(self, block: Block, cool: bool) -> bool:
        """Runs a block; False if the engine did not come up.

        Args:
            cool: whether another engine was at work just before.
        """
        self.entry.visits.append(visit := self._arrival(block, cool))
        self._deaths = 0
        try:
            self._up(self.launcher.begin(block), block)
            for name in block.jobs:
                self._job(name, block)
            visit.finished = True
        except EngineError as error:
            self._fail(f"It did not come up: {error}", error)
        finally:
            self._stop()
        return visit.finished

    def finish(self) -> None:
        """All blocks are done."""
        self.entry.finished = True
        self.launcher.forget()

    def _arrival(self, block: Block, cool: bool) -> Visit:
        """Lets the machine come to rest first."""
        visit, limit_s = Visit(block.number, now()), self.progress.plan.limits.cool_s
        self._during = ""
        rest = self.progress.manifest.rest
        if cool and limit_s > 0 and rest:
            before = state.Rest.of(rest)
            self.progress.screen.doing(f"{self.arm.name}: waiting until the machine is at rest")
            visit.waited_s, visit.rested = state.cool_down(before, limit_s, self.progress.screen.tick)
        visit.state = state.look()
        return visit

    def _note(self, text: str) -> None:
        if text not in self.entry.notes:
            self.entry.notes.append(text)
            self.progress.screen.say(f"           {text}")
            self.progress.save()

    def _fail(self, what: str, error: EngineError | None = None) -> None:
        """Keeps what went wrong with the last lines of the engine's log, and says it."""
        log = error.log if error is not None else ()
        if not log and self.launcher.process is not None:
            log = self.launcher.process.last_lines()
        checkpoint = self.launcher.checkpoint
        if checkpoint is not None and (hint := missing_field(checkpoint, log)) is not None:
            what = f"{what} {hint}"
        self.entry.failures.append(Failure(self._during or self.launcher.during, what, log))
        for line in (what, *(f"| {line}" for line in log)):
            self.progress.screen.say(f"           {line}")
        self.progress.save()

    def _stop(self) -> None:
        note = self.launcher.stop()
        if note is not None:
            self._note(note)
        self.progress.save()

    # Asking

    def _up(self, target: Target, block: Block) -> None:
        """Makes the session; asks at the first start what the engine can do, and decides the sweep's shapes
        and the size of its cells if no arm has yet."""
        manifest = self.progress.manifest
        if self._features is None:
            self._during = "asking what it can do"
            self.progress.screen.doing(f"{self.arm.name}: {self._during}")
            self._features = probe.probe(target, self.arm.model)
            self.entry.probe = msgspec.to_builtins(self._features)
            if "acc" in manifest.plan.jobs and not self._features.tools:
                self._note("It takes no tools, so sets of function calls are left out.")
            if "sweep" in manifest.plan.jobs:
                self._recipe = self._found_recipe(target, self._features)
        self.session = Session(
            plan=manifest.plan,
            arm=self.arm,
            target=target,
            features=self._features,
            recipe=self._recipe,
            shapes=tuple(manifest.shapes),
            counts=manifest.requests,
            counter=self.progress.counter,
            tick=self.progress.screen.tick,
            block=block.number,
        )
        self._observe()
        if self._recipe is not None and not manifest.requests:
            self.progress.screen.doing(f"{self.arm.name}: finding how long a cell of the sweep takes")
            manifest.requests.update(sweep.size(self.session))
        self.progress.save()

    def _observe(self) -> None:
        """After each start: what was learnt of the engine before it holds no more."""
        process = self.launcher.process
        self.session = replace(self.session, meter=None if process is None else process.meter)
        here = self.session.target.host in HERE
        self._observer = Observer(self.session, process, self.progress.bird if here else None)
        self._warmed.clear()

    def _found_recipe(self, target: Target, features: probe.Features) -> prompts.Recipe | None:
        """How to make the sweep's prompts, and its shapes if no arm has decided them; None: no sweep."""
        manifest = self.progress.manifest
        try:
            recipe = recipes.find(target, features, self.progress.counter)
            if not manifest.shapes:
                manifest.shapes, notes = sweep.fit_shapes(manifest.plan.shapes, features.context)
                manifest.notes += notes
        except LadderError as error:
            self._note(error.message)
            return None
        self.entry.probe["prompts"] = recipe.way
        manifest.prompts[f"sweep as {recipe.way}"] = recipe.sha256
        return recipe

    # Measuring

    def _job(self, name: JobName, block: Block) -> None:
        """Measures one job's missing cells."""
        if name == "sweep" and self.session.recipe is None:
            return
        end_s = time.monotonic() + self.session.plan.limits.job_s
        if name in ONCE:
            tasks = ONCE[name](self.session)
            self._cells(tasks, 0, len(tasks), end_s)
            return
        done = 0
        for repeat in block.repeats:
            tasks = [task for task in REPEATED[name](self.session, repeat) if self._needed(task.cell)]
            if not tasks:
                return
            declared = min(block.repeats.stop, self.session.plan.repeats) - repeat
            self._cells(tasks, done, done + len(tasks) * max(1, declared), end_s)
            done += len(tasks)

    def _needed(self, cell: Cell) -> bool:
        plan, place = self.session.plan, Place.of(cell)
        return repeats.needed(plan, self.progress.journal.records, cell.arm, place, cell.repeat)

    def _cells(self, tasks: Sequence[Task], done: int, total: int, end_s: float) -> None:
        """Args: done: cells of this job before these. end_s: the job's deadline."""
        for number, task in enumerate(tasks, start=done + 1):
            if not self.progress.pending(task.cell):
                continue
            self.progress.check_deadline()
            why = self._hindrance(task.cell, end_s)
            if why is None:
                self._during = label(task.cell)
                self.progress.screen.doing(f"{self.arm.name}: {self._during} ({number} of {total})")
                record = self._cell(task)
            else:
                record = CellRecord(task.cell, now(), invalid=[f"Not run: {why}."])
            self.progress.finished(record, number, total)
            self._revive(record)

    def _hindrance(self, cell: Cell, end_s: float) -> str | None:
        """Why a cell is not run."""
        if self._deaths >= MOST_DEATHS:
            return f"the engine had failed {self._deaths} times"
        if not self.session.features.fixed and hopeless(cell, self.progress.journal.records):
            return "an earlier repeat was INVALID for its length, as this would be"
        if time.monotonic() > end_s:
            return f"the job's deadline of {self.session.plan.limits.job_s:.0f} s had passed"
        return None

    def _cell(self, task: Task) -> CellRecord:
        if task.warm_up is not None and task.warm_up[0] not in self._warmed:
            self._warmed.add(task.warm_up[0])
            warm(task, self.session)
        self._observer.before(task)
        record = run(task, self.session)
        failed = any(request.error for request in record.requests)
        process = self.launcher.process
        if process is not None and process.died(DEATH_S if failed else 0.0):
            record.invalid.append(f"The engine {process.obituary()}.")
        self._observer.after(task, record)
        return record

    def _revive(self, record: CellRecord) -> None:
        """Starts an engine that died or stopped answering again, for the cells that are left."""
        why = self._lost(record)
        if why is None:
            return
        self._deaths += 1
        self._fail(why)
        if self.launcher.process is None:
            return
        self._stop()
        if self._deaths < MOST_DEATHS:
            try:
                self.session = replace(self.session, target=self.launcher.again())
                self._observe()
            except EngineError as error:
                self._deaths = MOST_DEATHS
                self._fail(f"It did not come up again: {error}", error)
                self._stop()

    def _lost(self, record: CellRecord) -> str | None:
        """One sentence if the engine is gone; one that failed a whole cell must answer a plain question."""
        process = self.launcher.process
        if process is not None and not process.alive:
            return f"It {process.obituary()}."
        if not record.requests or not all(request.error for request in record.requests):
            return None
        session = self.session
        error = probe.refusal(session.target, session.features, session.plan.limits.stall_s)
        return None if error is None else f"It does not answer any more: {error}"
