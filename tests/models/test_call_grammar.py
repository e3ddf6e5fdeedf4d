"""What the schema of a tool can be held to, and what is said of what cannot; the parts that decide it."""

from __future__ import annotations

import random
import re
from copy import deepcopy
from typing import Any

import pytest

from onechip.errors import RequestError
from onechip.models.call_grammar import call_grammar
from onechip.models.schema_merge import Conflict, merged, overlapping
from onechip.models.source import resolve_model
from onechip.models.string_forms import FORMATS, search
from onechip.models.tokenizer import Tokenizer
from onechip.models.tool_schema import Schema, check_schema
from tests.models import made_tools

ACORN = Tokenizer.load(resolve_model("acorn"), [1])
NODE: dict[str, Any] = {"properties": {"next": {"$ref": "#/$defs/Node"}}, "required": ["next"]}


def grammar_of(schema: Any, strict: bool = True, required: bool = True) -> str:
    function = {"name": "f", "parameters": schema, "strict": strict}
    return call_grammar(ACORN, [{"function": function}], required=required, many=True, param="tools")


@pytest.mark.parametrize(
    ("schema", "says"),
    [
        ({"type": "string"}, "parameters allows nothing: its types exclude each other"),
        ({"patternProperties": {"a": {}}}, "parameters.patternProperties cannot be held to"),
        ({"properties": {"a": {"not": {}}}}, "parameters.properties.a.not cannot be held to"),
        ({"properties": {"a": {"if": {}, "then": {}}}}, "parameters.properties.a.if cannot be held to"),
        ({"properties": {"a": {"items": {"uniqueItems": True}}}}, ".a.items.uniqueItems cannot be held to"),
        ({"properties": {"a": {"type": "strin"}}}, ".a.type is 'strin', which is no type of JSON"),
        ({"properties": {"a": {"type": "dict"}}}, ".a.type is 'dict', which is no type of JSON"),
        ({"properties": {"a": {"items": [{}]}}}, ".a.items is a list, as in older drafts"),
        ({"properties": {"a": {"minItems": 2, "maxItems": 1}}}, ".a.minItems is more than there can be"),
        ({"properties": {"a": {"minItems": -1}}}, ".a.minItems is no whole number from 0 on"),
        ({"properties": {"a": {"minItems": float("inf")}}}, ".a.minItems is no whole number from 0 on"),
        ({"properties": {"a": {"oneOf": [{"type": "object", "required": True}] * 2}}}, r"\[1\] may hold"),
        ({"properties": {"a": {"oneOf": [{"properties": {"k": {"type": "object", "properties": None}},
                                          "required": ["k"]}] * 2}}}, r"\[1\] may hold"),
        ({"properties": {"a": {"minLength": 2, "maxLength": 1}}}, ".a.minLength is more than maxLength"),
        ({"properties": {"a": {"pattern": "(?=x)"}}}, ".a.pattern is no regex .*: look-around"),
        ({"properties": {"a": {"pattern": "a("}}}, ".a.pattern is no regex .*: unclosed group"),
        ({"properties": {"a": {"format": "color"}}}, ".a.format is 'color'; known are date, time"),
        ({"properties": {"a": {"minimum": 2, "maximum": 1}}}, ".a cannot be held to: .*minimum .2. is"),
        ({"properties": {"a": {"type": "integer", "enum": ["x"]}}}, ".a allows nothing: no listed value"),
        ({"properties": {"a": {"enum": ["x"], "minLength": 1}}}, ".a.minLength cannot be held to beside"),
        ({"properties": {"a": {"$ref": "#/$defs/X"}}}, r".a.\$ref is #/\$defs/X, which is not there"),
        ({"properties": {"a": {"$ref": "other.json"}}}, r".a.\$ref is no reference into the same schema"),
        ({"properties": {"a": False}, "required": ["a"]}, ".a is required, but nothing may be there"),
        ({"properties": {"a": {"anyOf": [False]}}}, ".a.anyOf allows nothing"),
        ({"properties": {"a": {"oneOf": [{"type": "number"}, {"type": "integer"}]}}}, r"\[1\] may hold"),
        ({"properties": {"a": {"allOf": [{"type": "string"}, {"type": "null"}]}}}, r"\[1\] allows nothing"),
        ({"properties": {"a": {"minProperties": 1}}}, ".a.minProperties cannot be held to"),
        ({"properties": {"a": {"$ref": "#"}}, "required": ["a"]}, "must be inside of itself"),
        ({"$defs": {"Node": NODE}, **NODE}, "must be inside of itself"),
        ({"$defs": {"A": {"$ref": "#/$defs/A"}}, "items": {}, "anyOf": [{"$ref": "#/$defs/A"}]}, "itself"),
    ],
)  # fmt: skip
def test_what_cannot_be_held_to_is_refused_by_its_path(schema: dict[str, Any], says: str) -> None:
    with pytest.raises(RequestError) as refused:
        grammar_of(schema)
    assert re.search(f"^tools: calls of f cannot be held to its schema: .*{says}", refused.value.message)
    assert refused.value.param == "tools"
    grammar_of(schema, strict=False, required=False)  # held to nothing, it may say what it wants


@pytest.mark.parametrize(
    "schema",
    [
        {"title": "T", "properties": {"a": {"default": 1, "examples": [1], "x-note": "n"}}},
        {"properties": {"a": {"uniqueItems": False, "type": "array"}}},
        {"properties": {"a": False}},
        {"properties": {"a": {"type": "string", "maxLength": 10**30}, "b": {"maxItems": 10**30}}},
        {"properties": {"a": {"minimum": 0}, "b": {"exclusiveMaximum": 5}, "c": {"minimum": 10**16}}},
        {"properties": {"a": {"$ref": "#"}}},
        {"properties": {"a": {"anyOf": [{"$ref": "#/$defs/Node"}, {"type": "null"}]}}, "$defs": {
            "Node": {"properties": {"next": {"anyOf": [{"$ref": "#/$defs/Node"}, {"type": "null"}]}},
                     "required": ["next"]}}},
        {"$defs": {"A": {"const": 1}}, "properties": {"a": {"$ref": "#/$defs/A", "nullable": True}}},
        {"properties": {"a": {"oneOf": [
            {"properties": {"kind": {"const": "x"}}, "required": ["kind"]},
            {"properties": {"kind": {"const": "y"}, "b": {}}, "required": ["kind"]}]}}},
        {"properties": {"a": None}, "required": None, "description": None},
        {"type": None, "properties": {"a": {"allOf": [{"type": "string"}, {"type": None}]}}},
        True,
        None,
    ],
)  # fmt: skip
def test_what_says_nothing_or_ends_is_no_reason_to_refuse(schema: Any) -> None:
    assert grammar_of(schema).startswith("start: ")


@pytest.mark.parametrize("target", [5, {"type": 5}, {"properties": {"b": 5}}, {"anyOf": 5}, {"$ref": "#/y"}])
def test_what_a_reference_leads_to_is_checked_too(target: Any) -> None:
    schema = {"properties": {"a": {"items": {"$ref": "#/x"}}, "next": {"$ref": "#"}}, "x": target, "y": 5}
    with pytest.raises(RequestError, match=r"^parameters.properties.a.items.\$ref.* is 5: expected"):
        check_schema(schema, "parameters")


def test_whatever_a_client_sends_is_a_grammar_or_refused_in_one_sentence() -> None:
    junk: list[Any] = [
        True,
        5,
        -1,
        1.5,
        "x",
        "",
        [],
        ["x"],
        [5],
        {},
        [{}],
        {"a": 5},
        [None],
        "#",
        {"$ref": "#"},
    ]
    keywords = ["type", "enum", "const", "anyOf", "oneOf", "allOf", "$ref", "nullable"]
    keywords += ["properties", "required", "additionalProperties", "minProperties", "maxProperties"]
    keywords += ["items", "prefixItems", "minItems", "maxItems", "minLength", "pattern", "format", "minimum"]
    compiled = refused = 0
    for seed in range(400):
        rng = random.Random(seed)
        schema = made_tools.tools(rng)[0]["function"].get("parameters", {})
        for _ in range(rng.randint(1, 3)):
            rng.choice(_nodes(schema))[rng.choice(keywords)] = deepcopy(rng.choice(junk))
        try:
            check_schema(schema, "parameters")
            grammar_of(schema)
            compiled += 1
        except RequestError:
            refused += 1
    assert compiled > 50
    assert refused > 50


def _nodes(node: Any) -> list[dict[str, Any]]:
    if isinstance(node, list):
        return [found for member in node for found in _nodes(member)]
    if isinstance(node, dict):
        return [node, *(found for member in node.values() for found in _nodes(member))]
    return []


PATTERNS = (
    "a",
    "^a",
    "a$",
    "^a$",
    "^a|b$",
    "a|^b",
    "^(a|b)+$",
    r"\d",
    r"^\w{2}$",
    r"[|$]",
    r"\$$",
    "^",
    "$",
    "",
)


@pytest.mark.parametrize("pattern", PATTERNS)
def test_a_pattern_is_found_anywhere_unless_it_is_anchored(pattern: str) -> None:
    found = re.compile(search(pattern).replace("(?s:.*)", r"[\s\S]*"))
    for text in ("", "a", "b", "ab", "ba", "xax", "aa\nb", "5", "$", "a$", "|", "bab5", "é"):
        expected = re.search(pattern, text, re.ASCII) is not None
        assert (found.fullmatch(text) is not None) == expected, (pattern, text)


@pytest.mark.parametrize("pattern", [r"(?=a)b", r"(a)\1", "a(", r"x(^a)", r"\bword"])
def test_a_pattern_that_is_none_says_why(pattern: str) -> None:
    with pytest.raises(ValueError, match=r"^[^\n]+$"):
        search(pattern)


@pytest.mark.parametrize(
    ("name", "good", "bad"),
    [
        ("date", "2026-11-30", "2026-11-31"),
        ("date", "2026-02-28", "2026-2-28"),
        ("time", "23:59:59Z", "24:00:00Z"),
        ("date-time", "2026-01-02T03:04:05.678+09:00", "2026-01-02 03:04:05"),
        ("duration", "P1Y2M3DT4H5M", "P"),
        ("duration", "PT36H", "PT"),
        ("email", "a.b+c@example.org", "a@"),
        ("hostname", "a-b.example", "-a"),
        ("ipv4", "192.168.0.255", "192.168.0.256"),
        ("ipv6", "2001:db8:0:0:0:0:0:1", "2001:db8::g"),
        ("uuid", "123e4567-e89b-12d3-a456-426614174000", "123e4567"),
        ("uri", "https://example.org/a?b=c#d", "no uri"),
    ],
)
def test_formats(name: str, good: str, bad: str) -> None:
    assert re.fullmatch(FORMATS[name], good)
    assert not re.fullmatch(FORMATS[name], bad)


def test_schemas_that_hold_at_once_are_made_one() -> None:
    first = {
        "type": ["number", "string"],
        "minimum": 1,
        "properties": {"a": {"minLength": 1}},
        "required": ["a"],
    }
    second = {
        "type": "integer",
        "minimum": 3,
        "properties": {"a": {"maxLength": 2}, "b": {}},
        "required": ["b"],
    }
    assert merged(first, second) == {
        "type": ["integer"],
        "minimum": 3,
        "properties": {"a": {"allOf": [{"minLength": 1}, {"maxLength": 2}]}, "b": {}},
        "required": ["a", "b"],
    }
    assert merged({"enum": [1, True, "a"]}, {"enum": [True, "a", 0]})["enum"] == [True, "a"]
    for one, other in (
        ({"type": "string"}, {"type": "integer"}),
        ({"pattern": "a"}, {"pattern": "b"}),
        ({"additionalProperties": False}, {"properties": {"a": {}}}),
    ):
        with pytest.raises(Conflict):
            merged(one, other)


@pytest.mark.parametrize(
    ("first", "second", "apart"),
    [
        ({"type": "string"}, {"type": "null"}, True),
        ({"type": "number"}, {"type": "integer"}, False),
        ({"enum": [1, "a"]}, {"const": "b"}, True),
        ({"enum": [1]}, {"enum": [True]}, True),
        ({"enum": [1, 2]}, {"const": 2}, False),
        ({"properties": {"a": {}}, "required": ["a"]}, {"properties": {"b": {}}, "required": ["b"]}, True),
        ({"properties": {"a": {}}, "required": ["a"]}, {"properties": {"a": {}, "b": {}}}, False),
        ({"properties": {"k": {"const": "x"}}, "required": ["k"]},
         {"properties": {"k": {"const": "y"}}, "required": ["k"]}, True),
        ({"properties": {"k": {"const": 1}}, "required": ["k"]}, {"properties": {"k": {"const": 2}}}, False),
        ({}, {"type": "string"}, False),
    ],
)  # fmt: skip
def test_alternatives_exclude_each_other(first: dict[str, Any], second: dict[str, Any], apart: bool) -> None:
    assert (overlapping({"x": first, "y": second}) is None) is apart
    assert (overlapping({"x": second, "y": first}) is None) is apart


def test_alternatives_that_overlap_are_found_among_many() -> None:
    def kind(*values: Any) -> dict[str, Any]:
        return {"type": "object", "properties": {"k": {"enum": list(values)}}, "required": ["k"]}

    many: dict[str, Any] = {f"{n}": kind(n, f"v{n}") for n in range(60)}
    assert overlapping(many) is None
    assert overlapping(many | {"null": {"type": "null"}, "text": {"const": "x"}}) is None
    assert overlapping(many | {"again": kind(60, "v7")}) == ("7", "again")
    assert overlapping(many | {"any": {"type": "object"}}) in {("0", "any"), ("any", "0")}
    with pytest.raises(
        Conflict, match="has 101 alternatives: where there are more than 64, each must require"
    ):
        overlapping({f"{n}": kind(n) for n in range(100)} | {"again": kind(7)})


def test_what_is_known_of_elements_and_listed_values() -> None:
    ahead = Schema({"prefixItems": [{"type": "string"}], "items": {"type": "integer"}})
    assert [ahead.element(index).types for index in (0, 1, 2)] == [{"string"}, {"integer"}, {"integer"}]
    assert ahead.ahead == 1
    listed = Schema({"enum": [["a", 1], {"b": None}]})
    assert [listed.element(index).types for index in (0, 1)] == [{"string"}, {"integer"}]
    assert listed.property("b").types == {"null"}
    root = Schema({"properties": {"a": {"$ref": "#"}, "b": {"type": "boolean"}}})
    assert root.property("a").property("a").property("b").types == {"boolean"}
    mixed = Schema(
        {"anyOf": [{"properties": {"a": {"type": "string"}}}, {"additionalProperties": {"type": "null"}}]}
    )
    assert mixed.property("a").types == {"string", "null"}
