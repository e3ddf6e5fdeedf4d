"""A server in this process, in front of an engine that plays a script."""

from __future__ import annotations

import asyncio
import http.client
import json
import math
import socket
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import uvicorn

import onechip.models
from onechip.config import ServeConfig
from onechip.engine.guides.grammar import Grammars
from onechip.engine.types import EngineStats, Event, FinishReason, Logprobs, Progress, Request
from onechip.errors import EngineError, QueueFullError, RequestError
from onechip.models.chat_template import ChatTemplate
from onechip.models.generation import GenerationDefaults
from onechip.models.tokenizer import Tokenizer
from onechip.server.app import create_app
from onechip.server.facts import Facts
from onechip.server.service import Model, Service
from tests.waiting import wait_until as wait_until

ACORN = Path(onechip.models.__file__).parent / "acorn"
TOKENIZER = Tokenizer.load(ACORN, [1])
GRAMMARS = Grammars(TOKENIZER, TOKENIZER.vocab_size)
CHAT = "/v1/chat/completions"
LARGEST_CONTEXT = 300
HI = {"messages": [{"role": "user", "content": "Hi"}]}


@dataclass
class Played:
    """What one request got so far: windows of the script, and tokens; `wish`: what it would still get."""

    request: Request
    tokenizer: Tokenizer
    windows: int = 0
    tokens: list[int] = field(default_factory=list)
    wish: list[int] = field(default_factory=list)

    @property
    def over(self) -> FinishReason | None:
        """Why a guided answer ends here, None if it goes on."""
        sampling = self.request.sampling
        stops = {*sampling.stop_token_ids, *(() if sampling.ignore_eos else self.tokenizer.stop_ids)}
        if self.tokens and self.tokens[-1] in stops:
            return "stop"
        return "length" if len(self.tokens) >= sampling.max_tokens else None

    def choose(self) -> None:
        """Go on with the next token of the wish that all guides allow, or else end, or with the lowest."""
        count = self.tokenizer.vocab_size
        allowed = np.full((count + 31) // 32, 0xFFFFFFFF, np.uint32)
        for guide in self.request.guides:
            guide.forbid(allowed)
        ids = np.flatnonzero(np.unpackbits(allowed.view(np.uint8), bitorder="little")[:count]).tolist()
        token = next((id for id in ids if id in self.tokenizer.stop_ids), ids[0])
        place = next((place for place, id in enumerate(self.wish) if id in ids), None)
        if place is not None and len(ids) > 1:
            token = self.wish[place]
        if place is not None and token == self.wish[place]:
            del self.wish[: place + 1]
        for guide in self.request.guides:
            guide.take(token)
        self.tokens.append(token)


def logprobs_of(token: int, most: int) -> Logprobs:
    """What the scripted engine tells of `token`: it is the likeliest, the next ids follow with half of what
    the one before has.
    """
    chosen = -0.25 * (token % 5 + 1)
    return Logprobs(chosen, 1, tuple((token + place, chosen - place * math.log(2)) for place in range(most)))


class ScriptedEngine:
    """Says the same windows of tokens to everyone; has the surface of engine.core.Engine.

    What guides forbid of the script is left out, see `Played.choose`; behind the script a guided answer goes
    on, a token a window, to a stop token or to `max_tokens`.

    Attributes:
        windows: what each request gets, window by window; the last window ends it with "stop".
        of_seed: other windows for the requests with these seeds.
        requests: all that were submitted.
        cancelled: ids that were cancelled, with the time.
        go: cleared, the engine stands still.
        loop: of the server; each window waits until the server has taken the one before it.
        scores: it was told that prompts will be scored.
        queue_full: no request is taken.
        room: how many requests are taken; None: all.
        error: what requests run into behind their windows.
        failing: seeds of the requests that run into `error`; None: all do.
    """

    context = 200
    max_requests = 4
    description = "a script"

    def __init__(self) -> None:
        self.windows: Sequence[Sequence[int]] = [TOKENIZER.encode("Hello"), [*TOKENIZER.encode(" you"), 106]]
        self.requests: list[Request] = []
        self.cancelled: dict[str, float] = {}
        self.go = threading.Event()
        self.go.set()
        self.loop: asyncio.AbstractEventLoop | None = None
        self.queue_full = False
        self.room: int | None = None
        self.error: str | None = None
        self.failed: str | None = None
        self.tokenizer = TOKENIZER
        self.of_seed: dict[int, Sequence[Sequence[int]]] = {}
        self.failing: set[int] | None = None
        self._running: dict[str, Played] = {}
        self._lock = threading.Lock()
        self.scores = False
        self._stopped = False
        self._draining = False

    def say_word_for_ever(self) -> None:
        """Go on until the client stops it, and have room for a next question whenever that is."""
        self.windows, self.context = [self.tokenizer.encode("word ")] * 100_000, 1_000_000

    def start(self, deliver: Callable[[list[Event]], None]) -> None:
        self._deliver = deliver
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def prepare_scoring(self) -> None:
        self.scores = True

    def submit(self, request: Request) -> None:
        assert self.scores or not request.scored
        if self.queue_full or self.room == len(self.requests):
            raise QueueFullError("The queue is full.", retry_after_s=7)
        if self._draining:
            raise EngineError("draining")
        with self._lock:
            self.requests.append(request)
            self._running[request.id] = Played(request, self.tokenizer)

    def cancel(self, request_id: str) -> None:
        with self._lock:
            self.cancelled[request_id] = time.monotonic()
            if self._running.pop(request_id, None) is not None:
                self._deliver([Event(request_id, finish="cancelled")])

    def stats(self) -> EngineStats:
        return EngineStats(len(self._running), 2, 0.25, 100, 50, 3, 0)

    def drain(self, timeout_s: float) -> int:
        self._draining = True
        deadline = time.monotonic() + timeout_s
        while self._running and time.monotonic() < deadline:
            time.sleep(0.01)
        return len(self._running)

    def stop(self) -> None:
        self._stopped = True
        self.go.set()
        self._thread.join()
        with self._lock:
            left, self._running = list(self._running), {}
        if left:
            self._deliver([Event(id, finish="cancelled") for id in left])

    def _run(self) -> None:
        while not self._stopped:
            time.sleep(0.001)
            if self.go.wait(timeout=0.1):
                with self._lock:
                    events = [self._next(id) for id in list(self._running)]
                if events:
                    self._deliver(events)
                    self._let_the_server_take_them()

    def _let_the_server_take_them(self) -> None:
        if self.loop is not None and not self._stopped:
            asyncio.run_coroutine_threadsafe(asyncio.sleep(0.001), self.loop).result(timeout=60)

    def _next(self, id: str) -> Event:
        played = self._running[id]
        request = played.request
        seed = request.sampling.seed
        windows = self.of_seed.get(seed, self.windows)
        script = windows[played.windows] if played.windows < len(windows) else None
        played.windows += 1
        finish: FinishReason | None = "stop" if played.windows == len(windows) else None
        ends = bool(finish) or request.scored
        if self.error and ends and (self.failing is None or seed in self.failing):
            del self._running[id]
            return Event(id, finish="error", error=self.error)
        tokens = tuple(script or ())
        if request.scored:
            tokens, finish = request.prompt[1:], "length"
        elif request.guides:
            try:
                tokens, finish = self._guided(played, script or ())
            except RequestError as error:
                del self._running[id]
                return Event(id, finish="error", error=str(error), refused=True)
        if finish:
            del self._running[id]
        most = request.sampling.logprobs
        logprobs = () if most is None else tuple(logprobs_of(token, most) for token in tokens)
        return Event(id, tokens, finish, cached_tokens=3, logprobs=logprobs)

    def _guided(self, played: Played, script: Sequence[int]) -> tuple[tuple[int, ...], FinishReason | None]:
        before = len(played.tokens)
        played.wish += script
        for _ in script or (None,):
            if not played.over:
                played.choose()
        return tuple(played.tokens[before:]), played.over


class Client:
    """Plain HTTP to one server."""

    def __init__(self, port: int) -> None:
        self.port = port

    @contextmanager
    def send(
        self, method: str, path: str, body: Any = None, **headers: str
    ) -> Iterator[http.client.HTTPResponse]:
        """The response, its body unread; `body` is sent as JSON unless it is bytes. Leaving hangs up."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)
        data = body if isinstance(body, bytes | None) else json.dumps(body).encode()
        sent = {"Content-Type": "application/json"} if body is not None else {}
        sent |= {name.replace("_", "-"): value for name, value in headers.items()}
        connection.request(method, path, data, sent)
        response = connection.getresponse()
        try:
            yield response
        finally:
            response.close()
            connection.close()

    def ask(self, method: str, path: str, body: Any = None, **headers: str) -> tuple[int, Any]:
        """Status and decoded body."""
        with self.send(method, path, body, **headers) as response:
            return response.status, json.loads(response.read())

    def stream(self, path: str, body: dict[str, Any]) -> list[Any]:
        """The data of all events, decoded; "[DONE]" as it is."""
        data = [event.removeprefix("data: ") for event in self._raw_events(path, body)]
        return [item if item == "[DONE]" else json.loads(item) for item in data]

    def events(self, path: str, body: dict[str, Any]) -> list[Any]:
        """The data of all events of a stream whose events have names, which are their types."""
        raw = self._raw_events(path, body)
        pairs = [event.removeprefix("event: ").split("\ndata: ") for event in raw]
        data = [json.loads(text) for _, text in pairs]
        assert [name for name, _ in pairs] == [item["type"] for item in data]
        return data

    def _raw_events(self, path: str, body: dict[str, Any]) -> list[str]:
        """The text of all events of a stream."""
        with self.send("POST", path, {"stream": True, **body}) as response:
            assert response.status == 200
            assert response.headers["content-type"].startswith("text/event-stream")
            events = response.read().decode().split("\n\n")
        assert events.pop() == ""
        return events

    def lines(self, path: str, body: dict[str, Any]) -> list[Any]:
        """The lines of a stream of newline-delimited JSON."""
        with self.send("POST", path, body) as response:
            assert response.status == 200
            assert response.headers["content-type"] == "application/x-ndjson"
            return [json.loads(line) for line in response.read().splitlines()]


def model(engine: ScriptedEngine) -> Model:
    template, defaults = ChatTemplate.load(ACORN), GenerationDefaults.load(ACORN)
    return Model(engine, TOKENIZER, template, defaults, LARGEST_CONTEXT, Facts.read(ACORN), GRAMMARS)


@contextmanager
def running(config: ServeConfig, load: Callable[[Progress], Model]) -> Iterator[tuple[Client, Service]]:
    """A server in a thread of its own; the model may still be loading."""
    listener = socket.create_server(("127.0.0.1", 0))
    service = Service(config, load, lambda stage, share: None)
    app = create_app(service, lambda: None)
    server = uvicorn.Server(uvicorn.Config(app, log_level="critical"))
    thread = threading.Thread(target=server.run, args=([listener],))
    thread.start()
    client = Client(listener.getsockname()[1])
    try:
        yield client, service
    finally:
        if service.state != "loading":
            service.stop()
        server.force_exit = server.should_exit = True
        thread.join()
        listener.close()


THINKING_CALL = [
    *TOKENIZER.encode(
        '<|channel>thought\nHm.\n<channel|>Look.<|tool_call>call:f{s:<|"|>a"b<|"|>}<tool_call|>'
    ),
    50,
]
"""An answer of each kind: the thought "Hm.", the text "Look.", the call f({"s": "a\\"b"})."""


def prompt_of(request: Request) -> str:
    """The text of a request's prompt, special tokens shown."""
    return TOKENIZER.decode(request.prompt, skip_special=False)


def error_of(reply: tuple[int, Any], status: int, kind: str = "invalid_request_error") -> Any:
    """The error object of a reply that must have this status and type."""
    assert reply[0] == status
    assert set(reply[1]) == {"error"}
    assert set(reply[1]["error"]) == {"message", "type", "param", "code"}
    assert reply[1]["error"]["type"] == kind
    return reply[1]["error"]
