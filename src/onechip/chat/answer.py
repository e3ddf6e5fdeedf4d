"""Events of a streamed answer -> its text, thoughts, calls, and how fast it came."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Literal

SHORTEST_S = 0.005
"""Over less time a rate would say how events were bundled, not how fast tokens came."""


@dataclass(frozen=True, slots=True)
class Piece:
    """A bit of text as it arrived."""

    kind: Literal["thought", "text"]
    text: str


@dataclass(slots=True)
class Answer:
    """What has come so far.

    Attributes:
        thoughts_field: under which name the server sends thoughts; None if it has sent none.
        calls: in OpenAI's form; while they arrive, `arguments` are not yet complete JSON.
        finish: why it ended; None if it did not.
        tokens: of the answer; None where the server does not count.
        sent_s, first_s, last_s: when it was asked for, when its first and its last tokens came, by one clock.
    """

    sent_s: float
    text: str = ""
    thoughts: str = ""
    thoughts_field: str | None = None
    calls: list[dict[str, Any]] = field(default_factory=list)
    finish: str | None = None
    tokens: int | None = None
    first_s: float | None = None
    last_s: float | None = None

    def take(self, event: dict[str, Any], now_s: float) -> Iterator[Piece]:
        """Adds an event; what is to be shown of it."""
        self.tokens = (event.get("usage") or {}).get("completion_tokens", self.tokens)
        for choice in event.get("choices") or ():
            self.finish = choice.get("finish_reason") or self.finish
            yield from self._add(choice.get("delta") or {}, now_s)

    def _add(self, delta: dict[str, Any], now_s: float) -> Iterator[Piece]:
        name = next((name for name in ("reasoning_content", "reasoning") if delta.get(name)), None)
        text, calls = delta.get("content"), delta.get("tool_calls")
        if "role" not in delta or text or name or calls:  # the role alone is sent before any token
            self.first_s = now_s if self.first_s is None else self.first_s
            self.last_s = now_s
        if name is not None:
            self.thoughts_field = name
            self.thoughts += delta[name]
            yield Piece("thought", delta[name])
        if text:
            self.text += text
            yield Piece("text", text)
        for call in calls or ():
            self._add_call(call)

    def _add_call(self, piece: dict[str, Any]) -> None:
        function = piece.get("function") or {}
        index = piece.get("index")
        if index is None:  # some servers send a call in one piece, and do not number it
            index = len(self.calls)
        if index >= len(self.calls):
            index = len(self.calls)
            opened = {"name": function.get("name") or "", "arguments": ""}
            self.calls.append({"id": piece.get("id") or "", "type": "function", "function": opened})
        self.calls[index]["function"]["arguments"] += function.get("arguments") or ""

    @property
    def message(self) -> dict[str, Any]:
        """It as a message of the conversation; its thoughts go back only where a call's result follows."""
        message: dict[str, Any] = {"role": "assistant", "content": self.text}
        if self.calls:
            message["tool_calls"] = self.calls
            if self.thoughts_field is not None:
                message[self.thoughts_field] = self.thoughts
        return message

    def figures(self) -> str:
        """Tokens, tokens a second behind the first one, and the time until that came."""
        parts = []
        if self.tokens is not None:
            parts.append(f"{self.tokens:,} token{'' if self.tokens == 1 else 's'}")
        if self.first_s is not None and self.last_s is not None:
            span = self.last_s - self.first_s
            if self.tokens is not None and self.tokens > 1 and span >= SHORTEST_S:
                parts.append(f"{_rounded((self.tokens - 1) / span)} tok/s")
            waited = self.first_s - self.sent_s
            parts.append(
                f"first token {waited:.2f} s" if waited >= 1 else f"first token {waited * 1000:.3g} ms"
            )
        if self.finish == "length":
            parts.append("cut off: no room for more tokens")
        return ", ".join(parts)


def _rounded(rate: float) -> str:
    """Three significant digits."""
    return f"{float(f'{rate:.3g}'):,.10g}"
