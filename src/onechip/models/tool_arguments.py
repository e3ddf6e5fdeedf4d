"""Gemma 4's notation for the arguments of a call, piece by piece -> fragments of JSON text.

In: text and quote tokens as they are generated. Out: fragments that always join to one valid JSON object.
"""

from __future__ import annotations

import json
import math
import re
from dataclasses import dataclass, field
from typing import Literal

import msgspec

from onechip.models.tool_schema import Schema

_State = Literal["key", "quoted key", "colon", "value", "bare", "string", "next", "done"]

_JSON_NUMBER = re.compile(r"-?(?:0|[1-9]\d*)(?:\.\d+)?(?:[eE][+-]?\d+)?")
_LOOSE_NUMBER = re.compile(r"[+-]?(?:(?:0|[1-9]\d*)(?:\.\d*)?|\.\d+)(?:[eE][+-]?\d+)?")
_CONSTANTS = {"true": "true", "True": "true", "false": "false", "False": "false"}
_NULLS = ("null", "None")


@dataclass(slots=True)
class _Container:
    """An object or array that is open.

    Attributes:
        closers: characters that may end it; the first is its own.
        member: schema of the member that is being read.
        keys: those of an object's members so far.
        count: an array's elements so far.
        skipped: the member that is being read has a key that was there before; it is not written.
    """

    closers: str
    schema: Schema
    member: Schema
    keys: set[str] = field(default_factory=set)
    count: int = 0
    skipped: bool = False

    @property
    def is_object(self) -> bool:
        return self.closers[0] != "]"


class ArgumentsTransducer:
    """Turns `a:1,b:<|"|>x<|"|>}` into `{"a":1,"b":"x"}`, fragment by fragment.

    Forgiven is what has a plain meaning: quoted keys, unquoted strings (also with commas), Python's True,
    False and None, missing or surplus commas, a closing bracket that is missing. A scalar that disagrees with
    the tool's schema on being a string or not is converted. Of members with the same key the first counts,
    since it may have been sent when the next one comes.

    Attributes:
        done: the outermost object is closed.
        rest: what the last piece had behind the bracket that closed it.
    """

    def __init__(self, schema: Schema, opener: str) -> None:
        """Start inside the outermost object.

        Args:
            schema: of the parameters of the tool that is called.
            opener: the character that opened it: `{`, or `(` from a model that takes the call for Python.
        """
        closers = "})" if opener == "(" else "}"
        self._open = [_Container(closers, schema, schema)]
        self._state: _State = "key"
        self._text = ""  # of the key, bare value or string that is being read
        self._held: str | None = None  # a bare string that ends at a comma, or goes on behind it
        self._buffered = False  # the string is read whole, since the schema wants no string
        self._fragments = ["{"]
        self.rest = ""

    @property
    def done(self) -> bool:
        return not self._open

    def text(self, piece: str) -> str:
        """The JSON that `piece` adds."""
        position = 0
        while position < len(piece) and not self.done:
            position = self._step(piece, position)
        self.rest = piece[position:]
        return self._take()

    def quote(self) -> str:
        """The JSON that a quote token adds."""
        if self._state == "string":
            self._end_string()
        elif self._state == "quoted key":
            self._state = "colon"
        elif self._state == "key" and not self._text.strip():
            self._text, self._state = "", "quoted key"
        elif self._state == "value":
            self._begin_string()
        elif self._state == "next":
            if self._open[-1].is_object:
                self._text, self._state = "", "quoted key"
            else:
                self._begin_string()
        return self._take()

    def close(self) -> str:
        """The JSON that completes the object, wherever it broke off."""
        if self.done:
            return self._take()
        if self._state == "bare":
            self._end_bare()
        elif self._state == "string":
            self._end_string()
        elif self._state == "value" and self._open[-1].is_object:
            self._write("null")
        elif self._state == "key" and self._held is not None and self._text.strip():
            self._held += f",{self._text}"
        while self._open:
            self._close_innermost()
        return self._take()

    def _take(self) -> str:
        fragment = "".join(self._fragments)
        self._fragments.clear()
        return fragment

    def _write(self, fragment: str) -> None:
        if not any(container.skipped for container in self._open):
            self._fragments.append(fragment)

    def _step(self, piece: str, position: int) -> int:
        """Read from `piece[position:]` as far as one rule goes; returns where it ends."""
        if self._state == "string":
            return self._read_string(piece, position)
        if self._state == "quoted key":
            self._text += piece[position:]
            return len(piece)
        if self._state in ("key", "bare", "colon"):
            return self._read_until_delimiter(piece, position)
        character = piece[position]
        if character.isspace():
            return position + 1
        if self._state == "value":
            return self._begin_value(character, position)
        if character == "," or self._closes(character):
            self._end_member(character)
            return position + 1
        # A member that follows without a comma.
        self._text, self._state = "", "key" if self._open[-1].is_object else "value"
        return position

    def _read_string(self, piece: str, position: int) -> int:
        if self._buffered:
            self._text += piece[position:]
        else:
            self._write(_escaped(piece[position:]))
        return len(piece)

    def _read_until_delimiter(self, piece: str, position: int) -> int:
        end = position
        while end < len(piece) and not self._delimits(piece[end]):
            end += 1
        if self._state != "colon":
            self._text += piece[position:end]
        if end == len(piece):
            return end
        if piece[end] == ":":
            self._end_key()
        else:
            if self._state == "bare":
                self._end_bare()
            else:
                self._end_keyless()
            self._end_member(piece[end])
        return end + 1

    def _delimits(self, character: str) -> bool:
        if character == ":":
            return self._state != "bare"
        return character == "," or self._closes(character)

    def _closes(self, character: str) -> bool:
        return any(character in container.closers for container in self._open)

    def _begin_value(self, character: str, position: int) -> int:
        container = self._open[-1]
        if character == "," or self._closes(character):
            if container.is_object:
                self._write("null")
            self._end_member(character)
            return position + 1
        self._begin_element()
        if character in "{[":
            self._write(character)
            closer = "}" if character == "{" else "]"
            self._open.append(_Container(closer, container.member, Schema()))
            self._text, self._state = "", "key" if character == "{" else "value"
            return position + 1
        self._text, self._state = "", "bare"
        return position

    def _begin_element(self) -> None:
        """Write the comma before an array's element; an object's member has its own in `_end_key`."""
        container = self._open[-1]
        if not container.is_object:
            self._write("," if container.count else "")
            if container.count <= container.schema.ahead:
                container.member = container.schema.element(container.count)
            container.count += 1

    def _begin_string(self) -> None:
        self._begin_element()
        types = self._open[-1].member.types
        self._buffered = bool(types) and "string" not in types
        self._write("" if self._buffered else '"')
        self._text, self._state = "", "string"

    def _end_string(self) -> None:
        self._write(_from_quoted(self._text, self._open[-1].member.types) if self._buffered else '"')
        self._state = "next"

    def _end_bare(self) -> None:
        """Write the bare value, unless it is a string in an object: a comma behind it may be part of it."""
        value = _from_bare(self._text, self._open[-1].member.types)
        if value.startswith('"') and self._open[-1].is_object:
            self._held = self._text
        else:
            self._write(value)

    def _end_key(self) -> None:
        container = self._open[-1]
        self._release()
        key = self._text if self._state == "colon" else _unwrapped(self._text)
        container.skipped = key in container.keys
        self._write(("," if container.keys else "") + json.dumps(key, ensure_ascii=False) + ":")
        container.keys.add(key)
        container.member = container.schema.property(key)
        self._state = "value"

    def _end_keyless(self) -> None:
        """What stands where a member should, without a colon: the rest of a bare string, or a key alone."""
        if not self._text.strip():
            return
        if self._held is not None:
            self._held += f",{self._text}"
            return
        self._end_key()
        self._write("null")

    def _end_member(self, delimiter: str) -> None:
        """Go on behind a comma or a closing bracket; a bracket also closes what is open inside of its own."""
        self._text = ""
        if delimiter == ",":
            self._state = "key" if self._open[-1].is_object else "value"
            return
        while True:
            closers = self._open[-1].closers
            self._close_innermost()
            if delimiter in closers:
                break
        self._state = "next" if self._open else "done"

    def _close_innermost(self) -> None:
        self._release()
        self._write(self._open.pop().closers[0])

    def _release(self) -> None:
        """Write the bare string that was held back."""
        if self._held is not None:
            self._write(_from_bare(self._held, self._open[-1].member.types))
            self._held = None


def _escaped(text: str) -> str:
    """`text` as it stands between the quotes of a JSON string."""
    return json.dumps(text, ensure_ascii=False)[1:-1]


def _unwrapped(key: str) -> str:
    """A key without the blanks and the plain double quotes that a model may put around it."""
    key = key.strip()
    return key[1:-1] if len(key) > 1 and key[0] == key[-1] == '"' else key


def _number(text: str) -> str | None:
    """`text` as a JSON number, None if it is none; `+5`, `.5` and `5.` count as numbers."""
    if _JSON_NUMBER.fullmatch(text):
        return text
    if not _LOOSE_NUMBER.fullmatch(text):
        return None
    if "." not in text and "e" not in text.lower():
        return text.removeprefix("+")
    value = float(text)
    return repr(value) if math.isfinite(value) else None


def _from_bare(text: str, types: frozenset[str]) -> str:
    """JSON of an unquoted value: a constant or number unless the schema wants a string, else a string."""
    text = text.strip()
    if text in _NULLS:
        return "null"
    wants_text = "string" in types
    constant, number = _CONSTANTS.get(text), _number(text)
    if constant and not (wants_text and "boolean" not in types):
        return constant
    if number and not (wants_text and types.isdisjoint(("number", "integer"))):
        return number
    return json.dumps(_decoded_string(text), ensure_ascii=False)


def _decoded_string(text: str) -> str:
    """The content of `text` if it is a JSON string in plain double quotes, else `text` itself."""
    if not text.startswith('"'):
        return text
    try:
        value = msgspec.json.decode(text)  # json would let lone surrogates pass
    except msgspec.DecodeError:
        return text
    return value if isinstance(value, str) else text


def _from_quoted(text: str, types: frozenset[str]) -> str:
    """JSON of a quoted value where the schema wants no string: what it wants, if the text is that."""
    bare = text.strip()
    number = _number(bare)
    if number and not types.isdisjoint(("number", "integer")):
        return number
    if bare in _CONSTANTS and "boolean" in types:
        return _CONSTANTS[bare]
    if bare in _NULLS and "null" in types:
        return "null"
    if bare[:1] in ("{", "[") and not types.isdisjoint(("object", "array")):
        try:
            return msgspec.json.encode(msgspec.json.decode(bare)).decode()
        except (msgspec.DecodeError, RecursionError):
            pass
    return json.dumps(text, ensure_ascii=False)
