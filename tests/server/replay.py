"""The whole server without a network and without an engine's thread: one answer in, what a client gets out.

For tests of thousands of answers; the application, its routes and its loop are the real ones.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from typing import Any, NamedTuple, TypeVar

import httpx
import jiter

from onechip.config import ServeConfig
from onechip.engine.types import EngineStats, Event, Request
from onechip.models.chat_template import ChatTemplate
from onechip.models.tokenizer import Tokenizer
from onechip.server.app import create_app
from onechip.server.service import Model, Service
from tests.server import scripted

T = TypeVar("T")

CONTEXT = 1_000_000


class Reply(NamedTuple):
    """A chat answer: its text, thoughts, name and JSON arguments of each call, and why it ended."""

    text: str
    reasoning: str
    calls: list[tuple[str, str]]
    finish: str
    usage: dict[str, Any]


class ReplayEngine:
    """Gives each request the windows in `windows`, the last with the end of the answer."""

    context, max_requests, failed, description = CONTEXT, 64, None, "a replay"

    def __init__(self) -> None:
        self.windows: Sequence[Sequence[int]] = []
        self._tasks: dict[str, asyncio.Task[None]] = {}

    def start(self, deliver: Callable[[list[Event]], None]) -> None:
        self._deliver = deliver

    def submit(self, request: Request) -> None:
        self._tasks[request.id] = asyncio.get_running_loop().create_task(self._play(request.id))

    async def _play(self, id: str) -> None:
        for position, window in enumerate(self.windows):
            last = position == len(self.windows) - 1
            self._deliver([Event(id, tuple(window), "stop" if last else None)])
            for _ in range(3):  # until the server has taken it
                await asyncio.sleep(0)
        self._tasks.pop(id)

    def cancel(self, request_id: str) -> None:
        if request_id in self._tasks:
            self._tasks.pop(request_id).cancel()

    def stats(self) -> EngineStats:
        return EngineStats(0, 0, 0.0, 0, 0, 0, 0)

    @property
    def running(self) -> int:
        return len(self._tasks)

    def drain(self, timeout_s: float) -> int:
        return self.running

    def stop(self) -> None:
        pass


class Replay:
    """A server of one model, on a loop of its own.

    Attributes:
        app: the server.
    """

    def __init__(self, tokenizer: Tokenizer, template: ChatTemplate) -> None:
        self._engine = ReplayEngine()
        acorn = scripted.model(self._engine)
        model = replace(acorn, tokenizer=tokenizer, template=template, largest_context=CONTEXT)
        self._runner = asyncio.Runner()
        self._runner.run(self._start(model))

    async def _start(self, model: Model) -> None:
        service = Service(ServeConfig(), lambda progress: model, lambda stage, share: None)
        loaded = asyncio.Event()
        self.app = create_app(service, loaded.set)
        self._client = httpx.AsyncClient(transport=httpx.ASGITransport(self.app), base_url="http://replay")
        service.start(loaded.set)
        await loaded.wait()

    def close(self) -> None:
        assert not self._engine.running, "requests that nobody reads were not cancelled"
        self._runner.run(self._client.aclose())
        self._runner.close()  # ends the service's own tasks, too

    def whole(self, windows: Sequence[Sequence[int]], body: dict[str, Any]) -> Reply:
        """The answer of tokens `windows` to the chat request `body`, in one piece."""
        return _whole(json.loads(self._ask(windows, body)))

    def streamed(self, windows: Sequence[Sequence[int]], body: dict[str, Any]) -> Reply:
        """The same as a stream; checks what clients take for granted of its events."""
        body = {**body, "stream": True, "stream_options": {"include_usage": True}}
        events = self._ask(windows, body).split("\n\n")
        assert events[-2:] == ["data: [DONE]", ""]
        return _streamed([json.loads(event.removeprefix("data: ")) for event in events[:-2]])

    def play(self, windows: Sequence[Sequence[int]], work: Awaitable[T]) -> T:
        """What comes of `work`, to whose requests the engine answers with tokens `windows`."""
        self._engine.windows = windows
        return self._runner.get_loop().run_until_complete(work)

    def _ask(self, windows: Sequence[Sequence[int]], body: dict[str, Any]) -> str:
        response = self.play(windows, self._client.post(scripted.CHAT, json=body))
        assert response.status_code == 200, response.text
        return response.text


def _whole(answer: dict[str, Any]) -> Reply:
    (choice,) = answer["choices"]
    message, calls = choice["message"], []
    for call in message.get("tool_calls", ()):
        assert (set(call), call["type"]) == ({"id", "type", "function"}, "function")
        calls.append((call["function"]["name"], call["function"]["arguments"]))
    assert len({call["id"] for call in message.get("tool_calls", ())}) == len(calls)
    assert (message["content"] is None) <= bool(calls)
    thoughts = message.get("reasoning_content") or ""
    return Reply(message["content"] or "", thoughts, calls, choice["finish_reason"], answer["usage"])


def _streamed(events: Sequence[dict[str, Any]]) -> Reply:
    text, reasoning, calls, ids = "", "", [], set()
    *chunks, last = events
    assert last["choices"] == []
    for chunk in chunks:
        (choice,) = chunk["choices"]
        delta = choice["delta"]
        text += delta.get("content") or ""
        reasoning += delta.get("reasoning_content") or ""
        for call in delta.get("tool_calls", ()):
            if call["index"] == len(calls):  # id, type and name come once, and first
                assert set(call) == {"index", "id", "type", "function"}
                ids.add(call["id"])
                calls.append((call["function"].pop("name"), ""))
            else:
                assert (set(call), call["index"]) == ({"index", "function"}, len(calls) - 1)
            assert set(call["function"]) == {"arguments"}
            name, before = calls[-1]
            calls[-1] = (name, before + call["function"]["arguments"])
            if calls[-1][1]:  # clients show a call before it is complete
                jiter.from_json(calls[-1][1].encode(), partial_mode=True)
        assert (choice["finish_reason"] is None) == (chunk is not chunks[-1])
    assert len(ids) == len(calls)
    return Reply(text, reasoning, calls, chunks[-1]["choices"][0]["finish_reason"], last["usage"])
