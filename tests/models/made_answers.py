"""Random answers in Gemma 4's notation, odd in the ways that models are, with what they say.

The writer knows nothing of the parser: it goes from arguments to tokens, after D3 of spec/gemma4.md.
"""

from __future__ import annotations

import json
import random
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from onechip.models.tokenizer import Tokenizer
from tests.models import made_tools

CALL, CALL_END, QUOTE = "<|tool_call>", "<tool_call|>", '<|"|>'
THOUGHT, THOUGHT_END = "<|channel>", "<channel|>"

ODDITIES = (
    "a call without its word",
    "round brackets",
    "no end of a call",
    "no closing brackets",
    "quoted keys",
    "blanks",
    "surplus commas",
    "missing commas",
    "bare strings",
    "quoted scalars",
    "Python's constants",
    "a call from the thoughts",
    "a stray end of the thoughts",
    "empty thoughts behind",
    "two thoughts",
    "thoughts without a name",
    "blanks between calls",
    "text behind calls",
)
"""Deviations from the notation that have a plain meaning; all but the last two are D3's or akin."""


class Marker(str):
    """A special token, as opposed to a text that spells one."""


Call = tuple[str, dict[str, Any]]
"""Name and arguments."""

ENDS = (Marker("<turn|>"), Marker("<|tool_response>"), Marker("<eos>"))


@dataclass
class Answer:
    """An answer and what it says.

    Attributes:
        tools: which the model was given.
        opened: the prompt has opened the thoughts already.
        odd: the deviations in it.
        pieces: texts and markers in their order, without the token that ends the answer.
        end: that token.
        text, thoughts, calls: what it says; several thoughts are read as one.
    """

    tools: list[Any]
    opened: bool
    odd: frozenset[str]
    end: Marker
    pieces: list[str] = field(default_factory=list)
    text: str = ""
    thoughts: list[str] = field(default_factory=list)
    calls: list[Call] = field(default_factory=list)

    def write_call(self, rng: random.Random, function: Mapping[str, Any], arguments: dict[str, Any]) -> None:
        """A call of `function` as far as the bracket that closes its arguments."""
        opener, closer = "()" if "round brackets" in self.odd else "{}"
        word = rng.choice(["", ":", " : "]) if "a call without its word" in self.odd else "call:"
        word += rng.choice(["", " "]) if "blanks" in self.odd else ""
        root = function.get("parameters", {})
        self.write(Marker(CALL), f"{word}{function['name']}{opener}")
        _Arguments(rng, self, root).members(arguments, [root])
        self.write(closer)

    def write(self, *pieces: str) -> None:
        for piece in pieces:
            last = self.pieces[-1] if self.pieces else Marker()
            if isinstance(piece, Marker) or isinstance(last, Marker):
                self.pieces.append(piece)
            else:
                self.pieces[-1] = last + piece

    def spelled(self) -> str:
        return "".join(self.pieces)


def as_templates_write(thoughts: str, calls: Sequence[Call]) -> str:
    """Thoughts and calls in a history: members of objects are sorted there, whatever their case."""
    made = Answer([], False, frozenset(), ENDS[0])
    if thoughts:
        made.write(Marker(THOUGHT), f"thought\n{thoughts}\n", Marker(THOUGHT_END))
    for name, arguments in calls:
        made.write_call(random.Random(), {"name": name}, _sorted(arguments))
        made.write(Marker(CALL_END))
    return made.spelled()


def _sorted(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _sorted(value[key]) for key in sorted(value, key=str.lower)}
    return [_sorted(element) for element in value] if isinstance(value, list) else value


def answer(rng: random.Random) -> Answer:
    """Every second one is written as the notation has it, the others have one to three oddities."""
    odd = frozenset(rng.sample(ODDITIES, rng.choice([0, 0, 0, 1, 2, 3])))
    made = Answer(made_tools.tools(rng), rng.random() < 0.2, odd, rng.choice(ENDS))
    _write_thoughts(rng, made)
    if rng.random() < 0.4 and not (odd & {"a call from the thoughts"} and made.thoughts):
        made.text = made_tools.text(rng)
        made.write(made.text)
    count = rng.choice([0, 1, 1, 1, 2, 3])
    for index in range(count):
        _write_call(rng, made, last=index == count - 1)
    if "text behind calls" in odd and count:
        said = made_tools.text(rng).strip()
        # Behind an open bracket what is meant for text would be more arguments.
        if said and not odd & {"no end of a call", "no closing brackets"}:
            made.write(said)
            made.text += said
    if "empty thoughts behind" in odd:
        for _ in range(rng.randint(1, 2)):
            made.write(Marker(THOUGHT), rng.choice(["thought\n", "thought\n\n", ""]), Marker(THOUGHT_END))
    return made


def _write_thoughts(rng: random.Random, made: Answer) -> None:
    count = 2 if "two thoughts" in made.odd else int(rng.random() < 0.4)
    if made.opened:
        count = max(1, count)
    for index in range(count):
        thought = made_tools.text(rng).rstrip("\n")
        nameless = "thoughts without a name" in made.odd and not "thought\n".startswith(thought[:8])
        if index or not made.opened:
            made.write(Marker(THOUGHT), "" if nameless else "thought\n")
        made.thoughts.append(thought)
        made.write(thought, rng.choice(["\n", "\n", ""]) if made.odd else "\n")
        if index < count - 1 or "a call from the thoughts" not in made.odd:
            made.write(Marker(THOUGHT_END))
            if "a stray end of the thoughts" in made.odd:
                made.write(Marker(THOUGHT_END))


def _write_call(rng: random.Random, made: Answer, last: bool) -> None:
    function = rng.choice(made.tools)["function"]
    arguments = made_tools.arguments(rng, function)
    made.calls.append((function["name"], arguments))
    made.write_call(rng, function, arguments)
    if "no closing brackets" in made.odd and not isinstance(made.pieces[-1], Marker):
        made.pieces[-1] = _less_closed(rng, made.pieces[-1])
    if "no end of a call" not in made.odd:
        made.write(Marker(CALL_END))
    if "blanks between calls" in made.odd and not (last and "no end of a call" in made.odd):
        made.write(rng.choice(["\n", " ", "\n\n"]))


def _less_closed(rng: random.Random, text: str) -> str:
    """`text` without some of the brackets that it ends with."""
    closing = re.search(r"[\]})\s]*$", text)
    assert closing is not None
    return text[: rng.randint(closing.start(), len(text) - 1)]


class _Arguments:
    """Writes the arguments of one call, value by value."""

    def __init__(self, rng: random.Random, made: Answer, root: Mapping[str, Any]) -> None:
        self._rng, self._made, self._root = rng, made, root

    def members(self, arguments: Mapping[str, Any], nodes: Sequence[Any]) -> None:
        """`key:value,key:value`, without the brackets around."""
        for index, (key, value) in enumerate(arguments.items()):
            self._between(index)
            if self._odd("quoted keys"):
                self._made.write(Marker(QUOTE), key, Marker(QUOTE))
            else:
                self._made.write(key)
            self._blank()
            self._made.write(":")
            self._blank()
            self._value(value, _property(nodes, key, self._root), in_array=False)
            self._blank()
        self._last_comma(bool(arguments))

    def _elements(self, values: Sequence[Any], nodes: Sequence[Any]) -> None:
        for index, value in enumerate(values):
            self._between(index)
            self._value(value, _items(nodes, self._root), in_array=True)
            self._blank()
        self._last_comma(bool(values))

    def _value(self, value: Any, nodes: Sequence[Any], in_array: bool) -> None:
        write, types = self._made.write, _types(nodes)
        if isinstance(value, str):
            if self._odd("bare strings") and _can_be_bare(value, types, in_array):
                write(value)
            else:
                write(Marker(QUOTE), value, Marker(QUOTE))
        elif isinstance(value, dict):
            write("{")
            self._blank()
            self.members(value, nodes)
            write("}")
        elif isinstance(value, list):
            write("[")
            self._blank()
            self._elements(value, nodes)
            write("]")
        else:
            self._scalar(value, types)

    def _scalar(self, value: Any, types: set[str]) -> None:
        name = (
            {None: "null", True: "boolean", False: "boolean"}.get(value) if _is_constant(value) else "number"
        )
        spelled = json.dumps(value)
        wanted = {"number", "integer"} & types if name == "number" else {name} & types
        if self._odd("quoted scalars") and wanted and "string" not in types:
            self._made.write(Marker(QUOTE), spelled, Marker(QUOTE))
        elif self._odd("Python's constants") and _is_constant(value):
            self._made.write(str(value))
        else:
            self._made.write(spelled)

    def _between(self, index: int) -> None:
        if index:
            could_go = self._made.pieces[-1:] == [QUOTE] or self._made.pieces[-1][-1:] in ("}", "]")
            if not (self._odd("missing commas") and could_go):
                self._made.write(",,"[: 1 + self._odd("surplus commas")])
        self._blank()

    def _last_comma(self, any_member: bool) -> None:
        if any_member and self._odd("surplus commas"):
            self._made.write(",")
            self._blank()

    def _blank(self) -> None:
        if self._odd("blanks"):
            self._made.write(self._rng.choice(["", " ", "\n", " \t", "\n  "]))

    def _odd(self, name: str) -> bool:
        return name in self._made.odd and self._rng.random() < 0.7


def _is_constant(value: Any) -> bool:
    return value is None or isinstance(value, bool)


def _can_be_bare(text: str, types: set[str], in_array: bool) -> bool:
    """Whether `text` without quotes can be told from anything else, where the schema wants a string."""
    first = r"[^\W_]" if types == {"string"} else r"[^\W\d_]"  # else it could be a number
    plain = re.fullmatch(first + r"[^:{}\[\]()\"]*", text) is not None and text == text.strip()
    comma = "," in text and (in_array or re.search(r",\s*(,|$)", text) is not None)
    constant = text in ("null", "None") or (text.lower() in ("true", "false") and "boolean" in types)
    return plain and not comma and not constant and "string" in types


def _spread(nodes: Sequence[Any], root: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The nodes and all that stand for them: targets of references, alternatives."""
    found = []
    for node in nodes:
        if isinstance(node, dict):
            inner = [*node.get("anyOf", ()), *node.get("oneOf", ())]
            inner += [root["$defs"]["D"]] if "$ref" in node else []
            found += [node, *_spread(inner, root)]
    return found


def _property(nodes: Sequence[Any], key: str, root: Mapping[str, Any]) -> list[dict[str, Any]]:
    own = [node["properties"][key] for node in nodes if key in node.get("properties", {})]
    others = [node["additionalProperties"] for node in nodes if "additionalProperties" in node]
    return _spread(own or others, root)


def _items(nodes: Sequence[Any], root: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Of several arrays, one may hold anything."""
    open_ = {} in nodes or any(node.get("type") == "array" and "items" not in node for node in nodes)
    return [] if open_ else _spread([node["items"] for node in nodes if "items" in node], root)


def _types(nodes: Sequence[Any]) -> set[str]:
    """Names of the JSON types that `nodes` allow; one that says nothing allows all."""
    found = set(made_tools.SCALARS) if {} in nodes else set()
    for node in nodes:
        said = node.get("type")
        if said is None and "enum" in node:
            said = ["string", "integer", "boolean"]
        found |= {said.lower()} if isinstance(said, str) else set(said or ())
    return found


def ids_of(pieces: Sequence[str], tokenizer: Tokenizer, rng: random.Random) -> list[int]:
    """Token ids of an answer: markers are ids of their own, texts are cut into tokens in random ways."""
    ids: list[int] = []
    for piece in pieces:
        if isinstance(piece, Marker):
            id = tokenizer.token_id(piece)
            assert id is not None, piece
            ids.append(id)
        else:
            ids += text_ids(piece, tokenizer, rng)
    return ids


def text_ids(text: str, tokenizer: Tokenizer, rng: random.Random) -> list[int]:
    """Ordinary tokens that spell `text`: as it would be encoded, cut anywhere, or byte by byte in places."""
    way = rng.randrange(4)
    whole = _ordinary(text, tokenizer) if way < 2 else None
    if whole is not None:
        return whole
    ids: list[int] = []
    position = 0
    while position < len(text):
        length = rng.choice([1, 1, 2, 3, 6])
        part = text[position : position + length]
        found = None if way == 3 and rng.random() < 0.3 else _ordinary(part, tokenizer)
        if found is None:
            part = part[0]
            found = _bytes(part, tokenizer) or tokenizer.encode(part)
        ids += found
        position += len(part)
    return ids


def _ordinary(text: str, tokenizer: Tokenizer) -> list[int] | None:
    """The encoding of `text`, unless it has a special token for something that is spelt in it."""
    ids = tokenizer.encode(text)
    return ids if tokenizer.special_ids.isdisjoint(ids) and tokenizer.decode(ids) == text else None


def _bytes(text: str, tokenizer: Tokenizer) -> list[int]:
    """Tokens that stand for the bytes of `text`; none in a vocabulary whose tokens are all bytes."""
    found = [tokenizer.token_id(f"<0x{byte:02X}>") for byte in text.encode()]
    return [id for id in found if id is not None]


def windows(ids: Sequence[int], rng: random.Random) -> list[Sequence[int]]:
    """`ids` as they come from an engine whose drafter has up to 7 of them accepted: 1 to 8 a step."""
    found, start = [], 0
    while start < len(ids):
        end = start + rng.randint(1, 8)
        found.append(ids[start:end])
        start = end
    return found
