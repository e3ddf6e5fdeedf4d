"""What the server needs of an engine; engine.core.Engine has it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from onechip.engine.types import EngineStats, Event, Request


class ServedEngine(Protocol):
    """An engine that is ready. All methods may be called from any thread.

    Attributes:
        context: tokens of one request, prompt and output together.
        max_requests: requests that run at once.
        failed: why it cannot serve any more, None while it can.
        description: precision and memory plan, a line each.
    """

    @property
    def context(self) -> int: ...

    @property
    def max_requests(self) -> int: ...

    @property
    def failed(self) -> str | None: ...

    @property
    def description(self) -> str: ...

    def start(self, deliver: Callable[[list[Event]], None]) -> None: ...

    def prepare_scoring(self) -> None: ...

    def submit(self, request: Request) -> None: ...

    def cancel(self, request_id: str) -> None: ...

    def stats(self) -> EngineStats: ...

    def drain(self, timeout_s: float) -> int: ...

    def stop(self) -> None: ...
