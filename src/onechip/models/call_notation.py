"""Values in Gemma 4's notation of calls -> rules of a Lark grammar, for `tool_arguments` to read."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from typing import Any

_ENDS = r"[^\s\x00-\x1f:,{}\[\]()\x22<>]"
_INSIDE = r"[^\x00-\x1f:,{}\[\]()\x22<>]"
_FREE_KEY = f"{_ENDS}({_INSIDE}{{0,62}}{_ENDS})?"
"""Names that the reader takes as they stand; others are put between quote tokens."""

_PLAIN_KEY = re.compile(_FREE_KEY)

_COMMA = ' "," '

ANY_TEXT = "/(?s:.*)/"
INTEGER = "/-?(0|[1-9][0-9]{0,17})/"
NUMBER = r"/-?(0|[1-9][0-9]{0,17})(\.[0-9]{1,17})?([eE][+-]?[0-9]{1,2})?/"
"""Small models write digits without end where they may, so there are as many as 64 bits need."""


def literal(text: str) -> str:
    """A Lark string."""
    return json.dumps(text)


def in_order(names: Iterable[str]) -> list[str]:
    """Members as Gemma's template prints them (Jinja's `dictsort`), so that the model writes them so."""
    return sorted(names, key=str.lower)


class Rules:
    """Collects rules and terminals, each once.

    Attributes:
        lines: the grammar's text, without `start`.
    """

    def __init__(self, quote: int) -> None:
        """Args: quote: id of the token around strings."""
        self.lines: list[str] = []
        self._quote = f"<[{quote}]>"
        self._names: dict[tuple[str, str], str] = {}
        self._reserved = 0

    def rule(self, expression: str) -> str:
        """The name of a rule."""
        return self._name("r", expression)

    def terminal(self, expression: str) -> str:
        """The name of a terminal."""
        return self._name("T", expression)

    def _name(self, kind: str, expression: str) -> str:
        key = (kind, expression)
        if key not in self._names:
            self._names[key] = name = f"{kind}{len(self._names)}"
            self.lines.append(f"{name}: {expression}")
        return self._names[key]

    def reserve(self) -> str:
        """A name for a rule that is defined later, since it refers to itself."""
        self._reserved += 1
        return f"d{self._reserved}"

    def define(self, name: str, expression: str) -> None:
        """Give a reserved name its rule."""
        self.lines.append(f"{name}: {expression}")

    def string(self, text: str) -> str:
        """A string whose text the terminal expression `text` matches."""
        return f"{self._quote} {self.terminal(text)} {self._quote}"

    def key(self, name: str) -> str:
        """The name of a member, with its colon."""
        if _PLAIN_KEY.fullmatch(name):
            return literal(f"{name}:")
        return f'{self._quoted(name)} ":"'

    def free_key(self, taken: Iterable[str]) -> str:
        """Any name but those that are taken, with its colon."""
        others = " | ".join(map(literal, taken))
        name = self.terminal(f"/{_FREE_KEY}/ & ~({others})" if others else f"/{_FREE_KEY}/")
        return f'{name} ":"'

    def value(self, value: Any) -> str:
        """One JSON value."""
        if isinstance(value, str):
            return self._quoted(value)
        if isinstance(value, Mapping):
            members = (f"{self.key(name)} {self.value(value[name])}" for name in in_order(value))
            return f'"{{" {_COMMA.join(members)} "}}"'
        if isinstance(value, list):
            return f'"[" {_COMMA.join(map(self.value, value))} "]"'
        return literal(json.dumps(value))

    def _quoted(self, text: str) -> str:
        return f"{self._quote} {literal(text) if text else ''} {self._quote}"

    def any(self) -> str:
        """Any value."""
        name = self._names.get(("any", ""))
        if name is None:
            self._names["any", ""] = name = self.reserve()
            constants = '"true" | "false" | "null"'
            array = f'"[" ({name} ("," {name})*)? "]"'
            scalars = f"{self.string(ANY_TEXT)} | {self.terminal(NUMBER)} | {constants}"
            self.define(name, f"{scalars} | {array} | {self.any_object()}")
        return name

    def any_object(self) -> str:
        """Any object."""
        pair = f"{self.free_key(())} {self.any()}"
        return self.rule(f'"{{" ({pair} ("," {pair})*)? "}}"')
