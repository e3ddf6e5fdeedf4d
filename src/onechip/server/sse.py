"""A group of generations -> the server-sent events of OpenAI's chat and plain completions.

Every window gives at least one event, if need be with empty text, so that clients can time tokens that show
nothing. A last event of each choice has its `finish_reason`; behind all of them come the usage, if asked for,
and `[DONE]`. A failure becomes an event with an error body, and the stream ends without `[DONE]`; where other
choices go on, it is told of its own choice, and they go on.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

from msgspec import UNSET, UnsetType

from onechip.errors import OnechipError
from onechip.models.chat_parser import Delta
from onechip.server.answer import FinishReason
from onechip.server.errors import openai_error
from onechip.server.group import Group
from onechip.server.replies import Usage
from onechip.server.schemas import StreamOptions
from onechip.server.streaming import EVENT_STREAM, StreamedAnswer, sse


class Chunks(Protocol):
    """The form that one endpoint gives the events of one choice."""

    def opening(self) -> Sequence[Any]:
        """Choices that stand before anything is generated."""

    def window(self, deltas: Sequence[Delta]) -> Sequence[Any]:
        """Choices, at least one, for what one window added."""

    def closing(self, finish: FinishReason) -> Any:
        """The choice that says why the answer ended."""

    def failure(self, error: OnechipError) -> Any:
        """The choice that says why the answer failed."""

    def body(self, choices: list[Any], usage: Usage | UnsetType | None) -> Any:
        """The whole event around its choices."""


def chunk_stream(group: Group, chunks: Sequence[Chunks], options: StreamOptions | None) -> StreamedAnswer:
    """The response with the events of all choices of `group`; `chunks` has one for each."""
    events = [ChunkEvents(group, place, form, options) for place, form in enumerate(chunks)]
    return StreamedAnswer(group, events, events[0].ending)


class ChunkEvents:
    """The events of choice `place` of `group`, each around one choice of `chunks`."""

    content_type = EVENT_STREAM

    def __init__(self, group: Group, place: int, chunks: Chunks, options: StreamOptions | None) -> None:
        self._group = group
        self._answer = group.choices[place].answer
        self._chunks = chunks
        self._include_usage = bool(options and options.include_usage)
        self._usage_in_all = bool(options and options.continuous_usage_stats)

    def opening(self) -> bytes:
        return self._events(self._chunks.opening())

    def window(self, deltas: Sequence[Delta]) -> bytes:
        return self._events(self._chunks.window(deltas))

    def closing(self) -> bytes:
        finish = self._answer.finish
        assert finish is not None
        return self._events([self._chunks.closing(finish)])

    def failure(self, error: OnechipError) -> bytes:
        return self._events([self._chunks.failure(error)]) if len(self._group.choices) > 1 else b""

    def ending(self) -> bytes:
        """What stands behind all choices."""
        if self._group.failure is not None:
            return sse(openai_error(self._group.failure))
        usage = sse(self._chunks.body([], self._group.usage)) if self._include_usage else b""
        return usage + b"data: [DONE]\n\n"

    def _events(self, choices: Sequence[Any]) -> bytes:
        """One event for each choice."""
        usage: Usage | UnsetType | None = None if self._include_usage else UNSET
        if self._usage_in_all:
            usage = self._group.usage
        return b"".join([sse(self._chunks.body([choice], usage)) for choice in choices])
