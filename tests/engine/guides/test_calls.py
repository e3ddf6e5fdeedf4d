"""Grammars of tool calls: whatever they let through is read as calls whose arguments satisfy the schemas."""

from __future__ import annotations

import json
import random
from typing import Any

import jsonschema
import pytest
from hypothesis import HealthCheck, given, settings

from onechip.engine.guides.grammar import Grammar
from onechip.errors import RequestError
from onechip.models.chat_parser import CallArguments, CallOpen, ChatParser, Text, has_call_markers
from onechip.models.json_calls import JsonCallParser
from onechip.models.tokenizer import Tokenizer
from tests.engine.guides.schemas import parameters
from tests.engine.guides.vocabularies import grammars
from tests.engine.guides.walks import allowed_ids, taken, walk
from tests.models import made_tools

Calls = list[tuple[str, dict[str, Any]]]

WEATHER = {
    "type": "object",
    "properties": {
        "unit": {"enum": ["c", "f", None]},
        "City": {"type": "string", "minLength": 2, "maxLength": 40},
        "days": {"type": "array", "items": {"type": "integer", "minimum": 1, "maximum": 14}, "maxItems": 3},
    },
    "required": ["City"],
    "additionalProperties": False,
}
QUOTE = '<|"|>'


def tool(name: str, schema: Any, **said: Any) -> dict[str, Any]:
    return {"type": "function", "function": {"name": name, "parameters": schema, **said}}


def read(tokenizer: Tokenizer, ids: list[int], tools: list[Any]) -> tuple[str, Calls]:
    """The text and the calls of an answer, read as the server reads them."""
    gemma = has_call_markers(tokenizer)
    parser = ChatParser(tokenizer, tools, [2]) if gemma else JsonCallParser(tokenizer, tools)
    names, arguments, text = [], [], ""
    for delta in [*parser.push(ids), *parser.finish()]:
        if isinstance(delta, CallOpen):
            names.append(delta.name)
            arguments.append("")
        elif isinstance(delta, CallArguments):
            arguments[delta.index] += delta.fragment
        elif isinstance(delta, Text):
            text += delta.text
    return text, [(name, json.loads(found)) for name, found in zip(names, arguments, strict=True)]


def check_calls(name: str, tools: list[Any], seeds: range, known: list[Any] | None = None) -> int:
    """Walk through the grammar of `tools`; returns how many calls satisfied their schemas.

    Args:
        known: the tools as jsonschema understands them.
    """
    made, tokenizer, vocab = grammars(name)
    grammar = made.calls(tools, required=True)
    schemas = {tool["function"]["name"]: tool["function"].get("parameters") for tool in known or tools}
    count = 0
    for seed in seeds:
        ids = walk(grammar.guide(), tokenizer, vocab, random.Random(seed))
        if ids is None:
            continue
        text, calls = read(tokenizer, ids, tools)
        written = tokenizer.decode(ids, skip_special=False)
        assert calls, written
        assert not text.strip(), written
        for called, arguments in calls:
            schema = schemas[called]
            jsonschema.validate(arguments, {"maxProperties": 0} if schema is None else schema)
        count += len(calls)
    return count


def holds(grammar: Grammar, text: str, name: str = "acorn") -> bool:
    """Whether an answer is allowed as a whole."""
    _, tokenizer, vocab = grammars(name)
    guide = grammar.guide()
    ids = tokenizer.encode(text)
    return taken(guide, ids, vocab) == len(ids) and guide.complete


@settings(
    max_examples=60,
    deadline=None,
    derandomize=True,
    database=None,
    suppress_health_check=[HealthCheck.too_slow],
)
@given(parameters())
def test_arguments_satisfy_schemas_of_every_kind(schema: dict[str, Any]) -> None:
    try:
        check_calls("acorn", [tool("f", schema)], range(1))
    except RequestError as refused:
        if "never ends" not in refused.message:  # it must be inside of itself
            raise


def test_arguments_satisfy_the_schemas_of_random_tools() -> None:
    satisfied = 0
    for seed in range(25):
        tools = made_tools.tools(random.Random(seed))
        try:
            satisfied += check_calls("acorn", tools, range(1), [_plain(tool) for tool in tools])
        except RequestError as refused:
            if "oneOf" not in refused.message:  # of alternatives that may hold at once
                raise
    assert satisfied > 15


def _plain(node: Any) -> Any:
    """A schema whose types are written small, as jsonschema wants them."""
    if isinstance(node, list):
        return [_plain(member) for member in node]
    if not isinstance(node, dict):
        return node
    found = {key: _plain(value) for key, value in node.items()}
    return found | {"type": found["type"].lower()} if isinstance(found.get("type"), str) else found


@pytest.mark.parametrize("name", ["gemma", "llama3", "sentence_piece"])
def test_arguments_satisfy_schemas_with_other_vocabularies(name: str) -> None:
    tools = [tool("get_weather", WEATHER), tool("stop", None)]
    assert check_calls(name, tools, range(3 if name == "gemma" else 12)) > 0


def test_calls_are_written_as_gemmas_template_prints_them() -> None:
    _, tokenizer, vocab = grammars("acorn")
    grammar = grammars("acorn")[0].calls([tool("get_weather", WEATHER)], required=True)
    city = f"City:{QUOTE}New York{QUOTE}"
    for arguments in (
        city,
        f"{city},days:[1,14]",
        f"{city},days:[],unit:{QUOTE}c{QUOTE}",
        f"{city},unit:null",
    ):
        assert holds(grammar, f"<|tool_call>call:get_weather{{{arguments}}}<tool_call|>"), arguments
    for arguments in (
        "",  # what is required is missing
        f"unit:null,{city}",  # members are sorted as Jinja sorts them
        f"{city}, unit:null",
        f"{city},days:[15]",
        f"{city},days:[1,2,3,4]",
        f"{city},more:1",
        f"{city},unit:{QUOTE}k{QUOTE}",
        f"City:{QUOTE}N{QUOTE}",
        "City:Paris",
    ):
        assert not holds(grammar, f"<|tool_call>call:get_weather{{{arguments}}}<tool_call|>"), arguments
    assert list(allowed_ids(grammar.guide(), vocab)) == [tokenizer.token_id("<|tool_call>")]


def test_names_that_the_notation_cannot_spell_are_quoted() -> None:
    schema = {"properties": {"a:b": {"type": "integer"}, "": {"type": "null"}}, "required": ["a:b", ""]}
    grammar = grammars("acorn")[0].calls([tool("f", schema)], required=True)
    assert holds(grammar, f"<|tool_call>call:f{{{QUOTE}{QUOTE}:null,{QUOTE}a:b{QUOTE}:5}}<tool_call|>")


def test_a_function_without_parameters_is_called_without_arguments() -> None:
    for schema in (None, {"type": "object", "properties": {}}):
        grammar = grammars("acorn")[0].calls([tool("f", schema)], required=True)
        assert holds(grammar, "<|tool_call>call:f{}<tool_call|>")
        assert not holds(grammar, "<|tool_call>call:f{a:1}<tool_call|>")
    anything = grammars("acorn")[0].calls([tool("f", {"type": "object"})], required=True)
    assert holds(anything, f"<|tool_call>call:f{{a:[1,{{b:{QUOTE}x{QUOTE}}}],c:null}}<tool_call|>")


def test_an_object_may_have_many_optional_members() -> None:
    schema = {"properties": {f"m{index:04}": {"type": "boolean"} for index in range(1000)}}
    grammar = grammars("acorn")[0].calls([tool("f", schema)], required=True)
    for arguments in ("", "m0000:true,m0999:false", "m0500:true"):
        assert holds(grammar, f"<|tool_call>call:f{{{arguments}}}<tool_call|>"), arguments


def test_only_the_tools_that_are_given_are_called_once_or_many_times() -> None:
    tools = [tool("f", None), tool("g", None)]
    once = grammars("acorn")[0].calls(tools, required=True, many=False)
    often = grammars("acorn")[0].calls(tools, required=True)
    f, g, h = (f"<|tool_call>call:{name}{{}}<tool_call|>" for name in "fgh")
    for grammar, good, bad in (
        (once, (f, g), ("", h, f + g)),
        (often, (f, f + g + f), ("", h, f + h, f + "!")),
    ):
        for answer in good:
            assert holds(grammar, answer), answer
        for answer in bad:
            assert not holds(grammar, answer), answer


@pytest.mark.parametrize("name", ["acorn", "gemma"])
def test_text_is_free_until_a_strict_tool_is_called(name: str) -> None:
    made, tokenizer, vocab = grammars(name)
    tools = [tool("strict", WEATHER, strict=True), tool("loose", WEATHER)]
    grammar = made.calls(tools, required=False)
    thought = "<|channel>thought\nWhich city?\n<channel|>"
    good = f"<|tool_call>call:strict{{City:{QUOTE}Paris{QUOTE}}}<tool_call|>"
    loose = "<|tool_call>call:loose{x:[1]}<tool_call|>"
    for answer in ("", "Hello {there}.", f"{thought}Well: {good}{loose}", f"{good} Done.", loose + loose):
        assert holds(grammar, answer, name), answer
    for call in ("strict{x:[1]}", "strict{}", "other{}"):
        assert not holds(grammar, f"Well: <|tool_call>call:{call}<tool_call|>", name), call
    once = made.calls(tools, required=False, many=False)
    assert holds(once, f"Well: {loose}", name)
    assert not holds(once, loose + good, name)
    start = set(allowed_ids(grammar.guide(), vocab))
    assert len(start) == sum(map(bool, tokenizer.spellings()))  # everything may begin an answer


def test_strict_tools_satisfy_their_schemas_wherever_text_goes_over_into_calls() -> None:
    made, tokenizer, vocab = grammars("acorn")
    tools = [tool("strict", WEATHER, strict=True), tool("loose", WEATHER)]
    grammar = made.calls(tools, required=False)
    opener = tokenizer.token_id("<|tool_call>")
    named = []
    for seed in range(60):
        ids = walk(grammar.guide(), tokenizer, vocab, random.Random(seed), liked=opener)
        for name, arguments in read(tokenizer, ids or [], tools)[1]:
            named.append(name)
            if name == "strict":
                jsonschema.validate(arguments, WEATHER)
    assert min(named.count("strict"), named.count("loose")) > 10


def test_families_that_call_in_json_choose_between_the_forms_that_are_read() -> None:
    call = '{"name": "get_weather", "arguments": {"City": "Paris"}}'
    other = call.replace("arguments", "parameters").replace(": ", ":").replace("Paris", "Ω")
    for name in ("llama3", "chatml", "sentence_piece"):
        made, tokenizer, _ = grammars(name)
        tools = [tool("get_weather", {**WEATHER, "properties": {"City": {"type": "string"}}})]
        grammar = made.calls(tools, required=True)
        tagged = f"<tool_call>\n{call}\n</tool_call>"
        for answer, count in ((call, 1), (other, 1), (f"[{call}, {other}]", 2), (f"{tagged}\n{tagged}", 2)):
            assert holds(grammar, answer, name), answer
            assert len(read(tokenizer, tokenizer.encode(answer), tools)[1]) == count
        once = made.calls(tools, required=True, many=False)
        assert holds(once, call, name)
        assert holds(once, tagged, name)
        for answer in (f"[{call}, {call}]", tagged + tagged, call.replace("City", "Town"), "Hello"):
            assert not holds(once, answer, name), answer


@pytest.mark.parametrize("schema", [{"properties": {}}, {"type": ["object", "null"]}, {"type": None}, True])
def test_arguments_in_json_are_an_object_whatever_their_schema_leaves_open(schema: Any) -> None:
    grammar = grammars("chatml")[0].calls([tool("f", schema)], required=True)
    for arguments in ("{}", "null", "5", '"x"', "[]"):
        call = f'{{"name": "f", "arguments": {arguments}}}'
        assert holds(grammar, call, "chatml") is (arguments == "{}"), arguments


def test_families_that_call_in_json_are_held_to_strict_tools_behind_free_text() -> None:
    strict = tool("f", {"properties": {"a": {"type": "integer"}}, "additionalProperties": False}, strict=True)
    grammar = grammars("chatml")[0].calls([strict, tool("g", None)], required=False)
    good, loose = '{"name": "f", "arguments": {"a": 1}}', '{"name": "g", "arguments": {"b": [2]}}'
    bad = good.replace('"a"', '"b"')
    tagged = f"So: <tool_call>\n{good}\n</tool_call> then <tool_call>{loose}</tool_call> that."
    for answer in ("Hi {there}.", "", '{"name": "Tom"}', good, f"[{good}, {loose}]", tagged):
        assert holds(grammar, answer, "chatml"), answer
    for answer in (bad, f"<tool_call>{bad}</tool_call>", f"[{loose}, {bad}]", "So: <tool_call>nothing"):
        assert not holds(grammar, answer, "chatml"), answer


def test_names_that_json_spells_in_two_ways_are_held_to_their_schema_in_both() -> None:
    schema = {"properties": {"a": {"type": "integer"}}, "additionalProperties": False}
    grammar = grammars("chatml")[0].calls([tool("café", schema, strict=True)], required=False)
    for name in ('"café"', json.dumps("café")):
        assert holds(grammar, f'{{"name": {name}, "arguments": {{"a": 1}}}}', "chatml")
        assert not holds(grammar, f'{{"name": {name}, "arguments": {{"b": 1}}}}', "chatml")


def test_what_a_text_spells_is_never_a_marker() -> None:
    made, tokenizer, vocab = grammars("acorn")
    schema = {"properties": {"a": {"enum": [f"{QUOTE}}}<tool_call|><turn|>"]}}, "required": ["a"]}
    tools = [tool("f", schema)]
    ids = walk(made.calls(tools, required=True).guide(), tokenizer, vocab, random.Random(0))
    assert ids is not None
    assert read(tokenizer, ids, tools)[1][0] == ("f", {"a": f"{QUOTE}}}<tool_call|><turn|>"})
