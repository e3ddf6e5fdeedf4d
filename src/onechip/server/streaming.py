"""A generation -> a streamed HTTP response: one write a window, whatever the number of tokens in it.

What the bytes look like is the affair of a protocol (`Form`). When they are sent is the same for all, and so
is that a client which hangs up frees its slot.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

import msgspec
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from onechip.errors import OnechipError
from onechip.models.chat_parser import Delta
from onechip.server.generation import Generation
from onechip.server.streams import ClientGone

EVENT_STREAM = "text/event-stream; charset=utf-8"
NDJSON = "application/x-ndjson"

_encoder = msgspec.json.Encoder()


class Form(Protocol):
    """What one protocol sends, as bytes. Where there is nothing to say, they are empty.

    Attributes:
        content_type: of the response.
    """

    content_type: str

    def opening(self) -> bytes:
        """Before anything is generated."""

    def window(self, deltas: Sequence[Delta]) -> bytes:
        """For a window of decode steps that gave tokens; `deltas` is empty if they show nothing."""

    def closing(self) -> bytes:
        """Behind the last window; the answer knows then why it ended."""

    def failure(self, error: OnechipError) -> bytes:
        """The end of an answer that failed on the way."""


class StreamedAnswer(Response):
    """The answer of `generation`, in the form of `form`."""

    def __init__(self, generation: Generation, form: Form) -> None:
        self.background = None
        self.status_code = 200
        self._generation = generation
        self._form = form
        self._head = [
            (b"content-type", form.content_type.encode()),
            (b"cache-control", b"no-cache"),
            (b"x-accel-buffering", b"no"),  # nginx would collect events
        ]

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        answer, form = self._generation.answer, self._form
        try:
            with self._generation.watched(receive):
                await send({"type": "http.response.start", "status": 200, "headers": self._head})
                await _write(send, form.opening())
                while answer.finish is None:
                    before = answer.tokens
                    deltas = await self._generation.step()
                    data = form.window(deltas) if answer.tokens > before or deltas else b""
                    if answer.finish is None:
                        await _write(send, data)
            await _write(send, data + form.closing(), more=False)
        except ClientGone:
            return
        except OnechipError as error:
            await _write(send, form.failure(error), more=False)


def sse(body: Any) -> bytes:
    """A server-sent event of nothing but data, as OpenAI's chat sends them."""
    return b"data: " + _encoder.encode(body) + b"\n\n"


def named_sse(body: msgspec.Struct) -> bytes:
    """A server-sent event that has the name which its body has as `type`."""
    name = type(body).__struct_config__.tag
    assert isinstance(name, str)
    return b"event: " + name.encode() + b"\ndata: " + _encoder.encode(body) + b"\n\n"


def json_line(body: Any) -> bytes:
    """A line of newline-delimited JSON."""
    return _encoder.encode(body) + b"\n"


async def _write(send: Send, body: bytes, more: bool = True) -> None:
    if body or not more:
        await send({"type": "http.response.body", "body": body, "more_body": more})
