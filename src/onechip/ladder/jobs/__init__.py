"""The jobs of a ladder. `start` is part of launching an arm; the others are tasks for one that is up."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from onechip.ladder.jobs import acc, one, sweep
from onechip.ladder.jobs.task import Task
from onechip.ladder.records import JobName
from onechip.ladder.session import Session

REPEATED: dict[JobName, Callable[[Session, int], Sequence[Task]]] = {"one": one.tasks, "sweep": sweep.tasks}
"""Jobs that are repeated, one repeat at a time."""
ONCE: dict[JobName, Callable[[Session], Sequence[Task]]] = {"acc": acc.tasks}
