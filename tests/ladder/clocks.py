"""A clock that tests set forward: what is to take long is over at once, and nothing else takes long.

On a busy machine anything takes long by other clocks.
"""

from __future__ import annotations

import asyncio
import itertools
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from onechip.ladder import client
from onechip.ladder.client import Connection, _Loop
from onechip.ladder.wire import Exchange
from tests.ladder.mock_engine import Behaviour, MockEngine

Tick = Callable[[], None] | None

BEGIN_NS, STEP_NS = 10**12, 1000
TICK_S = 0.02
PAUSE_S = 0.0005


class Clock:
    """What the client and its scripted engines take for time: a microsecond a look, and what they let pass.

    Attributes:
        received: bytes that the client has read, by the port that sent them.
        coming: requests that a load begins with and that no engine has got yet.
        stalled: an engine sends nothing any more; an hour passes once nothing else can be answered.
    """

    def __init__(self) -> None:
        self.received: Counter[int] = Counter()
        self.coming = 0
        self.stalled = False
        self._ahead_ns = 0
        self._looks = itertools.count()
        self._lock = threading.Lock()

    def perf_counter_ns(self) -> int:
        return BEGIN_NS + STEP_NS * next(self._looks) + self._ahead_ns

    def advance(self, seconds: float) -> None:
        with self._lock:
            self._ahead_ns += round(seconds * 1e9)

    @contextmanager
    def fitted(self) -> Iterator[None]:
        """The client goes by this clock."""
        received, run, expire = Connection.data_received, _Loop.run, _Loop._expire

        async def announce(loop: _Loop, level: int, tick: Tick) -> dict[str, float]:
            self.coming = min(level, len(loop.payloads))
            return await run(loop, level, tick)

        def count(connection: Connection, data: bytes) -> None:
            assert connection._transport is not None
            port = connection._transport.get_extra_info("peername")[1]
            received(connection, data)
            self.received[port] += len(data)

        def expire_at_last(loop: _Loop, why: Callable[[Exchange], str | None]) -> None:
            left = sum(exchange.sent_ns == 0 for exchange in loop.exchanges)
            if self.stalled and (left == 1 or len(loop.connections) == 1):
                self.stalled = False
                self.advance(3600)
            expire(loop, why)

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(client, "perf_counter_ns", self.perf_counter_ns)
            patch.setattr(client, "TICK_PERIOD_S", TICK_S)
            patch.setattr(Connection, "data_received", count)
            patch.setattr(_Loop, "run", announce)
            patch.setattr(_Loop, "_expire", expire_at_last)
            yield


class ClockedEngine(MockEngine):
    """A mock engine whose waits pass on this clock; without one on the machine's."""

    def __init__(self, behaviour: Behaviour, clock: Clock | None = None) -> None:
        super().__init__(behaviour)
        self.clock = clock
        self._written = 0

    async def handle(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        write = writer.write

        def count(data: bytes) -> None:
            self._written += len(data)
            write(data)

        writer.write = count  # type: ignore[method-assign]
        await super().handle(reader, writer)

    async def complete(self, path: str, body: dict[str, Any], writer: asyncio.StreamWriter) -> None:
        if self.clock is not None:
            self.clock.coming -= 1
        await super().complete(path, body, writer)

    def now(self) -> float:
        return super().now() if self.clock is None else self.clock.perf_counter_ns() / 1e9

    async def until(self, moment: float) -> None:
        if self.clock is None:
            await super().until(moment)
        elif moment > self.now():
            await self._stamped(self.clock)
            self.clock.advance(max(0.0, moment - self.now()))

    async def stall(self) -> None:
        if self.clock is not None:
            await self._stamped(self.clock)
            self.clock.stalled = True
        await super().stall()

    async def stand(self, seconds: float) -> None:
        """Lets all streams stand still."""
        if self.clock is None:
            time.sleep(seconds)
        else:
            await self._stamped(self.clock)
            self.clock.advance(seconds)

    def work(self, seconds: float) -> None:
        """Does nothing else for so long."""
        if self.clock is None:
            time.sleep(seconds)
        else:
            self.clock.advance(seconds)

    async def _stamped(self, clock: Clock) -> None:
        """Waits until all is here that is sent at once, and the client has seen all that was sent back."""
        while clock.coming > 0 or clock.received[self.port] < self._written:
            await asyncio.sleep(PAUSE_S)
