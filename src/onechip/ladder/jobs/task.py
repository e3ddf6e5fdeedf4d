"""A cell that is to be run: what to ask an engine in, its CellRecord out. All jobs but `start` make these."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import partial
from typing import Any

from onechip.ladder import validity
from onechip.ladder.client import Load, run_load
from onechip.ladder.meters import metered
from onechip.ladder.prompts import digest
from onechip.ladder.records import Cell, CellRecord, RequestRecord
from onechip.ladder.session import Session
from onechip.ladder.stream import read_exchange


@dataclass(frozen=True, slots=True)
class Ask:
    """One request to send; `asked_*` and `extra` go into its record."""

    path: str
    body: dict[str, Any]
    prompt_sha256: str
    asked_prompt_tokens: int | None = None
    asked_output_tokens: int | None = None
    extra: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Task:
    """One cell to run.

    Attributes:
        asks: makes the requests, in order, when the cell's turn has come.
        timed: its time is a figure, so the rules on lengths and on the client apply.
        shared_tokens: see validity.reasons.
        warm_up: (name, requests) to be sent before the first cell with this name after a start, and not
            recorded.
        unasked: makes a request like those of the cell, with a prompt of the same series that none of them
            has; None where prompts are not meant to be unique.
        finish: adds scores to a record.
    """

    cell: Cell
    asks: Callable[[], Sequence[Ask]]
    timed: bool = True
    shared_tokens: int | None = None
    warm_up: tuple[str, Callable[[], Sequence[Ask]]] | None = None
    unasked: Callable[[], Ask] | None = None
    finish: Callable[[RequestRecord], None] | None = None


def definition(**what: Any) -> str:
    """Cell.definition: first 16 hex digits of the hash of everything that defines the work."""
    return digest(what)[:16]


def now() -> str:
    """Wall clock for CellRecord.started_at."""
    return datetime.now(UTC).isoformat(timespec="seconds")


def run(task: Task, session: Session) -> CellRecord:
    """Sends a task's requests as a closed loop, reads what came back, and judges it."""
    asks = task.asks()
    started_at = now()
    load, measured = metered(session.meter, prepared(asks, task.cell.level, session))
    counter = session.counter
    count = counter.count if counter is not None and not counter.noise else None
    records = [
        read_exchange(exchange, _blank(index, ask), count)
        for index, (exchange, ask) in enumerate(zip(load.exchanges, asks, strict=True))
    ]
    if task.finish is not None:
        for record in records:
            task.finish(record)
    if task.timed:
        held = session.features.fixed is not None
        invalid = validity.reasons(records, load.client, task.shared_tokens, held)
    else:
        invalid = validity.failures(records)
    return CellRecord(
        task.cell, started_at, requests=records, invalid=invalid, client=load.client, measured=measured
    )


def warm(task: Task, session: Session) -> None:
    """Sends a task's warm-up; failures will show again in the cell itself."""
    if task.warm_up is not None:
        prepared(task.warm_up[1](), task.cell.level, session)()


def prepared(asks: Sequence[Ask], level: int, session: Session) -> Callable[[], Load]:
    """A closed loop at this level whose requests are ready; calling it sends them."""
    payloads = [session.target.request(ask.path, ask.body) for ask in asks]
    return partial(run_load, session.target, payloads, level, session.deadlines, session.tick)


def _blank(index: int, ask: Ask) -> RequestRecord:
    return RequestRecord(
        index,
        ask.prompt_sha256,
        asked_prompt_tokens=ask.asked_prompt_tokens,
        asked_output_tokens=ask.asked_output_tokens,
        extra=dict(ask.extra),
    )
