"""Token ids or text of an answer whose tool calls are JSON, window by window -> deltas: text and tool calls.

Three forms are read: an answer that is nothing but a call, or a list of them (Llama 3.1 and later, Mistral),
and calls between `<tool_call>` and `</tool_call>` (Hermes, Qwen, SmolLM). What is none in the end is text.
"""

from __future__ import annotations

import json
import re
import secrets
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Literal, NoReturn

from onechip.models.chat_parser import CallArguments, CallClose, CallOpen, Delta, Text, append_delta
from onechip.models.overlap import overlap
from onechip.models.tokenizer import Tokenizer

OPEN, CLOSE = "<tool_call>", "</tool_call>"
_KEYS = ("name", "parameters", "arguments", "type", "id", "function")
"""Keys that a call may begin with; an answer that begins with another is text."""

_HEAD = re.compile(r'\s*(?:\[\s*)?(?:\{\s*(?:"(?P<key>[^"]*)(?P<quote>")?)?)?')
_BETWEEN = re.compile(r"[\s;,]*")

_State = Literal["start", "whole", "text", "call", "after call"]


class JsonCallParser:
    """Reads one answer; text is held back only while it may be a call.

    Attributes:
        reasoning_tokens: 0, since thoughts are not told from text here; `ThoughtReader` does that.
    """

    reasoning_tokens = 0

    def __init__(
        self,
        tokenizer: Tokenizer,
        tools: Sequence[Mapping[str, Any]],
        skip_special: bool = True,
        begun: str = "",
    ) -> None:
        """Get ready for the first token after the prompt.

        Args:
            tools: OpenAI's tool definitions. An answer without markers is a call only of one of these.
            skip_special: leave special tokens out of the text.
            begun: the text that the answer begins with in the prompt: what follows is no whole answer.
        """
        self._names = frozenset(tool["function"]["name"] for tool in tools)
        self._decoder = tokenizer.stream(skip_special, continued=bool(begun))
        self._state: _State = "text" if begun.strip() else "start"
        self._held = ""
        self._searched = 0  # characters of what is held in which the end of a call does not begin
        self._calls = 0
        self._deltas: list[Delta] = []

    def push(self, ids: Sequence[int]) -> list[Delta]:
        """What these tokens add; neighbouring deltas of one kind are joined."""
        return self.push_text(self._decoder.push(ids))

    def push_text(self, text: str) -> list[Delta]:
        """What this text adds, which somebody else has decoded."""
        self._on_text(text)
        return self._take()

    def finish(self, cut_off: bool = False) -> list[Delta]:
        """What is still held back at the end of the answer: calls if it makes calls, else text.

        Args:
            cut_off: the answer ended for want of room. It makes no difference: half a call is text.
        """
        self._on_text(self._decoder.finish())
        while self._state == "call" and CLOSE in self._held and not _calls_in(self._held):
            self._pass(CLOSE, self._held.find(CLOSE))  # the string in which it stands has no end
            self._pass_markers()
        held, self._held = self._held, ""
        if self._state == "call":
            self._end_call(held)
        elif self._state == "whole":
            self._end_whole(held)
        else:
            self._emit_text(held)
        return self._take()

    def _take(self) -> list[Delta]:
        deltas, self._deltas = self._deltas, []
        return deltas

    def _on_text(self, text: str) -> None:
        if not text:
            return
        self._held += text
        if self._state == "start":
            self._decide()
        self._pass_markers()

    def _decide(self) -> None:
        """Go on to "whole" or "text" as soon as the beginning of the answer tells which."""
        head = _HEAD.match(self._held)
        assert head is not None  # it also matches nothing at all
        key = head["key"]
        if head["quote"] is not None:
            self._state = "whole" if key in _KEYS else "text"
        elif head.end() < len(self._held) or (key and not any(known.startswith(key) for known in _KEYS)):
            self._state = "text"

    def _pass_markers(self) -> None:
        """Go on behind all markers that are there; then show what can not be the beginning of one."""
        while self._state not in ("start", "whole"):
            marker = CLOSE if self._state == "call" else OPEN
            position = self._find_close() if marker == CLOSE else self._held.find(OPEN)
            if position >= 0:
                self._pass(marker, position)
                continue
            certain = len(self._held) - overlap(self._held, marker)
            if marker == CLOSE:
                self._searched = certain
            else:
                self._emit_text(self._held[:certain])
                self._held = self._held[certain:]
            return

    def _pass(self, marker: str, position: int) -> None:
        """Go on behind `marker`, which stands at `position` of what is held."""
        before, self._held = self._held[:position], self._held[position + len(marker) :]
        self._searched = 0
        if marker == OPEN:
            self._emit_text(before)
            self._state = "call"
        else:
            self._end_call(before, CLOSE)

    def _find_close(self) -> int:
        """Where the open call ends, -1 if it goes on. The marker inside of a JSON string does not end it,
        unless there is no call behind the string either.
        """
        while (position := self._held.find(CLOSE, self._searched)) >= 0:
            text = self._held[:position]
            if not _ends_in_string(text):
                return position if _calls_in(text) else self._held.find(CLOSE)
            self._searched = position + 1
        return -1

    def _end_call(self, text: str, closer: str = "") -> None:
        """Emit what stood between markers as a call, or as it stands if it is none."""
        calls = _calls_in(text)
        self._state = "after call" if calls else "text"
        if not calls:
            self._emit_text(f"{OPEN}{text}{closer}")
        for name, arguments in calls:
            self._emit_call(name, arguments)

    def _end_whole(self, text: str) -> None:
        """Emit a whole answer as calls if all of it is calls of known tools, else as text."""
        calls = _calls_in(text)
        if not calls or any(name not in self._names for name, _ in calls):
            self._emit_text(text)
            return
        for name, arguments in calls:
            self._emit_call(name, arguments)

    def _emit_text(self, text: str) -> None:
        if self._state == "after call":  # blanks there are layout, not an answer
            text = text.lstrip()
            self._state = "text" if text else "after call"
        if text:
            append_delta(self._deltas, Text(text))

    def _emit_call(self, name: str, arguments: str) -> None:
        append_delta(self._deltas, CallOpen(self._calls, f"call_{secrets.token_hex(12)}", name))
        append_delta(self._deltas, CallArguments(self._calls, arguments))
        append_delta(self._deltas, CallClose(self._calls))
        self._calls += 1


def _ends_in_string(text: str) -> bool:
    """Whether `text`, the beginning of JSON, breaks off inside of a string."""
    return re.sub(r"\\.", "", text, flags=re.DOTALL).count('"') % 2 == 1


def _calls_in(text: str) -> list[tuple[str, str]]:
    """Name and JSON arguments of the calls in `text`: one, a list, or several in a row. [] if not all are."""
    try:
        return [_call(value) for value in _values(text)]
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
        return []


def _values(text: str) -> Iterator[Any]:
    """The JSON values in `text`, lists taken apart. Raises ValueError if there is anything else in it."""
    position = 0
    text = text.strip()
    while position < len(text):
        value, position = _JSON.raw_decode(text, position)
        yield from value if isinstance(value, list) else [value]
        between = _BETWEEN.match(text, position)
        position = between.end() if between else position


def _call(value: Any) -> tuple[str, str]:
    """Name and JSON arguments of one call: `{"name": ..., "parameters" or "arguments": {...}}`.

    Raises ValueError, TypeError, KeyError or AttributeError if it is none.
    """
    value = value["function"] if isinstance(value.get("function"), dict) else value
    arguments = value["parameters"] if "parameters" in value else value.get("arguments", {})
    if isinstance(arguments, str):
        arguments = _JSON.decode(arguments)
    name = value["name"]
    if not isinstance(name, str) or not name or not isinstance(arguments, dict):
        raise ValueError("a call has a name, and an object of arguments")
    # A number that is too large has become infinite, which is no JSON.
    text = json.dumps(arguments, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
    (name + text).encode()  # half a surrogate pair, which JSON can spell, could not be sent
    return name, text


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is no JSON")


_JSON = json.JSONDecoder(parse_constant=_refuse_constant)
