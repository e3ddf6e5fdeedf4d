"""acorn, which never saw these schemas, is held to them on the real server: calls, forms and thoughts."""

from __future__ import annotations

import json
import re
from typing import Any

import jsonschema
import pytest

from tests.server.process import ORDERS, PARAMETERS, PROBLEM, Process
from tests.server.scripted import CHAT

ASK = {"messages": [{"role": "user", "content": PROBLEM}], "max_tokens": 1000}
WORD = {"type": "string", "maxLength": 12}


def closed(**properties: Any) -> dict[str, Any]:
    """An object that has all of these members and no other."""
    return {
        "type": "object",
        "properties": properties,
        "required": list(properties),
        "additionalProperties": False,
    }


SCHEMAS: dict[str, dict[str, Any]] = {
    "plain": closed(item=WORD, count={"type": "integer", "minimum": 1, "maximum": 30}),
    "nothing": closed(),
    "optional": {
        "type": "object",
        "properties": {"a": WORD, "b": {"type": "boolean"}, "c": {"type": "null"}},
        "additionalProperties": False,
    },
    "odd texts": closed(x={"enum": ['a "b"', "{}", "ä,ö:ü", "<tool_call|>", "", "\n"]}, y={"const": "it's"}),
    "mixed enum": closed(x={"enum": [1, "1", None, True, 2.5]}),
    "numbers": closed(
        x={"type": "number", "minimum": -2, "maximum": 2},
        y={"type": "integer", "multipleOf": 5, "maximum": 50},
    ),
    "lists": closed(
        words={"type": "array", "items": WORD, "minItems": 2, "maxItems": 3},
        pairs={
            "type": "array",
            "items": closed(k={"enum": ["p", "q"]}, v={"type": "boolean"}),
            "maxItems": 2,
        },
    ),
    "nested": closed(
        a=closed(b=closed(c=closed(d={"type": "boolean"})), e={"type": ["integer", "null"], "maximum": 9})
    ),
    "alternatives": closed(x={"anyOf": [{"type": "integer", "minimum": 0, "maximum": 9}, closed(word=WORD)]}),
    "references": closed(place={"$ref": "#/$defs/place"}, other={"$ref": "#/$defs/place"})
    | {"$defs": {"place": closed(name=WORD, big={"type": "boolean"})}},
    "pattern": closed(code={"type": "string", "pattern": "^[A-Z]{2}-[0-9]{3}$"}),
    "odd names": closed(
        **{"two words": {"type": "boolean"}, "größe": {"type": "boolean"}, "$x-y.z": {"const": 1}}
    ),
}


@pytest.fixture(params=SCHEMAS)
def schema(request: pytest.FixtureRequest) -> dict[str, Any]:
    return SCHEMAS[request.param]


def choice_of(served: Process, **fields: Any) -> Any:
    [choice] = served.ask(CHAT, ASK | fields)["choices"]
    return choice


def tool(schema: dict[str, Any], **more: Any) -> dict[str, Any]:
    function = {"name": "made_up", "description": "Something new.", "parameters": schema, **more}
    return {"type": "function", "function": function}


OTHER = {"type": "function", "function": {"name": "place_order", "parameters": PARAMETERS}}
NAMED = {"type": "function", "function": {"name": "made_up"}}


@pytest.mark.parametrize("temperature", [0, 1])
def test_a_named_call_satisfies_its_schema(
    served: Process, schema: dict[str, Any], temperature: float
) -> None:
    choice = choice_of(
        served, tools=[OTHER, tool(schema)], tool_choice=NAMED, temperature=temperature, seed=3
    )
    assert (choice["finish_reason"], choice["message"]["content"]) == ("stop", None)
    [call] = choice["message"]["tool_calls"]
    assert call["function"]["name"] == "made_up"
    jsonschema.validate(json.loads(call["function"]["arguments"]), schema)


@pytest.mark.parametrize("temperature", [0, 1])
def test_every_required_call_satisfies_its_schema(
    served: Process, schema: dict[str, Any], temperature: float
) -> None:
    schemas = {"made_up": schema, "place_order": PARAMETERS}
    choice = choice_of(
        served, tools=[OTHER, tool(schema)], tool_choice="required", temperature=temperature, seed=4
    )
    assert choice["message"]["content"] is None
    for call in choice["message"]["tool_calls"][: -1 if choice["finish_reason"] == "length" else None]:
        jsonschema.validate(json.loads(call["function"]["arguments"]), schemas[call["function"]["name"]])


@pytest.mark.parametrize("temperature", [0, 1])
def test_text_satisfies_its_schema(served: Process, schema: dict[str, Any], temperature: float) -> None:
    form = {"type": "json_schema", "json_schema": {"name": "x", "schema": schema}}
    choice = choice_of(served, response_format=form, temperature=temperature, seed=5)
    assert choice["finish_reason"] == "stop"
    jsonschema.validate(json.loads(choice["message"]["content"]), schema)


@pytest.mark.parametrize("seed", range(5))
def test_forms_and_calls_behind_thoughts(served: Process, seed: int) -> None:
    schema = SCHEMAS["lists"]
    fields = {"reasoning_effort": "low", "thinking_token_budget": 20, "temperature": 1, "seed": seed}
    form = {"type": "json_schema", "json_schema": {"name": "x", "schema": schema}}
    message = choice_of(served, response_format=form, **fields)["message"]
    jsonschema.validate(json.loads(message["content"]), schema)
    message = choice_of(served, tools=[tool(schema)], tool_choice=NAMED, **fields)["message"]
    assert message["content"] is None
    jsonschema.validate(json.loads(message["tool_calls"][0]["function"]["arguments"]), schema)


def test_a_strict_function_that_the_model_chooses(served: Process) -> None:
    """acorn would say the dish; its schema only knows three."""
    schema = closed(item={"enum": ["tea", "rice", "soup of the day"]}, count={"type": "integer"})
    function = {"name": "place_order", "description": "Place an order of food.", "parameters": schema}
    messages = [{"role": "user", "content": ORDERS[0][0]}]
    for temperature in (0, 1):
        fields = {"messages": messages, "temperature": temperature, "seed": 1}
        [loose], [strict] = (
            choice_of(served, tools=[{"type": "function", "function": function | more}], **fields)["message"][
                "tool_calls"
            ]
            for more in ({}, {"strict": True})
        )
        assert json.loads(loose["function"]["arguments"])["item"] == ORDERS[0][1]["item"]
        jsonschema.validate(json.loads(strict["function"]["arguments"]), schema)


def test_a_forced_call_is_what_acorn_would_have_called(served: Process) -> None:
    for question, arguments, _ in ORDERS:
        for fields in ({}, {"tool_choice": "required"}, {"tools": [tool(SCHEMAS["plain"]), OTHER]}):
            asked = {"tools": [OTHER], "temperature": 0, "messages": [{"role": "user", "content": question}]}
            [call] = choice_of(served, **asked | fields)["message"]["tool_calls"]
            assert json.loads(call["function"]["arguments"]) == arguments


@pytest.mark.parametrize("temperature", [0, 1])
def test_patterns_choices_and_grammars(served: Process, temperature: float) -> None:
    for form, pattern in (
        ({"regex": r"[0-9]{3}-[a-f]{2,5}"}, r"[0-9]{3}-[a-f]{2,5}"),
        ({"choice": ["45", "forty-five", "fünf"]}, r"45|forty-five|fünf"),
        ({"grammar": 'start: N ("+" N)~1..3\nN: /[0-9]{1,2}/'}, r"\d{1,2}(\+\d{1,2}){1,3}"),
        ({"grammar": 'root ::= "yes" | "no, " [a-z] [a-z]'}, r"yes|no, [a-z]{2}"),
    ):
        choice = choice_of(served, structured_outputs=form, temperature=temperature, seed=6)
        assert re.fullmatch(pattern, choice["message"]["content"])
    reply = served.ask("/v1/completions", {"prompt": PROBLEM, "guided_regex": "[A-Z]{3}[.]"})
    assert re.fullmatch(r"[A-Z]{3}\.", reply["choices"][0]["text"])


def test_a_form_of_other_protocols(served: Process) -> None:
    schema = SCHEMAS["plain"]
    body = {"model": "acorn", "stream": False, "format": schema, "messages": ASK["messages"]}
    jsonschema.validate(json.loads(served.ask("/api/chat", body)["message"]["content"]), schema)
    text = {"format": {"type": "json_schema", "name": "x", "schema": schema}}
    output = served.ask("/v1/responses", {"input": PROBLEM, "text": text})["output"]
    jsonschema.validate(json.loads(output[0]["content"][0]["text"]), schema)
    config = {"format": {"type": "json_schema", "schema": schema}}
    content = served.ask("/v1/messages", ASK | {"output_config": config})["content"]
    jsonschema.validate(json.loads(content[0]["text"]), schema)


@pytest.mark.parametrize("budget", [1, 5, 30])
def test_thoughts_keep_to_their_budget(served: Process, budget: int) -> None:
    """The prompt opens them, and a bias keeps acorn from closing them: by itself it thinks little."""
    call = {"id": "1", "type": "function", "function": {"name": "place_order", "arguments": "{}"}}
    opened = [
        {"role": "user", "content": ORDERS[0][0]},
        {"role": "assistant", "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "1", "content": "153"},
    ]
    [close] = served.tokenize({"prompt": "<channel|>", "add_special_tokens": False})
    reply = served.ask(
        CHAT,
        {
            "messages": opened,
            "temperature": 1,
            "seed": 2,
            "thinking_token_budget": budget,
            "chat_template_kwargs": {"enable_thinking": True},
            "logit_bias": {str(close): -100},
            "structured_outputs": {"regex": "So [0-9]{1,3}[.]"},
        },
    )
    assert 0 < reply["usage"]["completion_tokens_details"]["reasoning_tokens"] <= budget
    message = reply["choices"][0]["message"]
    assert re.fullmatch(r"So [0-9]{1,3}\.", message["content"])
