"""One arm of bench/cpu.py: its engine started and stopped as a ladder does it, asked as a ladder asks."""

from __future__ import annotations

import contextlib
import re
import shutil
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import msgspec
import psutil

from onechip.errors import EngineError
from onechip.ladder import probe, prompts, recipes, weights
from onechip.ladder.checkpoint import ModelFacts, TokenCounter, file_hashes, model_facts
from onechip.ladder.engines import ENGINES, engine
from onechip.ladder.engines.engine import Start
from onechip.ladder.engines.port import free_port
from onechip.ladder.engines.process import EngineProcess
from onechip.ladder.host import this_host
from onechip.ladder.jobs import start, task
from onechip.ladder.jobs.task import Ask, Task
from onechip.ladder.meters.tree import Resident, Tree
from onechip.ladder.plan import Plan
from onechip.ladder.records import Arm, Cell, CellRecord
from onechip.ladder.session import Session

BLOCK_BYTES = 16 << 20


@dataclass(frozen=True)
class Load:
    """`requests` at once, `waves` times as many in all, of unique prompts: `tokens_in` each, and so many
    tokens out."""

    requests: int
    tokens_in: int
    tokens_out: int
    waves: int = 1

    @property
    def shape(self) -> str:
        return f"{self.tokens_in}/{self.tokens_out}"


def say(text: str) -> None:
    """A line of progress."""
    print(text, file=sys.stderr, flush=True)


def cpu_s(process: psutil.Process) -> float:
    """Seconds of processor time of one process, without its children. Raises psutil.Error if it has ended."""
    times = process.cpu_times()
    return float(times.user + times.system)


class Side:
    """An arm with its checkpoint, and its engine while that runs.

    Attributes:
        notes: what a reader must know of its figures.
        failed: why it is not measured any more, None while it is.
    """

    def __init__(
        self, plan: Plan, arm: Arm, checkpoint: Path, folder: Path, counter: TokenCounter | None
    ) -> None:
        self.plan = plan
        self.arm = arm
        self.notes: list[str] = []
        self.failed: str | None = None
        self._checkpoint = checkpoint
        self._counter = counter
        slug = re.sub(r"[^\w.]+", "-", arm.name)
        self._cache = folder.absolute() / "cache" / slug
        self._log = folder / "logs" / f"{slug}.log"
        self._process: EngineProcess | None = None
        self._known: tuple[probe.Features, prompts.Recipe] | None = None

    @property
    def running(self) -> bool:
        return self._process is not None

    def start(self, *, cold: bool = False) -> float:
        """Seconds from the spawn to a first token; `cold`: with nothing compiled before.

        Raises:
            EngineError: it does not come up.
        """
        if cold:
            shutil.rmtree(self._cache, ignore_errors=True)
        for folder in (self._cache, self._log.parent):
            folder.mkdir(parents=True, exist_ok=True)
        _read_through(self._checkpoint)
        port, plan = free_port(), self.plan
        how = Start(self.arm, self._checkpoint, port, self._cache, this_host(), plan.at_once, plan.longest)
        self._process = EngineProcess(engine.launch(ENGINES[self.arm.engine], how), port, self._log)
        measured = start.launch(self._process, self.arm, plan.limits, lambda text: None)
        return measured["total_s"]

    def stop(self) -> None:
        if self._process is not None:
            note = self._process.stop()
            self._process = None
            if note is not None:
                self.notes.append(note)

    def memory(self) -> Resident:
        """As it is now, each process's peak at its own worst; nothing while it is not running."""
        processes = self._tree()
        found = Tree(processes[0].pid).resident() if processes else None
        return found or Resident()

    def cpu_s(self) -> float:
        """Seconds of processor time since it was started; 0 while it is not running."""
        total = 0.0
        for process in self._tree():
            with contextlib.suppress(psutil.Error):
                total += cpu_s(process)
        return total

    def _tree(self) -> list[psutil.Process]:
        """Whoever listens on its port, and that process's children."""
        if self._process is None:
            return []
        port = self._process.target.port
        for found in psutil.net_connections(kind="tcp"):
            here = found.status == psutil.CONN_LISTEN and getattr(found.laddr, "port", None) == port
            if here and found.pid is not None:
                with contextlib.suppress(psutil.Error):
                    root = psutil.Process(found.pid)
                    return [root, *root.children(recursive=True)]
        return []

    def run(self, load: Load, turn: str, session: Session | None = None) -> CellRecord:
        """One load; `turn` makes its prompts other ones than before, `session` has it asked in another way.

        Raises:
            OnechipError: the engine died, or cannot be asked at all.
        """
        session = session or self.session()
        cell = Cell(self.arm.name, "sweep", load.shape, load.requests, 0, task.definition(turn=turn))
        count = load.requests * load.waves
        asks = [self._ask(session, load, f"{turn}/{index}") for index in range(count)]
        shared = session.recipe.overhead if session.recipe is not None else None
        record = task.run(Task(cell, lambda: asks, shared_tokens=shared), session)
        if self._process is not None and self._process.died(1.0 if record.invalid else 0.0):
            raise EngineError(f"the engine {self._process.obituary()}.")
        return record

    def _ask(self, session: Session, load: Load, key: str) -> Ask:
        assert session.recipe is not None
        prompt = prompts.make(session.recipe, load.tokens_in, f"cpu/{load.shape}/{key}")
        body = session.features.fields(load.tokens_out, fixed=True) | prompt.fields
        return Ask(prompt.path, body, prompt.sha256, load.tokens_in, load.tokens_out)

    def session(self) -> Session:
        """Probes the engine the first time; it does not change from start to start.

        Raises:
            OnechipError: it answers no request, or prompts of exact length cannot be made for it.
        """
        assert self._process is not None
        target = self._process.target
        if self._known is None:
            features = probe.probe(target, self.arm.model)
            self._known = features, recipes.find(target, features, self._counter)
        features, recipe = self._known
        return Session(self.plan, self.arm, target, features, recipe, (), {}, self._counter, lambda: None)


def _read_through(checkpoint: Path) -> None:
    """Reads all files, so that a start finds them in the system's cache, whoever started before."""
    files = (
        [checkpoint] if checkpoint.is_file() else [path for path in checkpoint.iterdir() if path.is_file()]
    )
    for path in files:
        with path.open("rb", buffering=0) as file:
            while file.read(BLOCK_BYTES):
                pass


def sides(plan: Plan, folder: Path) -> Iterator[Side]:
    """The plan's arms with their weights, made if the cache has none.

    Raises:
        OnechipError: weights cannot be made.
    """
    model = weights.source(plan.model)
    say(f"hashing {plan.model}")
    hashes = file_hashes(model)
    counter = TokenCounter.load(model)
    for arm in plan.arms:
        say(f"{arm.name}: weights in {arm.form or 'the form of MODEL'}")
        made = weights.prepare(arm.model, arm.form, hashes, lambda text: None)
        recipe = ENGINES[arm.engine].own
        if recipe is not None:
            made = recipe(arm, made, say)
        yield Side(plan, with_limits(arm, plan, model_facts(model)), Path(made.path), folder, counter)


def with_limits(arm: Arm, plan: Plan, facts: ModelFacts) -> Arm:
    """Our engine plans requests and context by itself; here it serves what its peers are told to."""
    if arm.engine != "onechip":
        return arm
    size = ("--context", str(facts.clipped(plan.longest)), "--max-requests", str(plan.at_once))
    return msgspec.structs.replace(arm, flags=(*arm.flags, *size))
