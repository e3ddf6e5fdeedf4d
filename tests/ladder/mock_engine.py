"""A scripted engine over raw asyncio: behaviours in, an OpenAI-like server with exactly known streams out.

It runs in a thread, or as a program (`python mock_engine.py PORT BEHAVIOUR`, JSON) that a ladder can start.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import json
import os
import sys
import threading
import time
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NoReturn, TypeVar

from onechip.ladder.prompts import digest

FIELDS = "model prompt messages max_tokens max_completion_tokens temperature stream stream_options seed"
"""Of a request; all engines know these."""
FEATURES = "ignore_eos continuous_usage_stats chat_template_kwargs tools ids tokenize"
"""What an engine may lack."""


@dataclass
class Behaviour:
    """How the engine streams.

    Attributes:
        ttft_s, gap_s: scripted waits before the first content event and between content events.
        per_event: tokens in one event.
        usage: "final" (own chunk), "choices" (with the last choice), "each" (in every event), "zero", "none".
        newline: of the event stream.
        noise: comments and pings between events.
        split_bytes: write every event in two halves, cut in the middle of its bytes.
        raw_split: send the two halves of a four-byte character in two events.
        fault: "error" (error event after 200), "stall", "early" (ends without finish), "reset", "refuse"
            (HTTP 500) or None; only for requests whose number is in `faulty`, or not below `faulty_from`.
        start: "crash" (before the port opens), "crash loading" (after the first 503 of /health), "hang"
            (/health says 503 for ever), "elsewhere" (another port) or None.
        limits: fields that end an answer, of max_tokens and max_completion_tokens.
        short: tokens fewer than asked for.
        prefix_cache: report a hit for a prompt whose first 16 tokens were seen before.
        context: max_model_len.
        die_at: the number of the request at which the process exits with code 7.
        answer: text to give instead of numbered words.
        stamped: each event with content says when it was written (perf_counter_ns), as `sent_ns`.
        chat_tokens: length of a chat answer that is not told to ignore the end.
        tools: knows tool calls; a call then has this name and these arguments.
        models: what /v1/models gives, None for a list of one.
        key: answers 401 on /v1/chat/completions, as an engine does that wants an API key.
        features: which optional request fields it knows; others get 400.
        log: a file to which the hash of every prompt is appended.
        gate: a file; as long as it is there, a prompt whose hash stands in it is not answered.
    """

    ttft_s: float = 0.0
    gap_s: float = 0.0
    per_event: int = 1
    usage: str = "final"
    newline: str = "\n"
    noise: bool = False
    split_bytes: bool = False
    raw_split: bool = False
    fault: str | None = None
    faulty: tuple[int, ...] = ()
    faulty_from: int = 0
    start: str | None = None
    limits: tuple[str, ...] = ("max_tokens", "max_completion_tokens")
    short: int = 0
    prefix_cache: bool = False
    context: int = 1024
    die_at: int | None = None
    answer: str | None = None
    stamped: bool = False
    chat_tokens: int = 12
    tools: tuple[str, dict[str, Any]] | None = None
    models: Any = None
    key: bool = False
    features: tuple[str, ...] = tuple(FEATURES.split())
    log: str | None = None
    gate: str | None = None
    seen: set[str] = field(default_factory=set)
    requests: list[dict[str, Any]] = field(default_factory=list)


class Refused(Exception):
    """The request is answered with 400 and this message."""


def words(prompt: Any) -> list[Any]:
    """One token a word, and one token a number of a token-id prompt."""
    return list(prompt) if isinstance(prompt, list) else str(prompt).split()


class MockEngine:
    """Serves one Behaviour; `behaviour` may be exchanged between requests."""

    def __init__(self, behaviour: Behaviour) -> None:
        self.behaviour = behaviour
        self.port = 0

    async def handle(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(ConnectionError, asyncio.IncompleteReadError, asyncio.CancelledError):
            while True:
                head = (await reader.readuntil(b"\r\n\r\n")).decode()
                method, path, _ = head.split(" ", 2)
                length = next((int(v) for k, v in _headers(head) if k == "content-length"), 0)
                body = json.loads(await reader.readexactly(length)) if length else {}
                await self.answer(method, path, body, writer)
                await writer.drain()
        writer.close()

    async def answer(
        self, method: str, path: str, body: dict[str, Any], writer: asyncio.StreamWriter
    ) -> None:
        try:
            if path == "/health":
                _plain(writer, 503 if self.behaviour.start else 200, {})
                if self.behaviour.start == "crash loading":
                    _crash("loading shard 2 of 3\nout of engine memory")
            elif path == "/v1/models":
                usual = {"data": [{"id": "mock", "max_model_len": self.behaviour.context}]}
                _plain(writer, 200, usual if self.behaviour.models is None else self.behaviour.models)
            elif self.behaviour.key:
                _plain(writer, 401, {"error": {"message": "no key"}})
            elif path == "/tokenize":
                _plain(writer, 200, self.tokenize(body))
            elif path in ("/v1/completions", "/v1/chat/completions"):
                await self.complete(path, body, writer)
            else:
                _plain(writer, 404, {"error": {"message": f"no {method} {path}"}})
        except Refused as error:
            _plain(writer, 400, {"error": {"message": str(error)}})

    def tokenize(self, body: dict[str, Any]) -> dict[str, Any]:
        if "tokenize" not in self.behaviour.features:
            raise Refused("no tokenizer here")
        text = body["prompt"] if "prompt" in body else self.chat_text(body)
        return {
            "tokens": [int(hashlib.md5(w.encode()).hexdigest()[:6], 16) for w in words(text)],
            "count": len(words(text)),
        }

    def chat_text(self, body: dict[str, Any]) -> str:
        said = " ".join(f"<{m['role']}> {m['content']}" for m in body["messages"])
        return f"<bos> {said} <model>"

    def check(self, body: dict[str, Any]) -> None:
        known = {*FIELDS.split(), *self.behaviour.features}
        unknown = sorted(set(body) - known)
        if set(body.get("stream_options", {})) - {"include_usage"} - set(self.behaviour.features):
            unknown.append("stream_options")
        if unknown:
            raise Refused(f"unknown field {unknown[0]}")
        if isinstance(body.get("prompt"), list) and "ids" not in self.behaviour.features:
            raise Refused("the prompt must be a string")

    async def complete(self, path: str, body: dict[str, Any], writer: asyncio.StreamWriter) -> None:
        behaviour = self.behaviour
        self.check(body)
        chat = path.endswith("chat/completions")
        prompt = words(self.chat_text(body) if chat else body["prompt"])
        if len(prompt) + self.limit(body) > behaviour.context:
            raise Refused(
                f"context_length_exceeded: {len(prompt)} + {self.limit(body)} > {behaviour.context}"
            )
        number = len(behaviour.requests)
        behaviour.requests.append(body)
        self.note(body)
        while self.shut(body):
            await asyncio.sleep(0.01)
        if number == behaviour.die_at:
            os._exit(7)
        chosen = number in behaviour.faulty if behaviour.faulty else number >= behaviour.faulty_from
        faulty = behaviour.fault if chosen else None
        if faulty == "refuse":
            _plain(writer, 500, {"error": {"message": "the engine is unwell"}})
            return
        head = "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"
        writer.write(head.encode())
        async for event in self.events(body, chat, prompt, faulty):
            await self.write(writer, event)
            if faulty == "reset" and b"w1" in event:
                writer.transport.abort()
                return
        writer.write(b"0\r\n\r\n")

    def note(self, body: dict[str, Any]) -> None:
        """Appends the hash of the prompt to the log file."""
        if self.behaviour.log:
            with open(self.behaviour.log, "a") as file:
                file.write(_hash(body) + "\n")

    def shut(self, body: dict[str, Any]) -> bool:
        """Whether the gate lets the prompt wait."""
        with contextlib.suppress(FileNotFoundError):
            return self.behaviour.gate is not None and _hash(body) in Path(self.behaviour.gate).read_text()
        return False

    async def write(self, writer: asyncio.StreamWriter, event: bytes) -> None:
        cut = len(event) // 2 if self.behaviour.split_bytes else 0
        for part in (event[:cut], event[cut:]):
            if part:
                writer.write(f"{len(part):x}\r\n".encode() + part + b"\r\n")
                await writer.drain()
                if cut:
                    await asyncio.sleep(0.001)

    def event(self, payload: dict[str, Any] | str) -> bytes:
        newline = self.behaviour.newline
        text = payload if isinstance(payload, str) else json.dumps(payload, ensure_ascii=False)
        noise = f": ping{newline}{newline}event: ping{newline}{newline}" if self.behaviour.noise else ""
        return (noise + f"data: {text}{newline}{newline}").encode("utf-8", "surrogateescape")

    async def events(
        self, body: dict[str, Any], chat: bool, prompt: list[Any], faulty: str | None
    ) -> AsyncIterator[bytes]:
        behaviour = self.behaviour
        usage = self.usage(prompt)
        if chat:
            yield self.event(_chunk({"role": "assistant", "content": ""}, None))
        pieces, total, finish = self.pieces(body, chat)
        start, sent = self.now(), 0
        for number, (piece, tokens) in enumerate(pieces):
            await self.until(start + behaviour.ttft_s + number * behaviour.gap_s)
            if faulty == "stall" and number == 1:
                await self.stall()
            if faulty == "error" and number == 1:
                yield self.event({"error": {"message": "out of memory"}})
                return
            if faulty == "early" and number == 2:
                return
            sent += tokens
            chunk = _chunk(piece, None, chat)
            options = body.get("stream_options", {})
            counting = behaviour.usage == "each" and options.get("continuous_usage_stats")
            if behaviour.stamped:
                chunk["sent_ns"] = time.perf_counter_ns()
            yield self.event(chunk | ({"usage": usage | {"completion_tokens": sent}} if counting else {}))
        last = _chunk({} if chat else "", finish, chat)
        final = {"usage": usage | {"completion_tokens": total}}
        if behaviour.usage == "zero":
            final = {"usage": {"prompt_tokens": 0, "completion_tokens": 0}}
        yield self.event(last | (final if behaviour.usage == "choices" else {}))
        if behaviour.usage in ("final", "each", "zero"):
            yield self.event({"choices": []} | final)
        yield self.event("[DONE]")

    def pieces(self, body: dict[str, Any], chat: bool) -> tuple[list[tuple[Any, int]], int, str]:
        """Content of the events with their token counts, all tokens, and the finish_reason."""
        behaviour = self.behaviour
        if behaviour.tools and body.get("tools"):
            name, arguments = behaviour.tools
            text = json.dumps(arguments)
            first = {"index": 0, "id": "c", "type": "function", "function": {"name": name, "arguments": ""}}
            rest = [{"index": 0, "function": {"arguments": part}} for part in (text[:5], text[5:])]
            return [({"tool_calls": [call]}, 1) for call in (first, *rest)], 3, "tool_calls"
        most = self.limit(body)
        total = most - behaviour.short
        if chat and not self.held(body):
            total = min(total, behaviour.chat_tokens)
        told = behaviour.answer.split(" ") if behaviour.answer else [f"w{number}" for number in range(total)]
        tokens = [f"{word} " for word in told[:total]]
        texts = [
            "".join(tokens[at : at + behaviour.per_event])
            for at in range(0, len(tokens), behaviour.per_event)
        ]
        counts = [
            min(behaviour.per_event, len(tokens) - at) for at in range(0, len(tokens), behaviour.per_event)
        ]
        if behaviour.raw_split:
            halves = "😀".encode()[:2], "😀".encode()[2:]
            texts[:2] = [half.decode("utf-8", "surrogateescape") for half in halves]
        finish = "length" if len(tokens) == most else "stop"
        return (
            [({"content": t} if chat else t, n) for t, n in zip(texts, counts, strict=True)],
            len(tokens),
            finish,
        )

    def limit(self, body: dict[str, Any]) -> int:
        """The most tokens of an answer: of the fields that it reads, else a long one."""
        return next((int(body[name]) for name in self.behaviour.limits if name in body), 40)

    def held(self, body: dict[str, Any]) -> bool:
        """Whether the answer goes on to its limit."""
        wishes = json.loads(body.get("generation_config", "{}"))
        return bool(body.get("ignore_eos") or body.get("min_tokens") or wishes.get("min_new_tokens"))

    def usage(self, prompt: list[Any]) -> dict[str, Any]:
        head = json.dumps(prompt[:16])
        hit = self.behaviour.prefix_cache and head in self.behaviour.seen
        self.behaviour.seen.add(head)
        return {"prompt_tokens": len(prompt), "prompt_tokens_details": {"cached_tokens": 16 if hit else 0}}

    def now(self) -> float:
        """Seconds on the clock of all scripted waits."""
        return time.perf_counter()

    async def until(self, moment: float) -> None:
        """Sleeps until shortly before it, then spins: scripted times are kept to some 20 microseconds."""
        wait = moment - time.perf_counter()
        if wait <= 0:
            return
        await asyncio.sleep(max(0.0, wait - 0.002))
        while time.perf_counter() < moment:
            pass

    async def stall(self) -> None:
        """Sends nothing any more."""
        print("stalls", flush=True)
        await asyncio.sleep(3600)

    async def serve(self, port: int, ready: threading.Event | None = None) -> None:
        if self.behaviour.start == "crash":
            _crash("the engine found no engine oil")
        port = 0 if self.behaviour.start == "elsewhere" else port
        server = await asyncio.start_server(self.handle, "127.0.0.1", port)
        self.port = server.sockets[0].getsockname()[1]
        if ready is None:
            print(f"mock engine at {self.port}", flush=True)
        if ready is not None:
            ready.set()
        await server.serve_forever()


def _crash(message: str) -> NoReturn:
    """Ends the process with these last words, behind which the event loop would say some of its own."""
    print(message, file=sys.stderr, flush=True)
    os._exit(1)


def _hash(body: dict[str, Any]) -> str:
    """Of the prompt, as RequestRecord has it."""
    return digest({name: body[name] for name in ("prompt", "messages", "tools") if name in body})


def _headers(head: str) -> Iterator[tuple[str, str]]:
    for line in head.split("\r\n")[1:]:
        key, _, value = line.partition(":")
        yield key.lower(), value.strip()


def _plain(writer: asyncio.StreamWriter, status: int, payload: Any) -> None:
    body = json.dumps(payload).encode()
    writer.write(
        b"HTTP/1.1 %d X\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n" % (status, len(body))
    )
    writer.write(body)


def _chunk(piece: Any, finish: str | None, chat: bool = True) -> dict[str, Any]:
    return {"choices": [{"index": 0, "delta" if chat else "text": piece, "finish_reason": finish}]}


Engine = TypeVar("Engine", bound=MockEngine)


def running(behaviour: Behaviour) -> contextlib.AbstractContextManager[MockEngine]:
    """An engine of this behaviour in a thread of its own."""
    return serving(MockEngine(behaviour))


@contextlib.contextmanager
def serving(engine: Engine) -> Iterator[Engine]:
    """The engine in a thread of its own."""
    ready = threading.Event()
    loop = asyncio.new_event_loop()

    def run() -> None:
        asyncio.set_event_loop(loop)
        with contextlib.suppress(asyncio.CancelledError):
            loop.run_until_complete(task)
        loop.run_until_complete(loop.shutdown_asyncgens())
        loop.close()

    task = loop.create_task(engine.serve(0, ready))
    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    assert ready.wait(60)
    try:
        yield engine
    finally:
        loop.call_soon_threadsafe(_stop, loop)
        thread.join(10)


def _stop(loop: asyncio.AbstractEventLoop) -> None:
    for task in asyncio.all_tasks(loop):
        task.cancel()


if __name__ == "__main__":
    scripted = Behaviour(**json.loads(sys.argv[2]))
    asyncio.run(MockEngine(scripted).serve(int(sys.argv[1])))
