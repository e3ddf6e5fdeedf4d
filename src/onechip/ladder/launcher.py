"""One arm's engine: its weights, its starts, its stop."""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path

import msgspec

from onechip.errors import EngineError
from onechip.ladder import pin, state, weights
from onechip.ladder.blocks import Block
from onechip.ladder.disk import writing
from onechip.ladder.engines import ENGINES, engine
from onechip.ladder.engines.engine import Start
from onechip.ladder.engines.port import PortTakenError, free_port
from onechip.ladder.engines.process import EngineProcess
from onechip.ladder.host import Host, this_host
from onechip.ladder.jobs import start
from onechip.ladder.machine import engine_variables
from onechip.ladder.manifest import ArmManifest
from onechip.ladder.progress import Progress
from onechip.ladder.records import Arm, Cell
from onechip.ladder.screen import label
from onechip.ladder.target import Target


class Launcher:
    """Starts and stops one arm's engine, again and again.

    Args:
        failed: told of a start that is tried again.

    Attributes:
        checkpoint: what it serves; None before its first start.
        process: the engine that is up; None between two starts, and for an arm by URL.
        during: the start that is going on, in words.
    """

    def __init__(
        self,
        progress: Progress,
        arm: Arm,
        entry: ArmManifest,
        failed: Callable[[str, EngineError], None],
    ) -> None:
        self.checkpoint: Path | None = None
        self.process: EngineProcess | None = None
        self.during = "getting its weights"
        self._progress = progress
        self._arm = arm
        self._entry = entry
        self._failed = failed
        self._engine = ENGINES[arm.engine]

    def begin(self, block: Block) -> Target:
        """The recorded starts of a block that are missing, cold before warm; the last one stays up.

        Raises:
            EngineError: it has no weights, or does not come up.
        """
        self._entry.version = self._engine.version() or "not installed"
        if self._engine.launch is None:
            assert self._arm.url is not None
            return Target.parse(self._arm.url, self._progress.api_key)
        if self.checkpoint is None:
            self.checkpoint = self._weights()
        if block.cold and self._progress.pending(cold := start.cell(self._arm, "cold", block=block.number)):
            shutil.rmtree(self.cache, ignore_errors=True)
            target = self._recorded(cold)
            if block.warm is None:
                return target
            self.stop()
        if block.warm is not None:
            warm = start.cell(self._arm, "warm", block.warm, block.number)
            if self._progress.pending(warm):
                return self._recorded(warm)
        return self.again()

    def again(self) -> Target:
        """A start that is not recorded; raises EngineError."""
        self.during = "starting"
        return self._start()[0]

    def stop(self) -> str | None:
        """A note if memory did not come back."""
        if self.process is None:
            return None
        self._progress.screen.doing(f"{self._arm.name}: stopping")
        note = self.process.stop()
        self.process = None
        return note

    def forget(self) -> None:
        """Removes the engine's compiled programs."""
        shutil.rmtree(self.cache, ignore_errors=True)

    @property
    def cache(self) -> Path:
        """Of the engine's compiled programs: empty before the cold start, filled before the warm one."""
        return self._progress.folder.absolute() / "cache" / slug(self._arm.name)

    def _weights(self) -> Path:
        """The arm's weights, made if the cache has none; raises EngineError, also where no engine is."""
        hindrance = self._engine.hindrance(this_host())
        if hindrance is not None:
            raise EngineError(hindrance)
        doing = self._progress.screen.doing
        made = weights.prepare(self._arm.model, self._arm.form, self._progress.manifest.source, doing)
        if self._engine.own is not None:
            made = self._engine.own(self._arm, made, doing)
        self._entry.checkpoint = made.hashes
        self._entry.weights = {k: v for k, v in msgspec.to_builtins(made).items() if k != "hashes"}
        return Path(made.path)

    def _recorded(self, cell: Cell) -> Target:
        self._progress.check_deadline()
        self.during = label(cell)
        try:
            target, measured = self._start()
        except EngineError as error:
            self._progress.journal.append(start.record(cell, {}, [f"It did not come up: {error}"]))
            raise
        self._progress.finished(start.record(cell, measured | state.look(), []), 1, 1)
        return target

    def _start(self) -> tuple[Target, dict[str, float]]:
        """Launches the engine, once more if another program has its port; raises EngineError."""
        try:
            return self._launched()
        except PortTakenError as error:
            self._failed(f"It was started again on another port: {error}", error)
            self.stop()
            return self._launched()

    def _launched(self) -> tuple[Target, dict[str, float]]:
        """Raises EngineError."""
        plan, screen = self._progress.plan, self._progress.screen
        with writing(self.cache, self._progress.folder):
            self.cache.mkdir(parents=True, exist_ok=True)
        port = free_port()
        with pin.bound(plan.pin):
            launch = engine.launch(self._engine, self._how(port))
        self._entry.command = launch.command
        self._entry.environment = engine_variables() | launch.environment
        self._progress.save()
        screen.doing(f"{self._arm.name}: starting")
        log = self._progress.folder / "logs" / f"{slug(self._arm.name)}.log"
        self.process = EngineProcess(launch, port, log, plan.pin)
        waiting = partial(screen.waiting, self._arm.name)
        return self.process.target, start.launch(self.process, self._arm, plan.limits, waiting)

    def _how(self, port: int) -> Start:
        assert self.checkpoint is not None
        plan = self._progress.plan
        return Start(self._arm, self.checkpoint, port, self.cache, self._host(), plan.at_once, plan.longest)

    def _host(self) -> Host:
        """The machine as the engine is to see it: with its own cores alone."""
        host, cores = this_host(), self._progress.plan.pin
        return replace(host, threads=len(cores)) if cores else host


def slug(name: str) -> str:
    """An arm's name as a file name."""
    return re.sub(r"[^\w.-]+", "-", name).strip("-") or "arm"
