"""A generation -> the server-sent events of OpenAI's chat and plain completions.

Every window gives at least one event, if need be with empty text, so that clients can time tokens that show
nothing. A last event has the `finish_reason`; then comes the usage, if asked for, and `[DONE]`. A failure
becomes an event with an error body, and the stream ends without `[DONE]`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

from msgspec import UNSET, UnsetType

from onechip.errors import OnechipError
from onechip.models.chat_parser import Delta
from onechip.server.answer import FinishReason
from onechip.server.errors import openai_error
from onechip.server.generation import Generation
from onechip.server.replies import Usage
from onechip.server.schemas import StreamOptions
from onechip.server.streaming import EVENT_STREAM, sse


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


class ChunkEvents:
    """The events of `generation`, each around one choice of `chunks`."""

    content_type = EVENT_STREAM

    def __init__(self, generation: Generation, chunks: Chunks, options: StreamOptions | None) -> None:
        self._generation = generation
        self._chunks = chunks
        self._include_usage = bool(options and options.include_usage)
        self._usage_in_all = bool(options and options.continuous_usage_stats)

    def opening(self) -> bytes:
        return self._events(self._chunks.opening())

    def window(self, deltas: Sequence[Delta]) -> bytes:
        return self._events(self._chunks.window(deltas))

    def closing(self) -> bytes:
        finish = self._generation.answer.finish
        assert finish is not None
        usage = sse(self._chunks.body([], self._generation.usage)) if self._include_usage else b""
        return self._events([self._chunks.closing(finish)]) + usage + b"data: [DONE]\n\n"

    def failure(self, error: OnechipError) -> bytes:
        return sse(openai_error(error))

    def _events(self, choices: Sequence[Any]) -> bytes:
        """One event for each choice."""
        usage: Usage | UnsetType | None = None if self._include_usage else UNSET
        if self._usage_in_all:
            usage = self._generation.usage
        return b"".join(sse(self._chunks.body([choice], usage)) for choice in choices)
