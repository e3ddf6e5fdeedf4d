"""What a ladder must know of an engine: how to find it, what its short words mean, how to launch it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from onechip.ladder.records import Arm


@dataclass(frozen=True, slots=True)
class Launch:
    """One start of an engine.

    Attributes:
        command: what is run, the port included; it must stay in the foreground.
        environment: set on top of the ladder's own.
        health: path that answers 200 when the server is up; its first real token is waited for in any case.
    """

    command: list[str]
    environment: dict[str, str] = field(default_factory=dict)
    health: str = "/health"


@dataclass(frozen=True, slots=True)
class Engine:
    """One engine.

    Attributes:
        name: in `--engines` and in Arm.engine.
        summary: one line for `onechip ladder list`.
        version: what is installed here, None if nothing is.
        install: how to get it, one sentence.
        variant: the word behind the colon of `--engines NAME:WORD` -> flags; raises UsageError.
        launch: (arm, port, cache folder) -> how to start it. The cache folder is empty for a cold start and
            kept for the warm one; an engine that keeps compiled programs must be told to keep them there.
            None for an engine that somebody else runs.
    """

    name: str
    summary: str
    version: Callable[[], str | None]
    install: str
    variant: Callable[[str], tuple[str, ...]]
    launch: Callable[[Arm, int, Path], Launch] | None
