"""Random tools, and arguments that fit their schemas: numbers, nesting, texts of every unpleasant kind."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

Schema = dict[str, Any]

MARKERS = (
    "<|tool_call>",
    "<tool_call|>",
    '<|"|>',
    "<|channel>",
    "<channel|>",
    "<|turn>",
    "<turn|>",
    "</tool_call>",
)
WORDS = (
    "Paris",
    "New York",
    "it's",
    "null",
    "true",
    "12",
    "-3.5",
    "naïve",
    "漢字",
    "🌰",
    "x_y",
    "a: b",
    "a, b",
)
SNIPPETS = (
    '<div class="a">\n\t<p>It\'s 5 > 3 & 2</p>\n</div>',
    'def f(x):\n    return {"a": [x, "b\\n"]}\n\n\n',
    '{"a": [1, {"b": null}], "c": "d"}',
    "call:f{a:1,b:[2]}",
    "C:\\Users\\x\\\\y",
    "SELECT * FROM t WHERE a = '{x}';",
    "e\u0301 \U0001f468\u200d\U0001f469\u200d\U0001f467 \u05e9\u05dc\u05d5\u05dd \u2028\u2029\ufeff",
    "\x00\x01\x1b[0m\x7f\x85\r\n",
)
ALPHABET = "abc XYZ012.,:;{}[]()\"\\/'\n\t<>|=_-ü漢🌰\u0301"
KEY_START = "abcdefgh_XYZ$@012äß漢"
KEY_MIDDLE = KEY_START + "-.'/ \"<>|"
SCALARS = ("string", "integer", "number", "boolean", "null")
MAX_DEPTH = 3


def tools(rng: random.Random) -> list[Any]:
    """One to three tools, in OpenAI's form."""
    names = {_name(rng) for _ in range(rng.randint(1, 3))}
    return [{"type": "function", "function": _function(rng, name)} for name in sorted(names)]


def _function(rng: random.Random, name: str) -> dict[str, Any]:
    if rng.random() < 0.05:
        return {"name": name, "description": "Takes what it gets."}
    parameters = _object(rng, 0) | {"type": "object"}
    if rng.random() < 0.3:
        parameters["$defs"] = {"D": _object(rng, 1)}
        parameters["properties"]["ref"] = {"$ref": "#/$defs/D"}
    return {"name": name, "description": text(rng), "parameters": parameters}


def _name(rng: random.Random) -> str:
    return rng.choice("abf") + "".join(rng.choice("abcXYZ_-.09") for _ in range(rng.randint(0, 12)))


def _node(rng: random.Random, depth: int) -> Schema:
    """A schema of any kind; what is nested deep is a scalar."""
    kinds: list[Callable[[random.Random, int], Schema]] = [_scalar, _scalar, _union, _enum]
    if depth < MAX_DEPTH:
        kinds += [_object, _array, _alternatives, lambda _rng, _depth: {}]
    return rng.choice(kinds)(rng, depth)


def _scalar(rng: random.Random, _: int) -> Schema:
    kind = rng.choice(SCALARS)
    return {"type": kind.upper() if rng.random() < 0.1 else kind, "description": "It is."}


def _union(rng: random.Random, _: int) -> Schema:
    return {"type": rng.sample(SCALARS, 2)}


def _enum(rng: random.Random, _: int) -> Schema:
    if rng.random() < 0.5:
        return {"type": "string", "enum": rng.sample(WORDS, 3)}
    return {"enum": [rng.choice(WORDS), rng.randint(-9, 9), True]}


def _array(rng: random.Random, depth: int) -> Schema:
    items = {"items": _node(rng, depth + 1)} if rng.random() < 0.8 else {}
    return {"type": "array", **items}


def _object(rng: random.Random, depth: int) -> Schema:
    count = rng.randint(0, 4)
    node: Schema = {"properties": {_key(rng): _node(rng, depth + 1) for _ in range(count)}}
    if rng.random() < 0.8:
        node["type"] = "object"
    if rng.random() < 0.2:
        node["additionalProperties"] = rng.choice([True, _node(rng, depth + 1)])
    return node


def _alternatives(rng: random.Random, depth: int) -> Schema:
    """Of objects too, which may have members of the same name and different kinds.

    What one of two objects says of members without a name is left out: nobody could tell which is meant.
    """
    nodes = [_node(rng, depth + 1) for _ in range(2)]
    if rng.random() < 0.5:
        key = _key(rng)
        nodes = [{"type": "object", "properties": {key: _scalar(rng, 0)}} for _ in range(2)]
    for node in nodes:
        node.pop("additionalProperties", None)
    return {rng.choice(["anyOf", "oneOf"]): nodes}


def arguments(rng: random.Random, function: dict[str, Any]) -> dict[str, Any]:
    """What fits `function`, often with some members left out, at times with some that it does not know."""
    root = function.get("parameters", {})
    found: dict[str, Any] = _members(rng, root, root, 0)
    return found


def _members(rng: random.Random, node: Schema, root: Schema, depth: int) -> dict[str, Any]:
    known = {name: inner for name, inner in node.get("properties", {}).items() if rng.random() < 0.8}
    more = node.get("additionalProperties", {})
    while rng.random() < 0.2:
        known[f"+{_key(rng)}"] = more if isinstance(more, dict) else {}  # no schema knows such a name
    items = [(name, value(rng, inner, root, depth + 1)) for name, inner in known.items()]
    rng.shuffle(items)
    return dict(items)


def value(rng: random.Random, node: Schema, root: Schema, depth: int) -> Any:
    """What fits `node`, a part of the schema `root`."""
    if "$ref" in node:
        return _members(rng, root["$defs"]["D"], root, depth)
    if "enum" in node:
        return rng.choice(node["enum"])
    for keyword in ("anyOf", "oneOf"):
        if keyword in node:
            return value(rng, rng.choice(node[keyword]), root, depth)
    said = node.get("type", "object" if "properties" in node else None)
    kind = rng.choice(said) if isinstance(said, list) else said
    if kind is None:
        return _anything(rng, depth)
    if kind == "array":
        return [value(rng, node.get("items", {}), root, depth + 1) for _ in range(rng.randint(0, 3))]
    return _members(rng, node, root, depth) if kind == "object" else _of_type(rng, kind.lower())


def _anything(rng: random.Random, depth: int) -> Any:
    kind = rng.randrange(7 if depth < MAX_DEPTH else 5)
    if kind == 5:
        return [_anything(rng, depth + 1) for _ in range(rng.randint(0, 3))]
    if kind == 6:
        return {_key(rng): _anything(rng, depth + 1) for _ in range(rng.randint(0, 3))}
    return _of_type(rng, SCALARS[kind])


def _of_type(rng: random.Random, kind: str) -> Any:
    if kind == "string":
        return text(rng)
    if kind == "boolean":
        return rng.random() < 0.5
    if kind == "null":
        return None
    whole = rng.choice([0, rng.randint(-99, 99), rng.randint(-(10**25), 10**25)])
    fraction = rng.choice([rng.uniform(-9, 9), rng.gauss(0, 1) * 10 ** rng.randint(-20, 20), -0.0])
    return whole if kind == "integer" or rng.random() < 0.3 else fraction


def text(rng: random.Random) -> str:
    """A text that may have anything in it, markers spelt out too; now and then a long one."""
    kind = rng.randrange(6)
    if kind == 0:
        return rng.choice(WORDS)
    if kind == 1:
        return "".join(rng.choice((*MARKERS, *SNIPPETS, *WORDS)) for _ in range(rng.randint(1, 3)))
    length = rng.randint(200, 600) if rng.random() < 0.03 else rng.randint(0, 16)
    return "".join(rng.choice(ALPHABET) for _ in range(length))


def _key(rng: random.Random) -> str:
    """A name as Gemma 4's notation can spell it without quotes."""
    middle = "".join(rng.choice(KEY_MIDDLE) for _ in range(rng.choice([0, 1, 3, 8])))
    return f"{rng.choice(KEY_START)}{middle}{rng.choice(KEY_START)}" if middle else rng.choice(KEY_START)
