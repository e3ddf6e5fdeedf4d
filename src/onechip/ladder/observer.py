"""What is seen of machine and engine around a timed cell: two looks, one before and one after, in; reasons
against the cell and readings for its record out."""

from __future__ import annotations

from collections.abc import Sequence

from onechip.ladder import canary, state, validity
from onechip.ladder.canary import Canary, Reading
from onechip.ladder.engines.process import EngineProcess
from onechip.ladder.jobs.task import Task
from onechip.ladder.prefix import PrefixCanary
from onechip.ladder.records import CellRecord
from onechip.ladder.session import Session
from onechip.ladder.watch import Sight, Watch


class Observer:
    """Of one engine between its start and its stop.

    Args:
        process: None where the ladder did not start it.
        bird: None where it would have to share a chip with the engine.
    """

    def __init__(self, session: Session, process: EngineProcess | None, bird: Canary | None) -> None:
        self._watch = Watch(session.target, process)
        self._prefix = PrefixCanary(session)
        self._cached_known = session.features.cached
        self._pid = None if process is None else process.pid
        self._bird = bird
        self._others = state.Others(self._pid)
        self._sight = Sight()
        self._reading: Reading | None = None
        self._reasons: list[str] = []

    def before(self, task: Task) -> None:
        """To be called just before the cell."""
        self._reasons = []
        self._others = state.Others(self._pid)
        if not task.timed:
            return
        self._sight = self._watch.look()
        if task.unasked is not None and not self._cached_known and not self._sight.counts_cached:
            self._reasons = self._prefix.asked_before(task.unasked())
        self._reading = None if self._bird is None else self._bird.read()

    def after(self, task: Task, record: CellRecord) -> None:
        """To be called just after it; adds to the record."""
        record.measured |= self._others.measured() | state.look()
        if not task.timed:
            return
        reasons = [*self._reasons, *self._moved(record)]
        seen = self._watch.since(self._sight)
        reasons += validity.happened(seen, len(record.requests), task.shared_tokens)
        record.invalid.extend(reasons)

    def _moved(self, record: CellRecord) -> Sequence[str]:
        if self._bird is None or self._reading is None:
            return ()
        after = self._bird.again(self._reading)
        record.measured |= canary.measured(self._reading, after)
        return canary.moved(self._reading, after)
