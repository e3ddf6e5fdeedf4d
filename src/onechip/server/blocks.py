"""Deltas of an answer -> blocks, one after the other: a stretch of text, a stretch of thoughts, or a call.

Protocols that number the parts of an answer (OpenAI's Responses, Anthropic's Messages, Ollama's calls) send
these, streamed and whole alike.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal

from onechip.models.chat_parser import CallArguments, CallClose, CallOpen, Delta, Reasoning, Text

Kind = Literal["text", "reasoning", "call"]


@dataclass(slots=True)
class Block:
    """One part of an answer.

    Attributes:
        index: counts the answer's blocks from 0.
        call_id, name: of a call; else empty.
        pieces: of its text; of a call, of the JSON text of its arguments.
    """

    index: int
    kind: Kind
    call_id: str = ""
    name: str = ""
    pieces: list[str] = field(default_factory=list)

    @property
    def text(self) -> str:
        """All pieces together."""
        return "".join(self.pieces)


@dataclass(frozen=True, slots=True)
class Opened:
    """A block begins, empty; `block` may be further already, since steps are taken a window at a time."""

    block: Block


@dataclass(frozen=True, slots=True)
class Grown:
    """`piece` was added to the block."""

    block: Block
    piece: str


@dataclass(frozen=True, slots=True)
class Closed:
    """The block is complete."""

    block: Block


Step = Opened | Grown | Closed


class Blocks:
    """The blocks of one answer.

    Attributes:
        all: every block that was opened, in order.
    """

    def __init__(self) -> None:
        self.all: list[Block] = []
        self._open: Block | None = None

    @classmethod
    def of(cls, deltas: Sequence[Delta]) -> list[Block]:
        """The blocks of a whole answer."""
        blocks = cls()
        blocks.take(deltas)
        blocks.end()
        return blocks.all

    def take(self, deltas: Sequence[Delta]) -> list[Step]:
        """What these deltas add."""
        steps: list[Step] = []
        for delta in deltas:
            if isinstance(delta, Text):
                self._add("text", delta.text, steps)
            elif isinstance(delta, Reasoning):
                self._add("reasoning", delta.text, steps)
            elif isinstance(delta, CallOpen):
                self._begin("call", steps, delta.id, delta.name)
            elif isinstance(delta, CallArguments):
                self._add("call", delta.fragment, steps)
            elif isinstance(delta, CallClose):
                self._close(steps)
        return steps

    def end(self) -> list[Step]:
        """The end of the answer. One that is empty has an empty text, since clients look for one."""
        steps: list[Step] = []
        if not self.all:
            self._begin("text", steps)
        self._close(steps)
        return steps

    def _add(self, kind: Kind, piece: str, steps: list[Step]) -> None:
        if self._open is None or self._open.kind != kind:
            self._begin(kind, steps)
        assert self._open is not None
        self._open.pieces.append(piece)
        steps.append(Grown(self._open, piece))

    def _begin(self, kind: Kind, steps: list[Step], call_id: str = "", name: str = "") -> None:
        self._close(steps)
        self._open = Block(len(self.all), kind, call_id, name)
        self.all.append(self._open)
        steps.append(Opened(self._open))

    def _close(self, steps: list[Step]) -> None:
        if self._open is not None:
            steps.append(Closed(self._open))
            self._open = None
