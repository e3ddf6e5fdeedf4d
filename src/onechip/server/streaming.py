"""A group of generations -> a streamed HTTP response: one write a window, however many tokens are in it.

What the bytes look like is the affair of a protocol (`Form`). When they are sent is the same for all, and so
is that a client which hangs up frees its slot.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol

import msgspec
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from onechip.engine.types import Event
from onechip.errors import OnechipError
from onechip.models.chat_parser import Delta
from onechip.server.generation import Generation
from onechip.server.group import Group
from onechip.server.streams import ClientGone

EVENT_STREAM = "text/event-stream; charset=utf-8"
NDJSON = "application/x-ndjson"

_encoder = msgspec.json.Encoder()

_LINE_ENDS = {end.encode(): f"\\u{ord(end):04x}".encode() for end in "\x85\u2028\u2029"}
"""Unicode's line ends, which JSON need not escape: Python's splitlines, and with it httpx's and so the ollama
package's reading of lines, would cut a line of JSON in two there.
"""


class Form(Protocol):
    """What one protocol sends of one choice, as bytes. Where there is nothing to say, they are empty.

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
    """The answers of `group`, each in the form of its own; `ending` stands behind them all."""

    def __init__(
        self, group: Group, forms: Sequence[Form], ending: Callable[[], bytes] = lambda: b""
    ) -> None:
        self.background = None
        self.status_code = 200
        self._group = group
        self._open = {  # until the end of each is sent
            generation.request.id: form for generation, form in zip(group.choices, forms, strict=True)
        }
        self._ending = ending
        self._head = [
            (b"content-type", forms[0].content_type.encode()),
            (b"cache-control", b"no-cache"),
            (b"x-accel-buffering", b"no"),  # nginx would collect events
        ]

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        group = self._group
        try:
            with group.watched(receive):
                await send({"type": "http.response.start", "status": 200, "headers": self._head})
                await _write(send, b"".join(form.opening() for form in self._open.values()))
                data = b""
                while self._open:
                    await _write(send, data)
                    data = b"".join([self._said(*news) for news in await group.events()])
        except ClientGone:
            return
        await _write(send, data + self._ending(), more=False)

    def _said(self, generation: Generation, event: Event) -> bytes:
        """What `event` adds to the stream."""
        form = self._open.get(event.request_id)
        if form is None:
            return b""
        deltas = generation.take(event)
        data = form.window(deltas) if event.tokens or deltas else b""
        if generation.running:
            return data
        del self._open[event.request_id]
        return data + (form.closing() if generation.failure is None else form.failure(generation.failure))


def sse(body: Any) -> bytes:
    """A server-sent event of nothing but data, as OpenAI's chat sends them."""
    return b"data: " + _one_line(body) + b"\n\n"


def named_sse(body: msgspec.Struct) -> bytes:
    """A server-sent event that has the name which its body has as `type`."""
    name = type(body).__struct_config__.tag
    assert isinstance(name, str)
    return b"event: " + name.encode() + b"\ndata: " + _one_line(body) + b"\n\n"


def json_line(body: Any) -> bytes:
    """A line of newline-delimited JSON."""
    return _one_line(body) + b"\n"


def _one_line(body: Any) -> bytes:
    """JSON that is one line for whoever counts them."""
    line = _encoder.encode(body)
    if not line.isascii():
        for end, escaped in _LINE_ENDS.items():
            line = line.replace(end, escaped)
    return line


async def _write(send: Send, body: bytes, more: bool = True) -> None:
    if body or not more:
        await send({"type": "http.response.body", "body": body, "more_body": more})
