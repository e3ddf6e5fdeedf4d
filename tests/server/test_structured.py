"""Answers that keep to a form, as each protocol asks for it, with a scripted engine that would not."""

from __future__ import annotations

import json
import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any

import pytest

from onechip.config import ServeConfig
from onechip.engine.guides.grammar import Grammar, Grammars
from onechip.server import service
from onechip.server.service import Model
from tests.server.scripted import CHAT, HI, TOKENIZER, error_of, model, running, wait_until

COMPLETIONS, MESSAGES, RESPONSES, OLLAMA = "/v1/completions", "/v1/messages", "/v1/responses", "/api/chat"
SCHEMA = {
    "type": "object",
    "properties": {"count": {"type": "integer"}, "done": {"type": "boolean"}},
    "required": ["count", "done"],
    "additionalProperties": False,
}
WISH = 'Sure: {"count": "7, "done": true, "more": 1} is it.'
"""Of which `{"count": 7, "done": true}` is what the schema lets pass."""
HELD = {"count": 7, "done": True}
THOUGHT = "<|channel>thought\nHm.\n<channel|>"
TOOL: dict[str, Any] = {
    "type": "function",
    "function": {"name": "f", "parameters": {"type": "object", "properties": {"n": {"type": "integer"}}}},
}


@pytest.fixture(autouse=True)
def wish(engine) -> None:
    engine.windows = [[*TOKENIZER.encode(WISH), 106]]


def content(client, **fields: Any) -> str:
    status, reply = client.ask("POST", CHAT, HI | fields)
    assert status == 200, reply
    text: str = reply["choices"][0]["message"]["content"]
    assert reply["choices"][0]["finish_reason"] == "stop"
    return text


def json_schema(schema: Any, **more: Any) -> dict[str, Any]:
    return {"type": "json_schema", "json_schema": {"name": "x", "schema": schema, **more}}


@pytest.mark.parametrize(
    "fields",
    [
        {"response_format": json_schema(SCHEMA)},
        {"response_format": json_schema(SCHEMA, strict=False)},
        {"structured_outputs": {"json": SCHEMA}},
        {"structured_outputs": {"json": json.dumps(SCHEMA), "disable_any_whitespace": True}},
        {"guided_json": SCHEMA},
        {"guided_json": json.dumps(SCHEMA)},
        {"json_schema": SCHEMA},
        {"response_format": {"type": "json_object", "schema": SCHEMA}},
    ],
)
def test_a_schema_in_each_field_that_has_one(client, fields) -> None:
    assert json.loads(content(client, **fields)) == HELD


@pytest.mark.parametrize(
    ("fields", "wish", "text"),
    [
        ({"structured_outputs": {"regex": "[a-z]{3}-[0-9]+"}}, "ABC abc-4x2", "abc-42"),
        ({"guided_regex": "[0-9]{2}"}, "I say 4 2 7", "42"),
        ({"structured_outputs": {"choice": ["yes", "no"]}}, "Well, no way", "no"),
        ({"guided_choice": ["yes", "no"]}, "yesss", "yes"),
        ({"structured_outputs": {"grammar": 'start: "a" B\nB: /b+/'}}, "xabbbb", "abbbb"),
        ({"guided_grammar": 'root ::= "a" ("b" | "c")'}, "xac", "ac"),
        ({"grammar": 'root ::= [0-9] "."'}, "So 7.", "7."),
    ],
)
def test_other_forms(client, engine, fields, wish, text) -> None:
    spelled = [id for letter in wish for id in TOKENIZER.encode(letter)]
    engine.windows = [[*spelled, 106]]
    assert content(client, **fields) == text


@pytest.mark.parametrize(
    "fields", [{"response_format": {"type": "json_object"}}, {"structured_outputs": {"json_object": True}}]
)
def test_any_json_object(client, engine, fields) -> None:
    engine.windows = [[*TOKENIZER.encode('Sure: {"a": [1, {"b": null}]} is it.'), 106]]
    assert json.loads(content(client, **fields)) == {"a": [1, {"b": None}]}


def test_completions(client) -> None:
    for fields in ({"response_format": json_schema(SCHEMA)}, {"guided_json": SCHEMA}):
        reply = client.ask("POST", COMPLETIONS, {"prompt": "x", **fields})[1]
        assert json.loads(reply["choices"][0]["text"]) == HELD


def test_each_choice_is_held(client) -> None:
    reply = client.ask("POST", CHAT, HI | {"response_format": json_schema(SCHEMA), "n": 2})[1]
    assert [json.loads(choice["message"]["content"]) for choice in reply["choices"]] == [HELD, HELD]


def test_other_protocols(client) -> None:
    text = {"format": {"type": "json_schema", "name": "x", "schema": SCHEMA, "strict": True}}
    reply = client.ask("POST", RESPONSES, {"input": "Hi", "text": text})[1]
    assert json.loads(reply["output"][0]["content"][0]["text"]) == HELD
    assert reply["text"]["format"] == text["format"]
    anthropic = {"max_tokens": 100, "output_config": {"format": {"type": "json_schema", "schema": SCHEMA}}}
    reply = client.ask("POST", MESSAGES, HI | anthropic)[1]
    assert json.loads(reply["content"][0]["text"]) == HELD
    for path, said in ((OLLAMA, HI), ("/api/generate", {"prompt": "Hi"})):
        for raw in ({}, {"raw": True}) if path != OLLAMA else ({},):
            body = {"model": "acorn", "stream": False, "format": SCHEMA, **said, **raw}
            reply = client.ask("POST", path, body)[1]
            assert json.loads(reply.get("response") or reply["message"]["content"]) == HELD


def test_json_objects_of_other_protocols(client, engine) -> None:
    engine.windows = [[*TOKENIZER.encode('Sure: {"a": 1} is it.'), 106]]
    reply = client.ask("POST", RESPONSES, {"input": "Hi", "text": {"format": {"type": "json_object"}}})[1]
    assert json.loads(reply["output"][0]["content"][0]["text"]) == {"a": 1}
    body = {"model": "acorn", "stream": False, "format": "json", **HI}
    assert json.loads(client.ask("POST", OLLAMA, body)[1]["message"]["content"]) == {"a": 1}


def test_the_form_holds_behind_the_thoughts(client, engine) -> None:
    engine.windows = [[*TOKENIZER.encode(f"{THOUGHT}{WISH}"), 106]]
    form = {"response_format": json_schema(SCHEMA)}
    reply = client.ask("POST", CHAT, HI | form | {"reasoning_effort": "high"})[1]
    said = reply["choices"][0]["message"]
    assert (said["reasoning"], json.loads(said["content"])) == ("Hm.", HELD)
    short = client.ask("POST", CHAT, HI | form | {"reasoning_effort": "low", "thinking_token_budget": 2})[1]
    said = short["choices"][0]["message"]
    assert ("reasoning" in said, json.loads(said["content"])) == (False, HELD)
    assert short["usage"]["completion_tokens_details"]["reasoning_tokens"] == 2


def test_who_is_not_told_to_think_does_not(client, engine) -> None:
    engine.windows = [[*TOKENIZER.encode(f"{THOUGHT}{WISH}"), 106]]
    reply = client.ask("POST", CHAT, HI | {"response_format": json_schema(SCHEMA)})[1]
    said = reply["choices"][0]["message"]
    assert ("reasoning" in said, json.loads(said["content"])) == (False, HELD)


def test_with_tools_an_answer_is_a_call_or_has_the_form(client, engine) -> None:
    form = {"response_format": json_schema(SCHEMA), "tools": [TOOL]}
    assert json.loads(content(client, **form)) == HELD
    engine.windows = [[*TOKENIZER.encode("Sure: <|tool_call>call:f{n:5}<tool_call|>"), 50]]
    choice = client.ask("POST", CHAT, HI | form)[1]["choices"][0]
    assert choice["finish_reason"] == "tool_calls"
    assert choice["message"]["content"] is None
    assert choice["message"]["tool_calls"][0]["function"] == {"name": "f", "arguments": '{"n":5}'}


def test_text_is_text(client) -> None:
    assert content(client, response_format={"type": "text"}) == WISH
    assert content(client, structured_outputs={"json_object": False}) == WISH


def refused(client, **fields: Any) -> tuple[str, str]:
    error = error_of(client.ask("POST", CHAT, HI | fields), 400)
    return error["param"], error["message"]


def test_what_cannot_be_compiled_is_refused_with_its_place(client, engine) -> None:
    bad = {"type": "object", "properties": {"a": {"type": "string", "pattern": "("}}}
    param, said = refused(client, response_format=json_schema(bad))
    assert param.startswith("response_format.json_schema.schema")
    assert "properties.a" in said
    assert refused(client, structured_outputs={"regex": "a("})[0] == "structured_outputs.regex"
    assert refused(client, guided_choice=[])[0] == "guided_choice"
    param, said = refused(client, structured_outputs={"grammar": "start: ("})
    assert param == "structured_outputs.grammar"
    assert refused(client, guided_json="{")[0] == "guided_json"
    assert refused(client, guided_json="[]")[0] == "guided_json"
    text = {"format": {"type": "json_schema", "name": "x", "schema": bad}}
    error = error_of(client.ask("POST", RESPONSES, {"input": "Hi", "text": text}), 400)
    assert "text.format.schema" in error["message"]
    status, reply = client.ask("POST", OLLAMA, {"model": "acorn", "format": bad, **HI})
    assert (status, "format" in reply["error"]) == (400, True)
    assert engine.requests == []


@pytest.mark.parametrize("number", [1234567890123456789, -(2**63)])
def test_a_number_that_cannot_be_held_to_is_refused_in_every_form(client, engine, number: int) -> None:
    bad = {"type": "object", "properties": {"id": {"enum": [1, number]}}}
    said = [
        refused(client, response_format=json_schema(bad))[1],
        refused(client, guided_json=json.dumps(bad))[1],
        refused(client, json_schema=bad)[1],
    ]
    asked = {"type": "json_schema", "name": "x", "schema": bad}
    reply = client.ask("POST", RESPONSES, {"input": "Hi", "text": {"format": asked}})
    said.append(error_of(reply, 400)["message"])
    asked = {"format": {"type": "json_schema", "schema": bad}}
    status, answer = client.ask("POST", MESSAGES, HI | {"max_tokens": 9, "output_config": asked})
    said.append(answer["error"]["message"])
    assert status == 400
    status, answer = client.ask("POST", OLLAMA, {"model": "acorn", "format": bad, **HI})
    said.append(answer["error"])
    assert status == 400
    place = f".properties.id.enum[1] cannot be compiled: is {number}: forms hold whole numbers up to 2**53 "
    assert [message for message in said if place not in message] == []
    assert all(message.endswith("exactly; make it a string, or leave it out.") for message in said)
    assert engine.requests == []


def test_fields_that_do_not_go_together(client) -> None:
    param, said = refused(client, guided_regex="a", response_format={"type": "json_object"})
    assert (param, "response_format and guided_regex" in said) == ("guided_regex", True)
    assert refused(client, guided_regex="a", min_tokens=3)[0] == "min_tokens"
    assert refused(client, guided_regex="a", ignore_eos=True)[0] == "ignore_eos"
    assert refused(client, response_format={"type": "structural_tag"})[0] == "response_format.type"
    assert (
        refused(client, structured_outputs={"structural_tag": "x"})[0] == "structured_outputs.structural_tag"
    )


class SlowGrammars(Grammars):
    """Gets nothing done until it may."""

    def __init__(self) -> None:
        super().__init__(TOKENIZER, TOKENIZER.vocab_size)
        self.may, self.warmed = threading.Event(), threading.Event()

    def warm(self) -> None:
        self.may.wait(60)
        super().warm()
        self.warmed.set()

    def regex(self, pattern: str, param: str) -> Grammar:
        self.warmed.wait(60)
        return super().regex(pattern, param)


@pytest.fixture
def soon_quiet(monkeypatch) -> None:
    monkeypatch.setattr(service, "QUIET_S", 0.02)


def test_grammars_are_made_ready_when_nobody_asks_anything(engine, soon_quiet) -> None:
    slow, go = SlowGrammars(), threading.Event()
    slow.may.set()

    def load(_: object) -> Model:
        assert go.wait(60)
        return replace(model(engine), grammars=slow)

    with running(ServeConfig(), load) as (_, served):
        wait_until(lambda: hasattr(served, "streams"))
        served.streams.open("one that runs", served.streams.mailbox())
        go.set()
        wait_until(lambda: served.state == "ready")
        assert not slow.warmed.wait(0.3)
        served.streams.close("one that runs")
        assert slow.warmed.wait(60)


def test_nobody_waits_for_grammars_but_those_who_ask_for_one(engine, soon_quiet) -> None:
    """Neither the start nor other requests: both that they are made ready and that they are compiled."""
    slow = SlowGrammars()
    with running(ServeConfig(), lambda _: replace(model(engine), grammars=slow)) as (client, served):
        wait_until(lambda: served.state == "ready")
        engine.loop = served.loop
        engine.windows = [[*TOKENIZER.encode("Sure 42"), 106]]
        with ThreadPoolExecutor() as pool:
            held = pool.submit(content, client, guided_regex="[0-9]+")
            assert content(client) == "Sure 42"
            assert not held.done()
            slow.may.set()
            assert held.result(60) == "42"
