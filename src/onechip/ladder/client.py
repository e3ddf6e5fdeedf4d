"""A closed-loop load: prepared requests in, the stamped bytes of every answer and the client's own cost out.

The stamp is the first thing that happens when bytes arrive; they are kept as they are and read after the cell
(wire.py, stream.py). Connections are open before the clock starts. What the client itself took from the
machine is measured, because a client that is the bottleneck makes a cell invalid.
"""

from __future__ import annotations

import asyncio
import errno
import json
import socket
import time
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass
from time import perf_counter_ns
from typing import Any, TypeVar, cast

import msgspec
import uvloop

from onechip.ladder.lag import LagProbe, percentile
from onechip.ladder.scheduling import undisturbed
from onechip.ladder.target import Target
from onechip.ladder.wire import Exchange, Response, Tail, WireError, read_response

T = TypeVar("T")

TICK_PERIOD_S = 1.0
LATE_SEND_NS = 5_000_000
"""A send later than this after its slot became free counts as late."""
CONNECT_S = 10.0


@dataclass(frozen=True, slots=True)
class Deadlines:
    """In seconds: without any byte, of one request, of the whole load."""

    stall_s: float
    request_s: float
    load_s: float


@dataclass(frozen=True, slots=True)
class Load:
    """What a load gave: exchanges in the order of the payloads, and CellRecord.client."""

    exchanges: list[Exchange]
    client: dict[str, float]


class Connection(asyncio.Protocol):
    """One keep-alive connection with at most one request on it.

    Attributes:
        stale: the server closed it before the first byte of an answer.
    """

    def __init__(self) -> None:
        self.stale = False
        self._transport: asyncio.Transport | None = None
        self._exchange = Exchange()
        self._tail = Tail()
        self._done: asyncio.Future[None] | None = None

    @classmethod
    async def open(cls, target: Target) -> Connection:
        """Connects; raises OSError, of which TimeoutError is one."""
        loop = asyncio.get_running_loop()
        connecting = loop.create_connection(cls, target.host, target.port, ssl=target.ssl_context)
        _, connection = await asyncio.wait_for(connecting, CONNECT_S)
        return connection

    @property
    def usable(self) -> bool:
        return self._transport is not None and not self._transport.is_closing()

    @property
    def busy(self) -> bool:
        return self._done is not None and not self._done.done()

    @property
    def exchange(self) -> Exchange:
        return self._exchange

    async def send(self, payload: bytes, freed_ns: int = 0) -> Exchange:
        """Sends one request and waits until its answer has ended or failed."""
        assert self._transport is not None
        self._exchange = exchange = Exchange(freed_ns=freed_ns)
        self._tail = Tail()
        self._done = asyncio.get_running_loop().create_future()
        exchange.sent_ns = perf_counter_ns()
        if not self._write(payload):
            self.stale = True
            self.fail("the connection was lost: closed by the server before the request was sent.")
        await self._done
        return exchange

    def _write(self, payload: bytes) -> bool:
        """Whether the transport still took it: one that the server closed would be silent for ever."""
        if self._transport is None or self._transport.is_closing():
            return False
        try:
            self._transport.write(payload)
        except RuntimeError:  # uvloop's, of a handle that closes in this moment
            return False
        return True

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # uvloop's transports are no subclasses of asyncio's, so this cannot be asserted.
        self._transport = cast(asyncio.Transport, transport)

    def data_received(self, data: bytes) -> None:
        now = perf_counter_ns()
        arrivals = self._exchange.arrivals
        arrivals.append((now, data))
        try:
            ended = self._tail.ended(arrivals)
        except WireError as error:
            self.fail(f"{error}.")
            return
        if ended:
            self._end(now)
            if self._tail.head is not None and self._tail.head.closes and self._transport is not None:
                self._transport.close()

    def connection_lost(self, exc: Exception | None) -> None:
        """An answer of unstated length ends here as it should; any other is cut short."""
        if not self.busy:
            return
        head = self._tail.head
        if exc is not None or head is None:
            self.stale = not self._exchange.arrivals
            begun = b"".join(data for _, data in self._exchange.arrivals)[:40]
            how = f"closed by the server after {begun!r}" if begun else "closed by the server, no answer"
            self._exchange.error = f"the connection was lost: {exc or how}."
        elif head.chunked or head.length is not None:
            self._exchange.error = "the server closed the connection inside an answer."
        self._end(perf_counter_ns())

    def fail(self, why: str) -> None:
        """Gives up on the request in flight and on the connection with it."""
        if self.busy:
            self._exchange.error = why
            self._end(perf_counter_ns())
        self.close()

    def close(self) -> None:
        if self._transport is not None:
            self._transport.abort()

    def _end(self, now: int) -> None:
        self._exchange.end_ns = now
        if self._done is not None and not self._done.done():
            self._done.set_result(None)


class _Loop:
    """State of one closed loop: each slot sends its next request as soon as its last one has ended."""

    def __init__(self, target: Target, payloads: Sequence[bytes], deadlines: Deadlines) -> None:
        self.target = target
        self.pending = iter(range(len(payloads)))
        self.payloads = payloads
        self.deadlines = deadlines
        self.exchanges = [Exchange(error="not sent: the cell's deadline passed.") for _ in payloads]
        self.connections: list[Connection | None] = []
        self.reconnects = 0
        self.over = False

    async def slot(self, number: int) -> None:
        freed_ns = 0
        for index in self.pending:
            if self.over:
                return
            self.exchanges[index] = await self._one(number, self.payloads[index], freed_ns)
            freed_ns = self.exchanges[index].end_ns

    async def _one(self, number: int, payload: bytes, freed_ns: int) -> Exchange:
        """One request, on a fresh connection if the old one is gone or turns out to be."""
        connection = self.connections[number]
        if connection is not None and connection.usable:
            exchange = await connection.send(payload, freed_ns)
            # A server may close an idle connection as we use it; then nothing was asked of the engine.
            if freed_ns == 0 or not connection.stale:
                return exchange
        self.reconnects += 1
        try:
            connection = self.connections[number] = await Connection.open(self.target)
        except OSError as error:
            now = perf_counter_ns()
            return Exchange(now, [], now, freed_ns, f"cannot connect to {self.target.url}: {_reason(error)}.")
        return await connection.send(payload, freed_ns)

    async def watch(self, tick: Callable[[], None] | None) -> None:
        """Ends requests whose deadline has passed, and the load when its own has."""
        over_at = time.perf_counter() + self.deadlines.load_s
        while True:
            left = TICK_PERIOD_S if self.over else max(0.0, over_at - time.perf_counter())
            await asyncio.sleep(min(TICK_PERIOD_S, left))
            if time.perf_counter() >= over_at:
                self.over = True
                self._expire(lambda _: "the cell's deadline passed.")
            self._expire(self._overdue)
            if tick is not None:
                tick()

    def _expire(self, why: Callable[[Exchange], str | None]) -> None:
        for connection in self.connections:
            if connection is not None and connection.busy:
                reason = why(connection.exchange)
                if reason is not None:
                    connection.fail(reason)

    def _overdue(self, exchange: Exchange) -> str | None:
        now = perf_counter_ns()
        newest = exchange.arrivals[-1][0] if exchange.arrivals else exchange.sent_ns
        if now - newest > self.deadlines.stall_s * 1e9:
            return f"stalled: no byte for {self.deadlines.stall_s:g} s."
        if now - exchange.sent_ns > self.deadlines.request_s * 1e9:
            return f"not finished within {self.deadlines.request_s:g} s."
        return None

    async def run(self, level: int, tick: Callable[[], None] | None) -> dict[str, float]:
        """Runs all payloads; returns the client's cost."""
        opened = (Connection.open(self.target) for _ in range(min(level, len(self.payloads))))
        results = await asyncio.gather(*opened, return_exceptions=True)
        self.connections = [result if isinstance(result, Connection) else None for result in results]
        watch, probe = asyncio.create_task(self.watch(tick)), LagProbe()
        probe.start()
        cpu, wall = time.process_time(), time.perf_counter()
        await asyncio.gather(*(self.slot(number) for number in range(len(self.connections))))
        cpu, wall = time.process_time() - cpu, time.perf_counter() - wall
        probe.stop()
        watch.cancel()
        for connection in self.connections:
            if connection is not None:
                connection.close()
        return self._cost(probe.lags_ns, cpu, wall)

    def _cost(self, lags_ns: Sequence[int], cpu_s: float, wall_s: float) -> dict[str, float]:
        """CellRecord.client."""
        waits = [exchange.sent_ns - exchange.freed_ns for exchange in self.exchanges if exchange.freed_ns]
        arrivals = sum(len(exchange.arrivals) for exchange in self.exchanges)
        return {
            "loop_lag_p50_ms": percentile(lags_ns, 0.5) / 1e6,
            "loop_lag_p99_ms": percentile(lags_ns, 0.99) / 1e6,
            "loop_lag_max_ms": max(lags_ns, default=0) / 1e6,
            "cpu_share": cpu_s / max(wall_s, 1e-9),
            "cpu_us_per_arrival": 1e6 * cpu_s / max(arrivals, 1),
            "late_sends": float(sum(wait > LATE_SEND_NS for wait in waits)),
            "worst_send_ms": max(waits, default=0) / 1e6,
            "reconnects": float(self.reconnects),
        }


def run_load(
    target: Target,
    payloads: Sequence[bytes],
    level: int,
    deadlines: Deadlines,
    tick: Callable[[], None] | None = None,
) -> Load:
    """Sends `payloads` in order, `level` at a time, each slot again as soon as it is free.

    Args:
        payloads: whole HTTP requests (`Target.request`).
        tick: called about once a second, from the loop; its cost is the client's.
    """
    state = _Loop(target, payloads, deadlines)
    with undisturbed():
        client = _run(state.run(level, tick))
    return Load(state.exchanges, client)


def _run(work: Coroutine[Any, Any, T]) -> T:
    """On libuv's loop, which takes half the processor time of asyncio's own for a stream of small events."""
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        return runner.run(work)


def fetch(target: Target, path: str, body: dict[str, Any] | None = None, timeout_s: float = 30.0) -> Response:
    """One request outside any measurement.

    Raises:
        OSError: it could not be sent, or no whole answer came in time.
    """

    async def once() -> Exchange:
        try:
            connection = await Connection.open(target)
        except OSError as error:
            raise OSError(_reason(error)) from None
        try:
            return await asyncio.wait_for(connection.send(target.request(path, body)), timeout_s)
        finally:
            connection.close()

    try:
        exchange = _run(once())
    except TimeoutError:
        raise OSError(f"{target.url}{path} gave no whole answer within {timeout_s:g} s") from None
    if exchange.error is not None:
        raise OSError(exchange.error.removesuffix("."))
    return read_response(exchange.arrivals, closed=True)


def fetch_json(
    target: Target, path: str, body: dict[str, Any], shape: type[T], timeout_s: float = 30.0
) -> T | None:
    """`fetch`, as a struct; None if it failed, was refused, or is not JSON of that shape."""
    try:
        response = fetch(target, path, body, timeout_s)
        return msgspec.convert(json.loads(response.body), shape) if response.head.status == 200 else None
    except (OSError, ValueError, msgspec.ValidationError):
        return None


def _reason(error: OSError) -> str:
    """Why a connection could not be opened."""
    if isinstance(error, ConnectionRefusedError) or f"Errno {errno.ECONNREFUSED}" in str(error):
        return "nothing listens there (connection refused)"
    if isinstance(error, socket.gaierror):
        return f"its name is not known ({error.strerror})"
    if isinstance(error, TimeoutError):
        return f"no connection within {CONNECT_S:g} s"
    return str(error) or type(error).__name__
