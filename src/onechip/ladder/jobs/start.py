"""Job `start`: seconds from spawning an engine to its first real token, with an empty and a filled cache.

Cold means that the engine's own cache of compiled programs is empty; the checkpoint may still be in the
system's page cache.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

from onechip.errors import EngineError
from onechip.ladder.client import fetch
from onechip.ladder.engines.process import EngineProcess
from onechip.ladder.jobs.task import definition, now
from onechip.ladder.plan import Limits
from onechip.ladder.records import Arm, Cell, CellRecord
from onechip.ladder.served import KeyWantedError, served_model
from onechip.ladder.target import Target

Variant = Literal["cold", "warm"]
FIRST_TOKEN_S = 300.0


def cell(arm: Arm, variant: Variant, repeat: int = 0, block: int = 0) -> Cell:
    """The cell of one start."""
    what = definition(flags=arm.flags, model=arm.model, form=arm.form)
    return Cell(arm.name, "start", variant, 1, repeat, what, block)


def first_token(target: Target, arm: Arm) -> Callable[[], bool]:
    """Asks for one token of chat; True once it came. Raises KeyWantedError, which no waiting helps."""

    def came() -> bool:
        try:
            model, _ = served_model(target, arm.model)
            messages = [{"role": "user", "content": "Hello"}]
            body = {"model": model, "messages": messages, "max_tokens": 1, "temperature": 0}
            # An engine that reads only the newer name would write to its end; one that knows only the older
            # refuses both.
            for more in ({"max_completion_tokens": 1}, {}):
                status = fetch(target, "/v1/chat/completions", body | more, FIRST_TOKEN_S).head.status
                if status == 401:
                    raise KeyWantedError(target, status)
                if status == 200:
                    return True
        except KeyWantedError:
            raise
        except (EngineError, OSError):
            pass
        return False

    return came


def launch(
    process: EngineProcess, arm: Arm, limits: Limits, waiting: Callable[[str], None]
) -> dict[str, float]:
    """Spawns an engine and waits for its first token; CellRecord.measured.

    Args:
        waiting: told what is waited for, once that takes long.

    Raises:
        EngineError: it did not get that far.
    """
    process.spawn()
    measured = process.wait_ready(first_token(process.target, arm), limits.start_s, waiting)
    if process.meter is not None:
        measured |= process.meter.end()
    for name, size in (
        ("resident_bytes", process.resident_bytes()),
        ("device_bytes", process.device_bytes()),
    ):
        if size is not None:
            measured[name] = float(size)
    return measured


def record(cell: Cell, measured: dict[str, float], invalid: list[str]) -> CellRecord:
    """The record of one start."""
    return CellRecord(cell, now(), measured=measured, invalid=invalid)
