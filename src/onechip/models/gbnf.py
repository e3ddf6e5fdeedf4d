"""GBNF, llama.cpp's notation of grammars -> llguidance's dialect of Lark.

What refers to no rule that contains itself is one terminal, an automaton. So a grammar without recursion
allows exactly what llama.cpp has it allow. In one with recursion a terminal takes as many characters as it
can: `[a-z]* "z"` is a terminal, and ends at a "z"; but a rule that contains itself cannot ask for "z" behind
a terminal `[a-z]*`.

Source of the syntax: grammars/README.md of llama.cpp.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass, field

_RULE = re.compile(r"(?m)^\s*[A-Za-z0-9_-]+\s*::=")
_NAME = re.compile(r"[A-Za-z0-9_-]+")
_BLANKS = re.compile(r"(?:[ \t]|#[^\r\n]*)*")
_LINES = re.compile(r"(?:\s|#[^\r\n]*)*")
_COUNTS = re.compile(r"\{\s*([0-9]+)\s*(?:(,)\s*([0-9]*)\s*)?\}")
_HEX = re.compile(r"x[0-9A-Fa-f]{2}|u[0-9A-Fa-f]{4}|U[0-9A-Fa-f]{8}")
_ESCAPES = {"n": "\n", "r": "\r", "t": "\t", **dict.fromkeys('"\\[]-', "")}
_MAX_DEPTH = 100
_MAX_COUNT = 10_000


def is_gbnf(text: str) -> bool:
    """Whether `text` has a rule of GBNF."""
    return _RULE.search(text) is not None


def gbnf_to_lark(text: str) -> str:
    """The same grammar in Lark, with the rule `start` for `root`.

    Raises:
        ValueError: `text` is no GBNF; line and column are said.
    """
    parser = _Parser(text)
    while parser.at < len(text):
        parser.rule()
    return _written(parser)


@dataclass
class _Rule:
    """The alternatives of a rule or a group: what each is in Lark, references as indices of rules."""

    alternatives: list[list[str | tuple[int, str]]] = field(default_factory=list)


class _Parser:
    """Reads the text from `at` on.

    Attributes:
        rules: those that are named and those of groups; an alternative has texts of Lark, and references:
            the index of a rule, and what says how often.
    """

    def __init__(self, text: str) -> None:
        self._text = text
        self.rules: list[_Rule] = []
        self.names: dict[str, int] = {}
        self._asked: dict[str, int] = {}
        self._defined: set[str] = set()
        self.at = 0
        self._skip(_LINES)

    def rule(self) -> None:
        """One rule, and the lines behind it."""
        name = self._name("a rule, such as root ::= ...")
        if name in self._defined:
            raise self._error(f"the rule {name} is defined twice", self.at - len(name))
        self._defined.add(name)
        self._skip(_BLANKS)
        if not self._text.startswith("::=", self.at):
            raise self._error("expected ::=")
        self.at += 3
        self._skip(_LINES)
        self.rules[self._index(name)] = self._alternatives(0)
        end = self.at
        self._skip(_LINES)
        if self.at < len(self._text) and not re.search("[\r\n]", self._text[end : self.at]):
            raise self._error("expected a line's end", end)

    def check_names(self) -> None:
        """Raises ValueError if there is no rule for a name."""
        for name, at in self._asked.items():
            if name not in self._defined:
                raise self._error(f"there is no rule {name}", at)
        if "root" not in self._defined:
            raise self._error("there is no rule root, which is where an answer begins", 0)

    def _index(self, name: str) -> int:
        if name not in self.names:
            self.names[name] = self._new()
        return self.names[name]

    def _new(self) -> int:
        self.rules.append(_Rule())
        return len(self.rules) - 1

    def _alternatives(self, depth: int) -> _Rule:
        """What is between bars, up to a bracket or, outside of groups, a line's end."""
        rule, blanks = _Rule(), _LINES if depth else _BLANKS
        while True:
            items: list[str | tuple[int, str]] = []
            while self.at < len(self._text) and self._text[self.at] not in "|)\r\n":
                items += self._item(depth)
                self._skip(blanks)
            rule.alternatives.append(items)
            end = self.at
            self._skip(_LINES)  # a bar may stand on the next line
            if self._text[self.at : self.at + 1] != "|":
                self.at = end
                return rule
            self.at += 1
            self._skip(_LINES)

    def _item(self, depth: int) -> list[str | tuple[int, str]]:
        """One element with what says how often it comes; nothing if never."""
        character, began = self._text[self.at], self.at
        if character == "(":
            index = self._group(depth + 1)
        elif character in '"[.':
            text = {'"': self._literal, "[": self._class, ".": self._any}[character]()
            index = self._new()
            self.rules[index].alternatives.append([text])
        elif _NAME.match(character):
            name = self._name("a rule")
            self._asked.setdefault(name, began)
            index = self._index(name)
        else:
            raise self._error(f"expected a text, a class, a group or a rule, not {character!r}")
        return self._repeated(index, _LINES if depth else _BLANKS)

    def _group(self, depth: int) -> int:
        if depth > _MAX_DEPTH:
            raise self._error(f"groups are nested more than {_MAX_DEPTH} deep")
        began = self.at
        self.at += 1
        self._skip(_LINES)
        rule = self._alternatives(depth)
        self._skip(_LINES)
        if self._text[self.at : self.at + 1] != ")":
            raise self._error("this group is not closed", began)
        self.at += 1
        self.rules.append(rule)
        return len(self.rules) - 1

    def _repeated(self, index: int, blanks: re.Pattern[str]) -> list[str | tuple[int, str]]:
        """An element with the signs behind it, each of which repeats what stands before it."""
        often = ""
        while True:
            end = self.at
            self._skip(blanks)
            sign = self._text[self.at : self.at + 1]
            if not sign or sign not in "*+?{":
                self.at = end
                return [(index, often)]
            if often:
                index = self._wrapped(index, often)
            often = self._counts() if sign == "{" else sign
            self.at += sign != "{"
            if often == "{0,0}":
                return [""]

    def _wrapped(self, index: int, often: str) -> int:
        self.rules.append(_Rule([[(index, often)]]))
        return len(self.rules) - 1

    def _counts(self) -> str:
        found = _COUNTS.match(self._text, self.at)
        if found is None:
            raise self._error("expected how often, such as {2}, {2,} or {2,5}")
        least = found[1]
        most = (found[3] or None) if found[2] else least
        if max(int(least), int(most or 0)) > _MAX_COUNT:
            raise self._error(f"more than {_MAX_COUNT} repetitions")
        if most is not None and int(most) < int(least):
            raise self._error("the most is less than the least")
        self.at = found.end()
        return f"{{{int(least)},{'' if most is None else int(most)}}}"

    def _literal(self) -> str:
        text, began = "", self.at
        self.at += 1
        while not self._text.startswith('"', self.at):
            text += self._character(began, "this text is not closed")
        self.at += 1
        return json.dumps(text)

    def _class(self) -> str:
        began = self.at
        self.at += 1
        negated = self._text.startswith("^", self.at)
        self.at += negated
        ranges = ""
        while not self._text.startswith("]", self.at):
            first = last = self._character(began, "this class is not closed")
            if self._text.startswith("-", self.at) and not self._text.startswith("-]", self.at):
                self.at += 1
                last = self._character(began, "this class is not closed")
                if last < first:
                    raise self._error(f"the range from {first!r} to {last!r} is empty", began)
            ranges += f"\\u{{{ord(first):X}}}" + (f"-\\u{{{ord(last):X}}}" if last != first else "")
        if not ranges:
            raise self._error("this class is empty", began)
        self.at += 1
        return f"/[{'^' if negated else ''}{ranges}]/"

    def _any(self) -> str:
        self.at += 1
        return "/(?s:.)/"

    def _character(self, began: int, unclosed: str) -> str:
        """One character, which may be escaped."""
        character = self._text[self.at : self.at + 1]
        if character in ("", "\n", "\r"):
            raise self._error(unclosed, began)
        self.at += 1
        if character != "\\":
            return character
        code = _HEX.match(self._text, self.at)
        if code is None:
            character = self._text[self.at : self.at + 1]
            if character not in _ESCAPES or not character:
                raise self._error(f"\\{character} is no escape", self.at - 1)
            self.at += 1
            return _ESCAPES[character] or character
        value = int(code[0][1:], 16)
        if value > 0x10FFFF or 0xD800 <= value < 0xE000:
            raise self._error(f"\\{code[0]} is no character", self.at - 1)
        self.at = code.end()
        return chr(value)

    def _name(self, expected: str) -> str:
        found = _NAME.match(self._text, self.at)
        if found is None:
            raise self._error(f"expected {expected}")
        self.at = found.end()
        return found[0]

    def _skip(self, blanks: re.Pattern[str]) -> None:
        found = blanks.match(self._text, self.at)
        self.at = found.end() if found else self.at

    def _error(self, reason: str, at: int | None = None) -> ValueError:
        at = self.at if at is None else at
        line = self._text.count("\n", 0, at) + 1
        column = at - self._text.rfind("\n", 0, at)
        return ValueError(f"at {line}({column}): {reason}")


def _written(parser: _Parser) -> str:
    parser.check_names()
    rules, root = parser.rules, parser.names["root"]
    recursive = _recursive(rules)
    names = [f"r{index}" if index in recursive else f"T{index}" for index in range(len(rules))]
    lines = [f"start: {names[root]}"]
    for name, rule in zip(names, rules, strict=True):
        alternatives = (
            " ".join(item if isinstance(item, str) else f"{names[item[0]]}{item[1]}" for item in items)
            for items in rule.alternatives
        )
        lines.append(f"{name}: {' | '.join(alternative.strip() or _NOTHING for alternative in alternatives)}")
    return "\n".join(lines)


_NOTHING = '""'


def _recursive(rules: list[_Rule]) -> set[int]:
    """The rules that contain themselves, and those that contain such."""
    containing: list[list[int]] = [[] for _ in rules]
    waiting = [0] * len(rules)
    for index, rule in enumerate(rules):
        for inner in _references(rule):
            containing[inner].append(index)
            waiting[index] += 1
    done = [index for index, count in enumerate(waiting) if not count]
    for index in done:
        for outer in containing[index]:
            waiting[outer] -= 1
            if not waiting[outer]:
                done.append(outer)
    return set(range(len(rules))) - set(done)


def _references(rule: _Rule) -> Iterator[int]:
    return (item[0] for items in rule.alternatives for item in items if not isinstance(item, str))
