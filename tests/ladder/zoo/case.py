"""A case of the zoo: bytes of answers with their moments, and the exact figures that must come of them.

A case says only what differs from the usual: four tokens asked for and given, 50, 60, 80 and 110 ms after the
request.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from tests.ladder.zoo.engine import Answer, Step
from tests.ladder.zoo.events import DONE, HEAD, LAST_CHUNK, chunk, delta, event, text, usage

MOMENTS = (50, 60, 80, 110)
WORDS = ("a ", "b ", "c ", "d ")
HEAD_MS, ROLE_MS, END_MS = 1, 20, 115

Timed = tuple[float, Any]


@dataclass(frozen=True, kw_only=True)
class Expected:
    """Figures of one request; times in ms after it was sent.

    Attributes:
        at: content events; the first is the TTFT.
        tokens: that each of them carried. source: how that is known (RequestRecord.extra["tokens_from"]).
        gaps: inter-token latencies.
        prompt, output, cached: the engine's own counts.
        end: the whole answer.
    """

    at: Sequence[float] = MOMENTS
    tokens: Sequence[int] = (1, 1, 1, 1)
    source: str = "one each"
    gaps: Sequence[float] = (10, 20, 30)
    prompt: int | None = 7
    output: int | None = 4
    cached: int | None = None
    end: float = END_MS
    finish: str | None = "length"
    text: str = "a b c d "
    reasoning: str | None = None
    calls: list[dict[str, str]] | None = None
    error: str | None = None


NOTHING: dict[str, Any] = {
    "at": (),
    "tokens": (),
    "gaps": (),
    "prompt": None,
    "output": None,
    "finish": None,
    "text": "",
}
"""Of a request without any content."""


@dataclass(frozen=True, kw_only=True)
class Case:
    """One to three requests on one slot, one after the other.

    Attributes:
        asked: tokens of output that the request asks for; None where its length is free, as in accuracy.
        invalid: why a cell of these requests is INVALID: how the sentences begin.
        reconnects: connections that the client had to open while it measured.
    """

    answers: Sequence[Answer]
    expected: Sequence[Expected] = field(default_factory=lambda: [Expected()])
    asked: int | None = 4
    invalid: Sequence[str] = ()
    reconnects: int = 0


def answer(
    *events: Timed,
    head: bytes = HEAD,
    frame: Callable[[bytes], bytes] = chunk,
    encode: Callable[[Any], bytes] = event,
    last: bytes = LAST_CHUNK,
    end_ms: float = END_MS,
    **how: Any,
) -> Answer:
    """Head, events and end of one answer, each sent by itself."""
    steps: list[Step] = [(HEAD_MS, head)]
    steps += [(ms, frame(encode(payload))) for ms, payload in events]
    if last:
        steps.append((end_ms, last))
    return Answer(steps, **how)


def after(*payloads: Any) -> list[Timed]:
    """Events that follow at once on the last token."""
    return [(END_MS, payload) for payload in payloads]


def tokens(pieces: Sequence[str] = WORDS, moments: Sequence[float] = MOMENTS) -> list[Timed]:
    """Completion events of one token each."""
    return [(ms, text(piece)) for ms, piece in zip(moments, pieces, strict=False)]


def chat(pieces: Sequence[str] = WORDS, name: str = "content") -> list[Timed]:
    """Chat events of one token each."""
    return [(ms, delta(**{name: piece})) for ms, piece in zip(MOMENTS, pieces, strict=False)]


ENDING = after(text("", "length"), usage(4), DONE)
CHAT_ENDING = after(delta(finish="length"), usage(4), DONE)
USUAL = [*tokens(), *ENDING]


def failed(error: str) -> list[str]:
    return [f"1 of 1 requests failed: {error}"]
