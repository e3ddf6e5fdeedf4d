"""A generation -> server-sent events: one write a window, whatever the number of tokens in it.

Every window gives at least one event, if need be with empty text, so that clients can time tokens that show
nothing. A last event has the `finish_reason`; then comes the usage, if asked for, and `[DONE]`. A failure
becomes an event with an error body, and the stream ends without `[DONE]`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

import msgspec
from msgspec import UNSET, UnsetType
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from onechip.errors import OnechipError
from onechip.models.chat_parser import Delta
from onechip.server.answer import FinishReason
from onechip.server.errors import error_body
from onechip.server.generation import Generation
from onechip.server.replies import Usage
from onechip.server.schemas import StreamOptions
from onechip.server.streams import ClientGone

_HEADERS = [
    (b"content-type", b"text/event-stream; charset=utf-8"),
    (b"cache-control", b"no-cache"),
    (b"x-accel-buffering", b"no"),  # nginx would collect events
]
_encoder = msgspec.json.Encoder()


class Chunks(Protocol):
    """The form that one endpoint gives its events."""

    def opening(self) -> Sequence[Any]:
        """Choices that stand before anything is generated."""

    def window(self, deltas: Sequence[Delta]) -> Sequence[Any]:
        """Choices, at least one, for what one window added."""

    def closing(self, finish: FinishReason) -> Any:
        """The choice that says why the answer ended."""

    def body(self, choices: list[Any], usage: Usage | UnsetType | None) -> Any:
        """The whole event around its choices."""


class EventStream(Response):
    """The streamed answer of `generation`, in the form of `chunks`."""

    def __init__(self, generation: Generation, chunks: Chunks, options: StreamOptions | None) -> None:
        self.background = None
        self.status_code = 200
        self._generation = generation
        self._chunks = chunks
        self._include_usage = bool(options and options.include_usage)
        self._usage_in_all = bool(options and options.continuous_usage_stats)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        answer = self._generation.answer
        try:
            with self._generation.watched(receive):
                await send({"type": "http.response.start", "status": 200, "headers": _HEADERS})
                await _write(send, self._events(self._chunks.opening()))
                while answer.finish is None:
                    before = answer.tokens
                    deltas = await self._generation.step()
                    choices = list(self._chunks.window(deltas)) if answer.tokens > before or deltas else []
                    if answer.finish is None:
                        await _write(send, self._events(choices))
            choices.append(self._chunks.closing(answer.finish))
            await _write(send, self._events(choices) + self._ending(), more=False)
        except ClientGone:
            return
        except OnechipError as error:
            await _write(send, _event(error_body(error)), more=False)

    def _events(self, choices: Sequence[Any]) -> bytes:
        """One event for each choice."""
        usage: Usage | UnsetType | None = None if self._include_usage else UNSET
        if self._usage_in_all:
            usage = self._generation.usage
        return b"".join(_event(self._chunks.body([choice], usage)) for choice in choices)

    def _ending(self) -> bytes:
        usage = _event(self._chunks.body([], self._generation.usage)) if self._include_usage else b""
        return usage + b"data: [DONE]\n\n"


def _event(body: Any) -> bytes:
    return b"data: " + _encoder.encode(body) + b"\n\n"


async def _write(send: Send, body: bytes, more: bool = True) -> None:
    if body or not more:
        await send({"type": "http.response.body", "body": body, "more_body": more})
