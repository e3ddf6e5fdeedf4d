"""The engine's events for one request -> what the client gets to see: deltas, counts, and why it ended."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, Protocol

from onechip.engine.types import Event, Logprobs
from onechip.models.chat_parser import CallClose, CallOpen, Delta, Text, append_delta
from onechip.models.stream_decoder import StreamDecoder
from onechip.server.stop_strings import StopStrings

FinishReason = Literal["stop", "length", "tool_calls"]


class Reader(Protocol):
    """Makes deltas of token ids; ChatParser is one."""

    @property
    def reasoning_tokens(self) -> int: ...

    def push(self, ids: Sequence[int]) -> list[Delta]: ...

    def finish(self, cut_off: bool) -> list[Delta]: ...


class TextReader:
    """The reader of plain completions: all is text."""

    reasoning_tokens = 0

    def __init__(self, decoder: StreamDecoder) -> None:
        self._decoder = decoder

    def push(self, ids: Sequence[int]) -> list[Delta]:
        return _as_deltas(self._decoder.push(ids))

    def finish(self, cut_off: bool) -> list[Delta]:
        return _as_deltas(self._decoder.finish())


class Unread:
    """The reader of what nobody reads, as a prompt that is scored."""

    reasoning_tokens = 0

    def push(self, ids: Sequence[int]) -> list[Delta]:
        return []

    def finish(self, cut_off: bool) -> list[Delta]:
        return []


class Answer:
    """One answer in the making.

    Stop strings are looked for in the answer's text, not in its thoughts or calls.

    Attributes:
        finish: why it ended, None while it goes on.
        ids: output tokens so far, the stop token included, none behind a stop string.
        logprobs: of each of `ids`, if they were asked for.
        stop_string: the stop string that ended it, None if none did.
        cached_tokens: prompt tokens that the engine had already.
    """

    def __init__(
        self,
        reader: Reader,
        stops: Sequence[str] = (),
        min_tokens: int = 0,
        one_call: bool = False,
        show_stop: bool = False,
    ) -> None:
        """Start reading.

        Args:
            stops: strings that end the answer.
            min_tokens: stop strings count only behind this many tokens.
            one_call: end behind the first tool call.
            show_stop: the stop string or token is part of the answer.
        """
        self._reader = reader
        self._stops = StopStrings(stops, show_stop) if stops else None
        self._show_stop = show_stop
        self._min_tokens = min_tokens
        self._one_call = one_call
        self._called = False
        self.finish: FinishReason | None = None
        self.stop_string: str | None = None
        self.ids: list[int] = []
        self.logprobs: list[Logprobs] = []
        self.cached_tokens = 0

    @property
    def tokens(self) -> int:
        """Output tokens so far."""
        return len(self.ids)

    @property
    def reasoning_tokens(self) -> int:
        """How many of `tokens` are thoughts."""
        return self._reader.reasoning_tokens

    def take(self, event: Event) -> list[Delta]:
        """What `event`, which must not be one of failure, adds; sets `finish` with the last."""
        self.cached_tokens = max(self.cached_tokens, event.cached_tokens)
        before = len(self.ids)
        deltas: list[Delta] = []
        self._read(event, deltas)
        if event.logprobs:
            self.logprobs += event.logprobs[: len(self.ids) - before]
        return deltas

    def _read(self, event: Event, deltas: list[Delta]) -> None:
        # The token that ended the answer is not part of its text.
        hidden = event.finish == "stop" and not self._show_stop
        visible = event.tokens[:-1] if hidden else event.tokens
        # Where text can end the answer, each token is looked at alone: the count must stop with it.
        parts = [(id,) for id in visible] if self._stops or self._one_call else [visible]
        for part in parts:
            self.ids += part
            self._add(self._reader.push(part), deltas)
            if self.finish:
                return
        self.ids += event.tokens[len(visible) :]
        if event.finish:
            self._end("length" if event.finish == "length" else "stop", deltas)

    def _end(self, reason: FinishReason, deltas: list[Delta]) -> None:
        self._add(self._reader.finish(cut_off=reason == "length"), deltas)
        if self.finish is None:
            self._flush(deltas)
            self.finish = "tool_calls" if self._called and reason == "stop" else reason
        elif reason == "length" and self.finish == "tool_calls":
            self.finish = reason  # it was not the model that closed the call

    def _add(self, new: list[Delta], deltas: list[Delta]) -> None:
        for delta in new:
            if isinstance(delta, Text):
                self._add_text(delta, deltas)
            else:
                self._flush(deltas)
                append_delta(deltas, delta)
                self._called |= isinstance(delta, CallOpen)
                if self._one_call and isinstance(delta, CallClose):
                    self.finish = "tool_calls"
            if self.finish:
                return

    def _add_text(self, delta: Text, deltas: list[Delta]) -> None:
        if self._stops is None or self.tokens <= self._min_tokens:
            append_delta(deltas, delta)
            return
        text = self._stops.push(delta.text)
        if text:
            append_delta(deltas, Text(text))
        if self._stops.hit is not None:
            self.finish, self.stop_string = "stop", self._stops.hit

    def _flush(self, deltas: list[Delta]) -> None:
        held = self._stops.flush() if self._stops else ""
        if held:
            append_delta(deltas, Text(held))


def _as_deltas(text: str) -> list[Delta]:
    return [Text(text)] if text else []
