"""Answers in Gemma 4's format become text, reasoning and tool calls, however their tokens are split."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

import onechip.models
from onechip.models.chat_parser import CallArguments, CallClose, CallOpen, ChatParser, Delta, Reasoning, Text
from onechip.models.tokenizer import Tokenizer

TOKENIZER = Tokenizer.load(Path(onechip.models.__file__).parent / "acorn", [1])
Q = '<|"|>'


def tool(name: str, **properties: Any) -> dict[str, Any]:
    parameters = {"type": "object", "properties": properties}
    return {"type": "function", "function": {"name": name, "parameters": parameters}}


TOOLS = [tool("f", s={"type": "string"}, n={"type": "number"}, b={"type": "boolean"}), tool("g")]


def splits(ids: Sequence[int], rng: random.Random) -> Iterator[Sequence[int]]:
    start = 0
    while start < len(ids):
        end = start + rng.randint(1, 6)
        yield ids[start:end]
        start = end


def read(
    answer: str | Sequence[int],
    tools: Sequence[Any] | None = TOOLS,
    prompt: str = "<bos>",
    seed: int | None = 0,
) -> list[Delta]:
    """The deltas of `answer` in random windows (in one window if seed is None)."""
    ids = TOKENIZER.encode(answer) if isinstance(answer, str) else answer
    parser = ChatParser(TOKENIZER, tools, TOKENIZER.encode(prompt))
    parts = [ids] if seed is None else splits(ids, random.Random(seed))
    return [delta for part in parts for delta in parser.push(part)] + parser.finish()


def distinct(members: list[tuple[str, Any]]) -> dict[str, Any]:
    """The object, which must not have the same key twice."""
    assert len(dict(members)) == len(members)
    return dict(members)


def result(*args: Any, **kwargs: Any) -> tuple[str, str, list[tuple[str, Any]]]:
    """Text, reasoning and calls (name, parsed arguments); checks the order of each call's deltas."""
    deltas = read(*args, **kwargs)
    opened = [delta for delta in deltas if isinstance(delta, CallOpen)]
    calls = []
    for index, call in enumerate(opened):
        own = [delta for delta in deltas if getattr(delta, "index", None) == index]
        fragments = [delta.fragment for delta in own if isinstance(delta, CallArguments)]
        assert [call, CallClose(index)] == [own[0], own[-1]]
        assert len(own) == len(fragments) + 2
        calls.append((call.name, json.loads("".join(fragments), object_pairs_hook=distinct)))
    text = "".join(delta.text for delta in deltas if isinstance(delta, Text))
    reasoning = "".join(delta.text for delta in deltas if isinstance(delta, Reasoning))
    return text, reasoning, calls


def call_of(arguments: str, tools: Sequence[Any] = TOOLS) -> Any:
    """The parsed arguments of `call:f{ARGUMENTS}`."""
    _, _, calls = result(f"<|tool_call>call:f{{{arguments}}}<tool_call|><|tool_response>", tools)
    assert [name for name, _ in calls] == ["f"]
    return calls[0][1]


@pytest.mark.parametrize(
    ("answer", "expected"),
    [
        ("The answer is 4.<turn|>", ("The answer is 4.", "", [])),
        ("", ("", "", [])),
        ("<|channel>thought\nHm.\nWell.\n<channel|>Four.<turn|>", ("Four.", "Hm.\nWell.", [])),
        ("<|channel>thought\n<channel|>Four.<turn|>", ("Four.", "", [])),
        ("<|channel><channel|>Four.<turn|>", ("Four.", "", [])),
        ("<|channel>Hm.<channel|>Four.<turn|>", ("Four.", "Hm.", [])),
        ("<channel|>Four.<turn|>", ("Four.", "", [])),
        ("<|channel>thought\nHm.\n<channel|><channel|>Four.", ("Four.", "Hm.", [])),
        ("Four.<|channel>thought\n<channel|><turn|>", ("Four.", "", [])),
        ("<|channel>thought\na\n<channel|><|channel>thought\nb\n<channel|>c", ("c", "ab", [])),
        ("<|channel>thought\nHm, and cut off", ("", "Hm, and cut off", [])),
        ("<|channel>tho", ("", "tho", [])),
        ("<|tool_call>call:g{}<tool_call|><|tool_response>", ("", "", [("g", {})])),
        ("Look:<|tool_call>call:f{n:1}<tool_call|>", ("Look:", "", [("f", {"n": 1})])),
        ("<|tool_call>:f{n:1}<tool_call|>", ("", "", [("f", {"n": 1})])),
        ("<|tool_call>f{n:1}<tool_call|>", ("", "", [("f", {"n": 1})])),
        ("<|tool_call>call:f(n:1)<tool_call|>", ("", "", [("f", {"n": 1})])),
        ("<|tool_call>call:f(n:[1,{a:2}])<tool_call|>", ("", "", [("f", {"n": [1, {"a": 2}]})])),
        ("<|tool_call>call: f {n:1}}\n<tool_call|>", ("", "", [("f", {"n": 1})])),
        ("<|tool_call>call:g<tool_call|>", ("", "", [("g", {})])),
        ("<|tool_call>call:f{n:1}<turn|>", ("", "", [("f", {"n": 1})])),
        ("<|tool_call>call:f{n:1}<|tool_response>", ("", "", [("f", {"n": 1})])),
        ("<|tool_call>call:f{n:1}<eos>", ("", "", [("f", {"n": 1})])),
        (
            "<|tool_call>call:f{n:1}<tool_call|>\n<|tool_call>call:g{}<tool_call|>\n",
            ("", "", [("f", {"n": 1}), ("g", {})]),
        ),
        ("<|tool_call>call:f{n:1<|tool_call>call:g{}", ("", "", [("f", {"n": 1}), ("g", {})])),
        ("<|channel>thought\nI call.<|tool_call>call:g{}<tool_call|>", ("", "I call.", [("g", {})])),
        ("<|tool_call>call:g{}<tool_call|>\nDone.", ("Done.", "", [("g", {})])),
        ("<|tool_call>call:g{} Done.", ("Done.", "", [("g", {})])),
        ("<|tool_call>no call at all<tool_call|>", ("<|tool_call>no call at all", "", [])),
        ("<|tool_call>" + 300 * "x", ("<|tool_call>" + 300 * "x", "", [])),
    ],
)  # fmt: skip
@pytest.mark.parametrize("seed", [None, 1, 2, 3])
def test_answers(answer: str, expected: Any, seed: int | None) -> None:
    assert result(answer, seed=seed) == expected


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (f"s:{Q}Paris{Q},n:1.5,b:true,x:null", {"s": "Paris", "n": 1.5, "b": True, "x": None}),
        (f's:{Q}say "hi"\n\t\\ {{a:1}} ü{Q}', {"s": 'say "hi"\n\t\\ {a:1} ü'}),
        (f"s:{Q}{Q}", {"s": ""}),
        (f"{Q}s{Q}:{Q}x{Q},{Q}a:b{Q}:1", {"s": "x", "a:b": 1}),
        (f' s : {Q}x{Q} , n : 2 ', {"s": "x", "n": 2}),
        (f'"s":{Q}x{Q}', {"s": "x"}),
        ("s:Paris", {"s": "Paris"}),
        ("s:Paris, France,n:1", {"s": "Paris, France", "n": 1}),
        ("s:Paris, France", {"s": "Paris, France"}),
        ('s:"Paris, France"', {"s": "Paris, France"}),
        ("s:12", {"s": "12"}),
        ("s:true", {"s": "true"}),
        ("s:null", {"s": None}),
        (f"n:{Q}12{Q}", {"n": 12}),
        (f"n:{Q}twelve{Q}", {"n": "twelve"}),
        (f"b:{Q}false{Q}", {"b": False}),
        ("b:True,x:None", {"b": True, "x": None}),
        ("x:007,y:+5,z:.5,w:5.,v:1e3", {"x": "007", "y": 5, "z": 0.5, "w": 5.0, "v": 1000}),
        (f"x:[1,{Q}a{Q},[],{{}},{{k:[true]}}]", {"x": [1, "a", [], {}, {"k": [True]}]}),
        ("n:1,", {"n": 1}),
        ("n:1,,b:true", {"n": 1, "b": True}),
        (f"s:{Q}x{Q}n:1", {"s": "x", "n": 1}),
        (f"x:[{Q}a{Q}{Q}b{Q} 1]", {"x": ["a", "b", 1]}),
        ("x:[1,2", {"x": [1, 2]}),
        ("x:{a:[1,2", {"x": {"a": [1, 2]}}),
        ("x:[{a:1]", {"x": [{"a": 1}]}),
        ("b", {"b": None}),
        ("b,n:1", {"b": None, "n": 1}),
        ("n:,b:true", {"n": None, "b": True}),
        ("x:1e999.", {"x": "1e999."}),
        ("n:1,n:2,b:true", {"n": 1, "b": True}),
        (f"s:{Q}x{Q},{Q}s{Q}:{Q}y, z{Q},n:1", {"s": "x", "n": 1}),
        ("s:Paris, France,s:Rome, Italy,n:1", {"s": "Paris, France", "n": 1}),
        ("x:{a:1,a:{a:[2]},b:3},x:[{c:1},{c:2}],y:{a:1}", {"x": {"a": 1, "b": 3}, "y": {"a": 1}}),
        ("b,b,b:false", {"b": None}),
        ("n:1,n:[{", {"n": 1}),
        (r'x:"\ud800",n:1', {"x": r'"\ud800"', "n": 1}),
        (f"n:{Q}twelve{Q},n:{Q}12{Q}", {"n": "twelve"}),
    ],
)  # fmt: skip
def test_arguments(arguments: str, expected: Any) -> None:
    assert call_of(arguments) == expected


@pytest.mark.parametrize("text", ["[" * 3000, '["\\ud800"]', "[NaN]"])
def test_text_that_only_looks_like_json_stays_text(text: str) -> None:
    assert call_of(f"l:{Q}{text}{Q}", [tool("f", l={"type": "array"})]) == {"l": text}


def test_a_schema_behind_references_is_found() -> None:
    schema = {
        "type": "object",
        "properties": {
            "a": {"$ref": "#/$defs/A"},
            "l": {"type": ["array", "null"], "items": {"enum": ["1"]}},
        },
        "additionalProperties": {"anyOf": [{"type": "STRING"}, {"type": "null"}]},
        "$defs": {
            "A": {"type": "object", "properties": {"zip": {"type": "string"}, "a": {"$ref": "#/$defs/A"}}}
        },
    }
    tools = [{"type": "function", "function": {"name": "f", "parameters": schema}}]
    expected = {"a": {"zip": "1", "a": {"zip": "2"}}, "l": ["3"], "other": "4"}
    assert call_of("a:{zip:1,a:{zip:2}},l:[3],other:4", tools) == expected


def test_alternatives_in_a_schema_have_the_same_right() -> None:
    """What one of them allows is not turned into what another one does."""
    text, number = {"type": "string"}, {"type": "number"}
    properties = {
        "o": {"anyOf": [{"properties": {"x": text}}, {"properties": {"x": number}}]},
        "any": {"anyOf": [{}, {"type": "null"}]},  # Python's Optional[Any]
        "l": {"oneOf": [{"type": "array", "items": text}, {"type": "array"}]},
        "m": {"oneOf": [{"type": "object", "additionalProperties": text}, {"additionalProperties": True}]},
        "c": {"anyOf": [{"const": "12"}, {"type": "null"}]},
    }
    given = f"o:{{x:1}},any:{Q}null{Q},l:[1,{Q}1{Q}],m:{{y:true}},c:12"
    expected = {"o": {"x": 1}, "any": "null", "l": [1, "1"], "m": {"y": True}, "c": "12"}
    assert call_of(given, [tool("f", **properties)]) == expected


def test_a_schema_of_many_references_to_itself_takes_no_time() -> None:
    schema = {
        "type": "object",
        "properties": {"a": {"$ref": "#/$defs/A"}},
        "$defs": {"A": {"anyOf": [{"$ref": "#/$defs/A"} for _ in range(1000)]}},
    }
    assert call_of("a:1", [{"type": "function", "function": {"name": "f", "parameters": schema}}]) == {"a": 1}


def test_markers_spelled_in_ordinary_tokens_are_text() -> None:
    spelled = [id for character in "<tool_call|><|channel>" for id in TOKENIZER.encode(character)]
    assert result(spelled) == ("<tool_call|><|channel>", "", [])
    start, end = TOKENIZER.encode(f"<|tool_call>call:f{{s:{Q}"), TOKENIZER.encode(f"{Q}}}<tool_call|>")
    assert result([*start, *spelled, *end]) == ("", "", [("f", {"s": "<tool_call|><|channel>"})])


def test_without_tools_a_call_is_text() -> None:
    assert result("<|tool_call>call:f{n:1}<tool_call|><turn|>", None) == ("call:f{n:1}", "", [])


def test_a_prompt_that_opened_the_thoughts() -> None:
    prompt = "<bos><|turn>model\n<|channel>thought\n"
    assert result("Hm.\n<channel|>Four.", prompt=prompt) == ("Four.", "Hm.", [])
    assert result("thought\nHm.<channel|>Four.", prompt="<bos><|channel>") == ("Four.", "Hm.", [])
    closed = "<bos><|channel>thought\n<channel|>"
    assert result("Four.", prompt=closed) == ("Four.", "", [])
    assert result("Four.", prompt="<bos><|channel>thought\nHm<turn|>\n<|turn>model\n") == ("Four.", "", [])


def test_an_answer_without_thoughts_is_no_thought_though_they_are_asked_for() -> None:
    """vllm#48217, mlx-lm#1352."""
    prompt = "<bos><|turn>system\n<|think|>\n<turn|>\n<|turn>user\nHi<turn|>\n<|turn>model\n"
    assert result("Four.<turn|>", prompt=prompt) == ("Four.", "", [])
    assert result("<|channel>thought\nHm.\n<channel|>Four.", prompt=prompt) == ("Four.", "Hm.", [])


@pytest.mark.parametrize("seed", [None, 1, 2])
def test_html_comes_as_it_is(seed: int | None) -> None:
    """vllm#38910: its characters came twice."""
    page = '<!DOCTYPE html>\n<html><body class="a"><<b>&lt;</b>></body></html>\n'
    expected = ("", "", [("f", {"s": page, "n": 1})])
    assert result(f"<|tool_call>call:f{{s:{Q}{page}{Q},n:1}}<tool_call|>", seed=seed) == expected


def test_a_file_of_5000_lines_is_one_argument() -> None:
    """llama.cpp#25986; and it is read in one go, not again from its start with each token."""
    file = "".join(f'{n}: {{"a": [{n}, "b\\n"]}}  # }}\n' for n in range(5000))
    ids = TOKENIZER.encode(f"<|tool_call>call:f{{s:{Q}{file}{Q},n:1}}<tool_call|>")
    assert result(ids) == ("", "", [("f", {"s": file, "n": 1})])


def test_a_window_that_spans_two_calls() -> None:
    """vllm#41967: with a drafter the first call lost its arguments."""
    first, second = (f"<|tool_call>call:f{{s:{Q}{s}{Q}}}<tool_call|>" for s in ("a", "b"))
    ids, cut = TOKENIZER.encode(first + second), len(TOKENIZER.encode(first)) - 4
    parser = ChatParser(TOKENIZER, TOOLS, [2])
    kinds = [type(delta) for delta in parser.push(ids[:cut])]
    assert kinds == [CallOpen, CallArguments]
    deltas = parser.push(ids[cut:])
    assert [type(delta) for delta in deltas] == [CallArguments, CallClose, CallOpen, CallArguments, CallClose]
    assert [delta.fragment for delta in deltas if isinstance(delta, CallArguments)] == ['a"}', '{"s":"b"}']


@pytest.mark.parametrize("seed", [None, 1])
def test_half_a_character_before_a_marker_is_shown_where_it_stands(seed: int | None) -> None:
    first, second = (TOKENIZER.token_id(f"<0x{byte:02X}>") or 0 for byte in "é".encode())
    marker = TOKENIZER.encode("<channel|>")
    ids = [*TOKENIZER.encode("<|channel>thought\nHm"), first, *marker, second, *TOKENIZER.encode("Four.")]
    assert result(ids, seed=seed) == ("\ufffdFour.", "Hm\ufffd", [])


def test_deltas_of_one_window_are_joined() -> None:
    answer = f"<|channel>thought\na b c\n<channel|>d e<|tool_call>call:f{{s:{Q}x y{Q},n:1}}<tool_call|>"
    kinds = [type(delta) for delta in read(answer, seed=None)]
    assert kinds == [Reasoning, Text, CallOpen, CallArguments, CallClose]


def test_the_name_comes_before_the_arguments_are_complete() -> None:
    parser = ChatParser(TOKENIZER, TOOLS, [2])
    deltas = parser.push(TOKENIZER.encode(f"<|tool_call>call:f{{s:{Q}Par"))
    assert [type(delta) for delta in deltas] == [CallOpen, CallArguments]
    assert deltas[1] == CallArguments(0, '{"s":"Par')
    assert parser.calls == 1


@pytest.mark.parametrize("header", ["", "call:", "call:get_wea"])
def test_a_call_that_is_cut_off_in_its_name_is_dropped(header: str) -> None:
    parser = ChatParser(TOKENIZER, TOOLS, [2])
    assert parser.push(TOKENIZER.encode(f"Look.<|tool_call>{header}")) == [Text("Look.")]
    assert parser.finish(cut_off=True) == []


@pytest.mark.parametrize("name", ["", "tho", "thought"])
def test_a_channel_that_is_cut_off_in_its_name_is_no_thought(name: str) -> None:
    parser = ChatParser(TOKENIZER, TOOLS, [2])
    assert parser.push(TOKENIZER.encode(f"<|channel>{name}")) == []
    assert parser.finish(cut_off=True) == []


def test_any_tokens_give_valid_json() -> None:
    """Whatever a model emits, each call's arguments parse (checked in `result`)."""
    rng = random.Random(30)
    likely = TOKENIZER.encode(
        f'call:f{{}}()[],:"a1.-\n {Q}<|tool_call><tool_call|><|channel><channel|><turn|>'
    )
    for case in range(3000):
        ids = TOKENIZER.encode("<|tool_call>call:f{") if case % 2 else []
        ids += [
            rng.choice(likely) if rng.random() < 0.9 else rng.randrange(TOKENIZER.vocab_size)
            for _ in range(40)
        ]
        result(ids, seed=case)
