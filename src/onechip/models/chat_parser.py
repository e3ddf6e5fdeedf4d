"""Token ids of an answer, window by window -> deltas: text, reasoning, tool calls.

Reasoning and calls are read in Gemma 4's notation; without its markers answers are text alone. Others' are
read by `ThoughtReader` and `JsonCallParser`.
One state machine for streamed and whole answers alike. Markers are recognised by id, so an answer that spells
`<tool_call|>` out in ordinary tokens is text.
"""

from __future__ import annotations

import re
import secrets
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from onechip.models.tokenizer import Tokenizer
from onechip.models.tool_arguments import ArgumentsTransducer
from onechip.models.tool_schema import Schema


@dataclass(frozen=True, slots=True)
class Text:
    """More of the answer."""

    text: str


@dataclass(frozen=True, slots=True)
class Reasoning:
    """More of the thoughts before it."""

    text: str


@dataclass(frozen=True, slots=True)
class CallOpen:
    """A tool call begins; `index` counts the calls of this answer from 0."""

    index: int
    id: str
    name: str


@dataclass(frozen=True, slots=True)
class CallArguments:
    """More JSON text of call `index`; all fragments of a call join to one JSON object."""

    index: int
    fragment: str


@dataclass(frozen=True, slots=True)
class CallClose:
    """Call `index` is complete."""

    index: int


Delta = Text | Reasoning | CallOpen | CallArguments | CallClose


def text_of(deltas: Iterable[Delta]) -> str:
    """All text of the answer in `deltas`."""
    return "".join(delta.text for delta in deltas if isinstance(delta, Text))


def append_delta(deltas: list[Delta], delta: Delta) -> None:
    """Append `delta`, joined with the last one where both say more of the same thing."""
    last = deltas[-1] if deltas else None
    if isinstance(delta, Text) and isinstance(last, Text):
        deltas[-1] = Text(last.text + delta.text)
    elif isinstance(delta, Reasoning) and isinstance(last, Reasoning):
        deltas[-1] = Reasoning(last.text + delta.text)
    elif isinstance(delta, CallArguments) and isinstance(last, CallArguments):
        deltas[-1] = CallArguments(delta.index, last.fragment + delta.fragment)
    else:
        deltas.append(delta)


_State = Literal["content", "after call", "channel name", "reasoning", "call header", "call arguments"]

_CALL_MARKERS = {"<|tool_call>": "call", "<tool_call|>": "call end", '<|"|>': "quote"}
_THOUGHT = "thought\n"
_MAX_HEADER = 256
"""Characters of `call:NAME` at the most; an answer that goes on longer without a bracket is not a call."""

_NAME = r"[^\s:{}()\[\]<>\"]{1,200}"
_HEADER = re.compile(rf"\s*(?:(?:call)?\s*:)?\s*({_NAME})\s*")
_OPENER = re.compile(r"[{(]")


class ChatParser:
    """Reads one answer.

    Attributes:
        reasoning_tokens: tokens of the thoughts so far, without the markers around them.

    The grammar of Gemma 4 is: [thought] text? call* end. Also understood: a call without `call`, with round
    brackets or without its end, a call straight from the thoughts, several calls, a stray or repeated channel
    marker, and a prompt that has already opened the thought channel.
    """

    def __init__(
        self,
        tokenizer: Tokenizer,
        tools: Sequence[Mapping[str, Any]] | None,
        prompt_ids: Sequence[int],
        skip_special: bool = True,
        begun: str = "",
    ) -> None:
        """Get ready for the first token after the prompt.

        Args:
            tools: OpenAI's tool definitions; without any, call markers mean nothing.
            prompt_ids: the prompt, to see whether it ends inside the thought channel.
            skip_special: leave special tokens that are no markers out of the text.
            begun: the text that the answer begins with in the prompt.
        """
        self._schemas = {tool["function"]["name"]: tool["function"].get("parameters") for tool in tools or ()}
        self._decoder = tokenizer.stream(skip_special, continued=bool(begun))
        self._markers = _markers(tokenizer, calls=bool(tools))
        self.reasoning_tokens = 0
        self._state: _State = "content"
        self._buffer = ""  # a channel's name, a call's header, or the newlines that may end the thoughts
        self._calls = 0
        self._arguments: ArgumentsTransducer | None = None
        self._deltas: list[Delta] = []
        self._enter_open_thought(tokenizer, prompt_ids)

    @property
    def calls(self) -> int:
        """Tool calls that have begun so far."""
        return self._calls

    def push(self, ids: Sequence[int]) -> list[Delta]:
        """What these tokens add; neighbouring deltas of one kind are joined."""
        start = 0
        if not self._markers.keys().isdisjoint(ids):
            for position, id in enumerate(ids):
                marker = self._markers.get(id)
                if marker is not None:
                    self._count(position - start)
                    self._on_text(self._decoder.push(ids[start:position]) + self._decoder.finish())
                    self._on_marker(marker, id)
                    start = position + 1
        self._count(len(ids) - start)
        self._on_text(self._decoder.push(ids[start:]))
        return self._take()

    def finish(self, cut_off: bool = False) -> list[Delta]:
        """What is still held back at the end of the answer; an open call is completed to valid JSON.

        Args:
            cut_off: the answer ended for want of room. Then a call or a channel whose name may be incomplete
                is dropped.
        """
        self._on_text(self._decoder.finish())
        if cut_off and self._state in ("call header", "channel name"):
            self._state = "content"
        self._end_section()
        return self._take()

    def _count(self, tokens: int) -> None:
        if self._state in ("channel name", "reasoning"):
            self.reasoning_tokens += tokens

    def _enter_open_thought(self, tokenizer: Tokenizer, prompt_ids: Sequence[int]) -> None:
        """Start inside the thoughts if the prompt opened them."""
        thought = open_thought(tokenizer, prompt_ids)
        if thought is not None:
            self._state = "channel name"
            self._on_text(tokenizer.decode(thought))
            self._deltas.clear()

    def _take(self) -> list[Delta]:
        deltas, self._deltas = self._deltas, []
        return deltas

    def _emit(self, delta: Delta) -> None:
        append_delta(self._deltas, delta)

    def _on_text(self, text: str) -> None:
        if not text:
            return
        if self._state == "content":
            self._emit(Text(text))
        elif self._state == "after call":
            self._on_text_after_call(text)
        elif self._state == "channel name":
            self._on_channel_name(text)
        elif self._state == "reasoning":
            self._on_reasoning(text)
        elif self._state == "call header":
            self._on_call_header(text)
        else:
            self._on_call_arguments(text)

    def _on_text_after_call(self, text: str) -> None:
        """Blanks between calls and behind the last one are layout, not an answer."""
        text = text.lstrip()
        if text:
            self._state = "content"
            self._emit(Text(text))

    def _on_channel_name(self, text: str) -> None:
        self._buffer += text
        if _THOUGHT.startswith(self._buffer) and self._buffer != _THOUGHT:
            return
        thoughts, self._buffer = self._buffer.removeprefix(_THOUGHT), ""
        self._state = "reasoning"
        self._on_text(thoughts)

    def _on_reasoning(self, text: str) -> None:
        text = self._buffer + text
        shown = text.rstrip("\n")
        self._buffer = text[len(shown) :]
        if shown:
            self._emit(Reasoning(shown))

    def _on_call_header(self, text: str) -> None:
        self._buffer += text
        opener = _OPENER.search(self._buffer)
        if opener is None:
            if len(self._buffer) > _MAX_HEADER:
                self._give_up_call()
            return
        header, rest = self._buffer[: opener.start()], self._buffer[opener.end() :]
        name = _HEADER.fullmatch(header)
        if name is None:
            self._give_up_call()
            return
        self._open_call(name[1], opener[0])
        self._on_text(rest)

    def _open_call(self, name: str, opener: str) -> None:
        self._emit(CallOpen(self._calls, f"call_{secrets.token_hex(12)}", name))
        self._calls += 1
        self._arguments = ArgumentsTransducer(Schema(self._schemas.get(name)), opener)
        self._buffer, self._state = "", "call arguments"

    def _give_up_call(self) -> None:
        """What looked like a call is none: show it as it stands, so that nothing is lost without a trace."""
        text, self._buffer = f"<|tool_call>{self._buffer}", ""
        self._state = "content"
        self._emit(Text(text))

    def _on_call_arguments(self, text: str) -> None:
        assert self._arguments is not None
        self._emit_fragment(self._arguments.text(text))
        rest = self._arguments.rest.lstrip(" \n\t)]}")
        if self._arguments.done and rest:
            self._end_section()
            self._on_text(rest)

    def _emit_fragment(self, fragment: str) -> None:
        if fragment:
            self._emit(CallArguments(self._calls - 1, fragment))

    def _on_marker(self, marker: str, id: int) -> None:
        in_call = self._state in ("call header", "call arguments")
        if marker == "quote":
            if self._state == "call arguments" and self._arguments is not None:
                self._emit_fragment(self._arguments.quote())
            elif not in_call:
                self._on_text(self._decoder.push((id,)))
        elif marker == "call":
            self._end_section()
            self._state = "call header"
        elif marker == "channel":
            self._end_section()
            self._state = "channel name"
        elif marker == "boundary" or marker == ("call end" if in_call else "channel end"):
            self._end_section()

    def _end_section(self) -> None:
        """Close what is open: thoughts or a call."""
        if self._state == "channel name" and self._buffer.strip() not in ("", _THOUGHT.strip()):
            self._emit(Reasoning(self._buffer))
        if self._state == "call header":
            name = _HEADER.fullmatch(self._buffer)
            if name is None:
                self._give_up_call()
            else:
                self._open_call(name[1], "{")
        if self._arguments is not None:
            self._emit_fragment(self._arguments.close())
            self._emit(CallClose(self._calls - 1))
            self._arguments = None
            self._state = "after call"
        elif self._state != "after call":
            self._state = "content"
        self._buffer = ""


def is_function_name(name: str) -> bool:
    """Whether calls of `name` can be read in Gemma 4's notation."""
    return re.fullmatch(_NAME, name) is not None


def open_thought(tokenizer: Tokenizer, prompt_ids: Sequence[int]) -> Sequence[int] | None:
    """The tokens behind the marker that opens the thoughts, if that is the last one of the prompt."""
    markers = _markers(tokenizer, calls=False)
    for position in range(len(prompt_ids) - 1, -1, -1):
        marker = markers.get(prompt_ids[position])
        if marker is not None:
            return prompt_ids[position + 1 :] if marker == "channel" else None
    return None


@dataclass(frozen=True, slots=True)
class ThoughtMarkers:
    """Token ids that mean something to the thoughts of an answer.

    Attributes:
        open, close: around them.
        breaks: what ends them without closing them: the end of a turn or of the answer, or a call.
        first: thoughts come before the first word of the answer only; behind it, `open` is text.
    """

    open: int
    close: int
    breaks: frozenset[int]
    first: bool = False

    @classmethod
    def of(cls, tokenizer: Tokenizer, calls: bool) -> ThoughtMarkers | None:
        """Gemma 4's; None if the vocabulary does not have them.

        Args:
            calls: the answer may have calls.
        """
        markers = _markers(tokenizer, calls)
        ids = {meaning: id for id, meaning in markers.items()}
        if not {"channel", "channel end"} <= ids.keys():
            return None
        breaks = (id for id, meaning in markers.items() if meaning in ("boundary", "call"))
        return cls(ids["channel"], ids["channel end"], frozenset(breaks))


def has_call_markers(tokenizer: Tokenizer) -> bool:
    """Whether models of this vocabulary can write a call in Gemma 4's notation."""
    return all(tokenizer.token_id(token) is not None for token in _CALL_MARKERS)


def _markers(tokenizer: Tokenizer, calls: bool) -> dict[int, str]:
    """Ids that have a meaning here -> what they mean."""
    meanings = {"<|channel>": "channel", "<channel|>": "channel end", "<|turn>": "boundary"}
    if calls:
        meanings |= _CALL_MARKERS
    markers = dict.fromkeys(tokenizer.stop_ids, "boundary")
    for token, meaning in meanings.items():
        id = tokenizer.token_id(token)
        if id is not None:
            markers[id] = meaning
    return markers
