"""One client against a flood: its name and the flood's port in, its cost and how late it stamps out (JSON).

    python -m bench.client_rivals NAME PORT STREAMS EVENTS

Every client reads the same streams to the end and finds the text and the moment of each event. The first
flood warms it up and opens its connections, the second counts.
"""

from __future__ import annotations

import asyncio
import json
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any, NamedTuple

import uvloop
from bench.client_flood import PATH, WORD

from onechip.ladder.client import Deadlines, run_load
from onechip.ladder.lag import percentile
from onechip.ladder.target import Target
from onechip.ladder.wire import read_response, server_events

BODY: dict[str, Any] = {"model": "flood", "messages": [{"role": "user", "content": "Go."}], "stream": True}
DEADLINES = Deadlines(stall_s=60, request_s=300, load_s=300)

Seen = tuple[int, dict[str, Any]]
"""When an event was seen (perf_counter_ns), and its payload."""
Ask = Callable[[], Awaitable[list[Seen]]]


class Cost(NamedTuple):
    """Of all streams together.

    Attributes:
        during_s: processor time while they ran. after_s: to read afterwards what was only kept.
        late_p50_us, late_p99_us: from when an event was written to its stamp.
    """

    during_s: float
    after_s: float
    late_p50_us: float
    late_p99_us: float


def onechip(port: int, streams: int) -> tuple[list[list[Seen]], float, float]:
    """The ladder's own client: everything seen in each stream, seconds during and after."""
    target = Target("127.0.0.1", port)
    for _ in range(2):
        load = run_load(target, [target.request(PATH, BODY)] * streams, streams, DEADLINES)
    arrivals = sum(len(exchange.arrivals) for exchange in load.exchanges)
    began = time.process_time()
    seen = []
    for exchange in load.exchanges:
        events = server_events(read_response(exchange.arrivals))
        seen.append([(e.ns, json.loads(e.data)) for e in events if e.data != b"[DONE]"])
    during_s = load.client["cpu_us_per_arrival"] * arrivals / 1e6
    return seen, during_s, time.process_time() - began


@asynccontextmanager
async def openai_sdk(url: str) -> AsyncIterator[Ask]:
    """openai.AsyncOpenAI, its events as objects."""
    from openai import AsyncOpenAI

    async with AsyncOpenAI(base_url=f"{url}/v1", api_key="none", max_retries=0) as client:

        async def ask() -> list[Seen]:
            seen = []
            async for event in await client.chat.completions.create(**BODY):
                now = time.perf_counter_ns()
                delta = event.choices[0].delta
                seen.append(
                    (now, {"created": event.created, "choices": [{"delta": {"content": delta.content}}]})
                )
            return seen

        yield ask


@asynccontextmanager
async def httpx_lines(url: str) -> AsyncIterator[Ask]:
    """httpx.AsyncClient, line by line, JSON at once."""
    import httpx

    limits = httpx.Limits(max_connections=None)
    async with httpx.AsyncClient(limits=limits, timeout=60) as client:

        async def ask() -> list[Seen]:
            async with client.stream("POST", url + PATH, json=BODY) as response:
                return [
                    (time.perf_counter_ns(), json.loads(line[6:]))
                    async for line in response.aiter_lines()
                    if line.startswith("data: {")
                ]

        yield ask


@asynccontextmanager
async def aiohttp_lines(url: str) -> AsyncIterator[Ask]:
    """aiohttp, line by line, JSON at once."""
    import aiohttp

    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0)) as client:

        async def ask() -> list[Seen]:
            async with client.post(url + PATH, json=BODY) as response:
                return [
                    (time.perf_counter_ns(), json.loads(line[6:]))
                    async for line in response.content
                    if line.startswith(b"data: {")
                ]

        yield ask


@asynccontextmanager
async def aiohttp_bytes(url: str) -> AsyncIterator[Ask]:
    """aiohttp, which keeps the bytes with their stamps; `read_kept` reads them afterwards."""
    import aiohttp

    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0)) as client:

        async def ask() -> Any:
            async with client.post(url + PATH, json=BODY) as response:
                return [(time.perf_counter_ns(), data) async for data in response.content.iter_any()]

        yield ask


def read_kept(kept: list[tuple[int, bytes]]) -> list[Seen]:
    """Events of bytes that were kept; each piece holds whole events, as the flood writes them."""
    return [
        (ns, json.loads(line[6:]))
        for ns, data in kept
        for line in data.split(b"\n")
        if line.startswith(b"data: {")
    ]


def as_seen(seen: list[Seen]) -> list[Seen]:
    return seen


RIVALS: dict[str, tuple[Callable[[str], Any], Callable[[Any], list[Seen]]]] = {
    "openai SDK": (openai_sdk, as_seen),
    "httpx, lines and json": (httpx_lines, as_seen),
    "aiohttp, lines and json": (aiohttp_lines, as_seen),
    "aiohttp, bytes kept": (aiohttp_bytes, read_kept),
}
OURS = "onechip ladder"
NAMES = (OURS, *RIVALS)


async def rival(name: str, port: int, streams: int) -> tuple[list[list[Seen]], float, float]:
    """As `onechip`."""
    opened, read = RIVALS[name]
    async with opened(f"http://127.0.0.1:{port}") as ask:
        await asyncio.gather(*(ask() for _ in range(streams)))
        began = time.process_time()
        kept = await asyncio.gather(*(ask() for _ in range(streams)))
        during_s = time.process_time() - began
    began = time.process_time()
    seen = [read(stream) for stream in kept]
    return seen, during_s, time.process_time() - began


def cost(name: str, port: int, streams: int, events: int) -> Cost:
    """What one client cost; raises AssertionError if it did not see every event of every stream."""
    if name == OURS:
        seen, during_s, after_s = onechip(port, streams)
    else:
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            seen, during_s, after_s = runner.run(rival(name, port, streams))
    late = []
    for stream in seen:
        words = [(ns, payload) for ns, payload in stream if payload["choices"][0]["delta"].get("content")]
        text = "".join(payload["choices"][0]["delta"]["content"] for _, payload in words)
        assert text == WORD * events, f"{name} saw {len(words)} of {events} events"
        late += [ns - payload["created"] for ns, payload in words]
    return Cost(during_s, after_s, percentile(late, 0.5) / 1e3, percentile(late, 0.99) / 1e3)


if __name__ == "__main__":
    print(json.dumps(cost(sys.argv[1], *map(int, sys.argv[2:]))._asdict()))
