"""An engine whose answers are scripted to the byte and to the nanosecond, on a clock of its own.

The client under test is the real one, on a real socket; only its clock is the script's. The engine sets the
clock, writes, and waits until the client has the bytes before it goes on: no machine is too busy for exact
figures.
"""

from __future__ import annotations

import asyncio
import socket
import struct
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Literal

import pytest

from onechip.ladder import client
from onechip.ladder.client import Connection
from tests.ladder.mock_engine import Behaviour, MockEngine, serving

MS = 1_000_000
BEGIN_NS = 10**12
PAUSE_S = 0.0002
TICK_S = 0.02

Step = tuple[float, bytes]
"""Milliseconds after the request, and what is sent then."""
End = Literal["keep", "close", "reset", "hang"]


@dataclass(frozen=True)
class Answer:
    """What one request gets; "hang" lets an hour pass without a byte."""

    steps: Sequence[Step]
    end: End = "keep"


class Tap:
    """The client's clock, and how much it has received."""

    def __init__(self) -> None:
        self.now = BEGIN_NS
        self.received = 0

    def read(self) -> int:
        return self.now

    @contextmanager
    def fitted(self) -> Iterator[None]:
        received = Connection.data_received

        def count(connection: Connection, data: bytes) -> None:
            received(connection, data)
            self.received += len(data)

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(client, "perf_counter_ns", self.read)
            patch.setattr(client, "TICK_PERIOD_S", TICK_S)
            patch.setattr(Connection, "data_received", count)
            yield


class ScriptedEngine(MockEngine):
    """Gives its answers in order, one to each request."""

    def __init__(self, answers: Sequence[Answer], tap: Tap) -> None:
        super().__init__(Behaviour())
        self.answers = iter(answers)
        self.tap = tap

    async def complete(self, path: str, body: dict[str, Any], writer: asyncio.StreamWriter) -> None:
        answer, sent_ns = next(self.answers), self.tap.now
        for ms, data in answer.steps:
            self.tap.now = sent_ns + round(ms * MS)
            wanted = self.tap.received + len(data)
            writer.write(data)
            while self.tap.received < wanted:
                await asyncio.sleep(PAUSE_S)
        if answer.end == "hang":
            self.tap.now += 3600 * 1000 * MS
        elif answer.end == "reset":
            linger = struct.pack("ii", 1, 0)
            writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
            writer.transport.abort()
        elif answer.end == "close":
            writer.close()


@contextmanager
def scripted(answers: Sequence[Answer]) -> Iterator[ScriptedEngine]:
    """The engine at work, and the client on its clock."""
    tap = Tap()
    with tap.fitted(), serving(ScriptedEngine(answers, tap)) as engine:
        yield engine
