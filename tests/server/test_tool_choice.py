"""Calls that a request forces, as each protocol says it, with a scripted engine that would rather talk."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.server.scripted import CHAT, HI, TOKENIZER, error_of, prompt_of

MESSAGES, RESPONSES, OLLAMA = "/v1/messages", "/v1/responses", "/api/chat"
Q = '<|"|>'


def parameters(**properties: Any) -> dict[str, Any]:
    return {
        "type": "object",
        "properties": properties,
        "required": list(properties),
        "additionalProperties": False,
    }


ADD = parameters(n={"type": "integer"})
SAY = parameters(to={"enum": ["Ann", "Bob"]}, loud={"type": "boolean"})


def tool(name: str, schema: Any, **more: Any) -> dict[str, Any]:
    return {"type": "function", "function": {"name": name, "parameters": schema, **more}}


TOOLS = [tool("add", ADD), tool("say", SAY)]
NAMED = {"type": "function", "function": {"name": "say"}}
ANTHROPIC: dict[str, Any] = {
    "max_tokens": 60,
    "tools": [{"name": "add", "input_schema": ADD}, {"name": "say", "input_schema": SAY}],
    **HI,
}
OF_RESPONSES: dict[str, Any] = {
    "input": "Hi",
    "tools": [{"type": "function", **one["function"]} for one in TOOLS],
}


def ids(text: str) -> list[int]:
    return [*TOKENIZER.encode(text), 50]


ONE = f"<|tool_call>call:say{{loud:true,to:{Q}Ann{Q}}}<tool_call|>"
WRONG = f"Hello! <|tool_call>call:say{{loud:{Q}yes{Q}true,to:{Q}Tom Ann{Q},n:5}}<tool_call|>"
"""What a schema lets pass of this is a call that satisfies it."""
SAID = {"to": "Ann", "loud": True}


def choice_of(client, **fields: Any) -> Any:
    status, reply = client.ask("POST", CHAT, HI | {"tools": TOOLS} | fields)
    assert status == 200, reply
    return reply["choices"][0]


def calls_of(client, **fields: Any) -> list[tuple[str, Any]]:
    """Name and arguments of each call of an answer that is nothing but calls."""
    message = choice_of(client, **fields)["message"]
    assert message["content"] is None
    functions = [call["function"] for call in message["tool_calls"]]
    return [(function["name"], json.loads(function["arguments"])) for function in functions]


def test_a_required_call_satisfies_its_schema(client, engine) -> None:
    engine.windows = [ids(WRONG)]
    choice = choice_of(client, tool_choice="required")
    assert choice["finish_reason"] == "tool_calls"
    (call,) = choice["message"]["tool_calls"]
    assert (call["function"]["name"], json.loads(call["function"]["arguments"])) == ("say", SAID)
    assert choice_of(client)["message"]["content"].startswith("Hello!")


def test_an_answer_without_a_call_becomes_one(client, engine) -> None:
    engine.windows = [ids("Hello you")]
    ((name, arguments),) = calls_of(client, tool_choice="required", max_tokens=60)
    assert name in ("add", "say")
    assert isinstance(arguments, dict)


def test_a_named_function(client, engine) -> None:
    engine.windows = [ids("<|tool_call>call:add{n:5}<tool_call|>" + WRONG)]
    choice = choice_of(client, tool_choice=NAMED)
    assert choice["finish_reason"] == "stop"  # OpenAI's word for calls that a request names
    (call,) = choice["message"]["tool_calls"]
    assert (call["function"]["name"], json.loads(call["function"]["arguments"])) == ("say", SAID)
    events = client.stream(CHAT, HI | {"tools": TOOLS, "tool_choice": NAMED})
    deltas = [event["choices"][0]["delta"] for event in events[:-1]]
    first, *rest = [call for delta in deltas for call in delta.get("tool_calls", [])]
    pieces = [call["function"]["arguments"] for call in (first, *rest)]
    assert (first["function"]["name"], json.loads("".join(pieces))) == ("say", SAID)
    assert events[-2]["choices"][0]["finish_reason"] == "stop"
    assert "<|tool>declaration:add" in prompt_of(engine.requests[-1])


def test_several_calls_or_one(client, engine) -> None:
    engine.windows = [ids(ONE + ONE)]
    assert calls_of(client, tool_choice="required") == [("say", SAID)] * 2
    assert calls_of(client, tool_choice="required", parallel_tool_calls=False) == [("say", SAID)]
    assert calls_of(client, tool_choice=NAMED) == [("say", SAID)]
    assert calls_of(client, parallel_tool_calls=False) == [("say", SAID)]


def test_allowed_tools(client, engine) -> None:
    def allowed(mode: str) -> dict[str, Any]:
        return {"type": "allowed_tools", "allowed_tools": {"mode": mode, "tools": [NAMED]}}

    engine.windows = [ids("<|tool_call>call:add{n:5}<tool_call|>" + ONE)]
    assert [name for name, _ in calls_of(client, tool_choice=allowed("required"))] == ["say"]
    assert "<|tool>declaration:add" in prompt_of(engine.requests[-1])
    engine.windows = [ids(f"Hm. {ONE}")]
    message = choice_of(client, tool_choice=allowed("auto"))["message"]
    assert message["content"].strip() == "Hm."
    assert message["tool_calls"][0]["function"]["name"] == "say"


def test_strict_functions_bind_where_the_model_chooses(client, engine) -> None:
    strict = [TOOLS[0], tool("say", SAY, strict=True)]
    engine.windows = [ids(WRONG)]
    message = choice_of(client, tools=strict)["message"]
    assert message["content"].strip() == "Hello!"
    (call,) = message["tool_calls"]
    assert json.loads(call["function"]["arguments"]) == SAID
    assert "strict" not in prompt_of(engine.requests[-1])
    assert len(engine.requests[-1].guides) == 1
    loose = choice_of(client, tools=[TOOLS[0], tool("say", SAY, strict=False)])["message"]
    assert json.loads(loose["tool_calls"][0]["function"]["arguments"]) != SAID
    assert engine.requests[-1].guides == ()
    engine.windows = [ids("Hello you")]
    assert choice_of(client, tools=strict)["message"]["content"] == "Hello you"


def test_no_call(client, engine) -> None:
    engine.windows = [ids("Hello you")]
    for fields in ({"tool_choice": "none"}, {"tool_choice": "none", "tools": None}):
        assert choice_of(client, **fields)["message"]["content"] == "Hello you"
        assert "declaration" not in prompt_of(engine.requests[-1])
        assert engine.requests[-1].guides == ()


def test_a_forced_call_stands_behind_the_thoughts(client, engine) -> None:
    engine.windows = [ids(f"<|channel>thought\nHm.\n<channel|>{WRONG}")]
    message = choice_of(client, tool_choice="required", reasoning_effort="high")["message"]
    assert (message["reasoning"], message["content"]) == ("Hm.", None)
    assert json.loads(message["tool_calls"][0]["function"]["arguments"]) == SAID
    message = choice_of(client, tool_choice="required", thinking_token_budget=2)["message"]
    assert "reasoning" not in message  # who is not told to think must call at once
    straight = [ids(f"<|channel>thought\nHm.{ONE}")]
    engine.windows = straight
    message = choice_of(client, tool_choice="required", reasoning_effort="high", max_tokens=40)["message"]
    assert message["reasoning"].startswith("Hm.")


def test_a_form_gives_way_to_a_forced_call(client, engine) -> None:
    engine.windows = [ids(ONE)]
    form = {"response_format": {"type": "json_object"}}
    assert calls_of(client, tool_choice="required", **form) == [("say", SAID)]


def test_anthropics_forms(client, engine) -> None:
    engine.windows = [ids(WRONG + ONE)]
    for choice in ({"type": "any"}, {"type": "tool", "name": "say"}):
        reply = client.ask("POST", MESSAGES, ANTHROPIC | {"tool_choice": choice})[1]
        assert reply["stop_reason"] == "tool_use"
        assert {block["type"] for block in reply["content"]} == {"tool_use"}
        assert reply["content"][0]["input"] == SAID
        one = choice | {"disable_parallel_tool_use": True}
        reply = client.ask("POST", MESSAGES, ANTHROPIC | {"tool_choice": one})[1]
        assert [block["name"] for block in reply["content"]] == ["say"]
    strict = [ANTHROPIC["tools"][0], ANTHROPIC["tools"][1] | {"strict": True}]
    reply = client.ask("POST", MESSAGES, ANTHROPIC | {"tools": strict})[1]
    assert [block["type"] for block in reply["content"]][:2] == ["text", "tool_use"]
    assert reply["content"][1]["input"] == SAID


def test_the_forms_of_responses(client, engine) -> None:
    engine.windows = [ids(WRONG)]
    named = {"type": "function", "name": "say"}
    allowed = {"type": "allowed_tools", "mode": "required", "tools": [named]}
    for choice in ("required", named, allowed):
        reply = client.ask("POST", RESPONSES, OF_RESPONSES | {"tool_choice": choice})[1]
        (item,) = reply["output"]
        assert (item["type"], item["name"], json.loads(item["arguments"])) == ("function_call", "say", SAID)
        assert (reply["status"], reply["tool_choice"]) == ("completed", choice)


def test_strict_functions_of_ollama(client, engine) -> None:
    engine.windows = [ids(WRONG)]
    body = {"model": "acorn", "stream": False, "tools": [tool("say", SAY, strict=True)], **HI}
    message = client.ask("POST", OLLAMA, body)[1]["message"]
    assert message["tool_calls"][0]["function"]["arguments"] == SAID


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"tool_choice": "required", "tools": None}, "tool_choice requires a call, but there are no tools"),
        ({"tool_choice": "required", "tools": []}, "tool_choice requires a call, but there are no tools"),
        (
            {"tool_choice": NAMED, "tools": None},
            "names 'say', which is not in tools: there are none",
        ),
        ({"tool_choice": NAMED, "tools": TOOLS[:1]}, "names 'say', which is not in tools: there are add"),
        ({"tool_choice": "required", "min_tokens": 5}, "min_tokens does not go with tool_choice"),
        ({"tools": [tool("f", ADD, strict=True)], "min_tokens": 5}, "min_tokens does not go with a strict"),
    ],
)
def test_choices_that_cannot_be_made(client, engine, fields, words) -> None:
    error = error_of(client.ask("POST", CHAT, HI | {"tools": TOOLS} | fields), 400)
    assert words in error["message"]
    assert error["param"] == ("min_tokens" if "min_tokens" in fields else "tool_choice")
    assert engine.requests == []


@pytest.mark.parametrize("name", ["two words", "a:b", "a{b", 'a"b', "a<b", "x" * 201])
def test_names_that_a_call_cannot_have(client, engine, name) -> None:
    engine.context = 2000
    fields = {"tools": [tool(name, ADD)], "tool_choice": "required"}
    error = error_of(client.ask("POST", CHAT, HI | fields), 400)
    assert "cannot write the name" in error["message"]


def test_a_schema_that_cannot_be_kept_is_refused_where_it_must_be(client, engine) -> None:
    bad = tool("bad", parameters(s={"type": "string", "pattern": "("}))
    error = error_of(client.ask("POST", CHAT, HI | {"tools": [bad], "tool_choice": "required"}), 400)
    assert "bad" in error["message"] or "tools[0]" in error["message"]
    engine.windows = [ids("Hello")]
    assert choice_of(client, tools=[bad])["message"]["content"] == "Hello"
