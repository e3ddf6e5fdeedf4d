"""/v1/responses over HTTP with a scripted engine: items, events and their order, refusals."""

from __future__ import annotations

from typing import Any

import pytest

from tests.server.scripted import THINKING_CALL, TOKENIZER, error_of, prompt_of

PATH = "/v1/responses"
TOOLS = [
    {
        "type": "function",
        "name": "f",
        "parameters": {"type": "object", "properties": {"s": {"type": "string"}}},
    }
]
ASK: dict[str, Any] = {"input": "Hi"}
ORDER = [
    "response.created",
    "response.in_progress",
    "response.output_item.added",
    "response.content_part.added",
    "response.reasoning_text.delta",
    "response.reasoning_text.done",
    "response.content_part.done",
    "response.output_item.done",
    "response.output_item.added",
    "response.content_part.added",
    "response.output_text.delta",
    "response.output_text.done",
    "response.content_part.done",
    "response.output_item.done",
    "response.output_item.added",
    "response.function_call_arguments.delta",
    "response.function_call_arguments.done",
    "response.output_item.done",
    "response.completed",
]
"""Events of an answer that thinks, says something and calls a function, repetitions left out."""


def types(items: list[Any]) -> list[str]:
    return [item["type"] for item in items]


def test_a_whole_response(client, engine) -> None:
    engine.windows = [THINKING_CALL]
    status, reply = client.ask(
        "POST", PATH, ASK | {"tools": TOOLS, "metadata": {"a": "b"}, "temperature": 0.5}
    )
    assert status == 200
    thought, said, call = reply["output"]
    assert [thought.pop("id")[:3], said.pop("id")[:4], call.pop("id")[:3]] == ["rs_", "msg_", "fc_"]
    part = {"type": "output_text", "text": "Look.", "annotations": [], "logprobs": []}
    done = {"status": "completed"}
    hm = {"type": "reasoning_text", "text": "Hm."}
    assert thought == done | {"type": "reasoning", "content": [hm], "summary": []}
    assert said == done | {"type": "message", "role": "assistant", "content": [part]}
    assert call.pop("call_id").startswith("call_")
    assert call == done | {"type": "function_call", "name": "f", "arguments": '{"s":"a\\"b"}'}
    prompt, thoughts = len(engine.requests[0].prompt), len(TOKENIZER.encode("thought\nHm.\n"))
    assert reply["usage"] == {
        "input_tokens": prompt,
        "input_tokens_details": {"cached_tokens": 3, "cache_write_tokens": 0},
        "output_tokens": len(THINKING_CALL),
        "output_tokens_details": {"reasoning_tokens": thoughts},
        "total_tokens": prompt + len(THINKING_CALL),
    }
    told = {"object": "response", "status": "completed", "model": "acorn", "error": None, "store": False,
            "incomplete_details": None, "temperature": 0.5, "top_p": 0.95, "metadata": {"a": "b"},
            "tool_choice": "auto", "parallel_tool_calls": True, "previous_response_id": None}  # fmt: skip
    assert told.items() <= reply.items()
    assert reply["id"].startswith("resp_")


@pytest.mark.parametrize("at_once", [True, False], ids=["one window", "token by token"])
def test_the_events_of_a_stream(client, engine, at_once) -> None:
    engine.windows = [THINKING_CALL] if at_once else [[id] for id in THINKING_CALL]
    events = client.events(PATH, ASK | {"tools": TOOLS})
    assert [event["sequence_number"] for event in events] == list(range(len(events)))
    names = types(events)
    assert [name for at, name in enumerate(names) if names[at - 1] != name] == ORDER
    added, done, deltas = [], [], {}
    for event in events:
        if event["type"].endswith(".delta"):
            place = (event["output_index"], event["item_id"])
            deltas[place] = deltas.get(place, "") + event["delta"]
        elif event["type"] == "response.output_item.added":
            added.append(event["item"])
        elif event["type"] == "response.output_item.done":
            done.append(event["item"])
    assert [item.get("content", item.get("arguments")) for item in added] == [[], [], ""]
    assert {item["status"] for item in added} == {"in_progress"}
    assert deltas == {
        (0, done[0]["id"]): "Hm.",
        (1, done[1]["id"]): "Look.",
        (2, done[2]["id"]): '{"s":"a\\"b"}',
    }
    assert [item["id"] for item in added] == [item["id"] for item in done]
    last = events[-1]["response"]
    assert (last["status"], last["output"]) == ("completed", done)
    assert events[0]["response"]["output"] == []


def test_an_empty_answer_has_a_message(client, engine) -> None:
    engine.windows = [[106]]
    assert types(client.ask("POST", PATH, ASK)[1]["output"]) == ["message"]
    names = types(client.events(PATH, ASK))
    assert names[2:4] == ["response.output_item.added", "response.content_part.added"]
    assert names[4] == "response.output_text.done"


def test_the_conversation_becomes_a_prompt(client, engine) -> None:
    engine.windows = [THINKING_CALL]
    output = client.ask("POST", PATH, ASK | {"tools": TOOLS})[1]["output"]
    result = {"type": "function_call_output", "call_id": output[-1]["call_id"], "output": "ok"}
    again = [
        {"role": "developer", "content": "Short."},
        {"role": "user", "content": [{"type": "input_text", "text": "Hi"}]},
        *output,
        result,
    ]
    assert client.ask("POST", PATH, {"instructions": "Be kind.", "input": again, "tools": TOOLS})[0] == 200
    prompt = prompt_of(engine.requests[-1])
    assert prompt.startswith("<bos><|turn>system\nBe kind.\n\nShort.<|tool>declaration:f{")
    assert (
        "<|turn>user\nHi<turn|>\n<|turn>model\n<|channel>thought\nHm.\n<channel|>"
        '<|tool_call>call:f{s:<|"|>a"b<|"|>}<tool_call|>'
        '<|tool_response>response:f{value:<|"|>ok<|"|>}<tool_response|>Look.<turn|>\n'
    ) in prompt
    counted = client.ask("POST", f"{PATH}/input_tokens", {"input": again, "tools": TOOLS})[1]
    assert counted["object"] == "response.input_tokens"
    alone = client.ask("POST", PATH, {"input": again, "tools": TOOLS})[1]["usage"]["input_tokens"]
    assert counted["input_tokens"] == alone


def test_two_answers_in_a_row_stay_two(client, engine) -> None:
    said = [{"type": "message", "role": "assistant", "content": text} for text in ("One", "Two")]
    assert client.ask("POST", PATH, {"input": [{"role": "user", "content": "Hi"}, *said]})[0] == 200
    assert "model\nOneTwo<turn|>" in prompt_of(engine.requests[0])


@pytest.mark.parametrize(("effort", "thinks"), [("none", False), ("low", True), ("high", True)])
def test_effort_says_whether_to_think(client, engine, effort, thinks) -> None:
    assert client.ask("POST", PATH, ASK | {"reasoning": {"effort": effort, "summary": "auto"}})[0] == 200
    assert ("<|think|>" in prompt_of(engine.requests[0])) == thinks


def test_an_answer_that_fails_on_the_way(client, engine) -> None:
    engine.error = "the chip is gone"
    *_, last = client.events(PATH, ASK)
    assert (last["type"], last["response"]["status"]) == ("response.failed", "failed")
    assert last["response"]["error"] == {"code": "server_error", "message": "the chip is gone"}


USER = {"role": "user", "content": "Hi"}


@pytest.mark.parametrize(
    ("fields", "param", "words"),
    [
        ({"store": True}, "store", "nothing is stored"),
        ({"previous_response_id": "resp_1"}, "previous_response_id", "send the conversation so far in input"),
        ({"conversation": "conv_1"}, "conversation", "send the conversation so far in input"),
        ({"background": True}, "background", "wait for the answer"),
        ({"truncation": "auto"}, "truncation", "shorten input yourself"),
        ({"include": ["file_search_call.results"]}, "include[0]", "reasoning.encrypted_content"),
        ({"text": {"format": {"type": "xml"}}}, "text.format.type", "text, json_object or json_schema"),
        ({"text": {"format": {"type": "json_schema"}}}, "text.format.schema", "is missing"),
        ({"text": {"verbosity": "low"}}, "text.verbosity", "text.verbosity is not supported"),
        ({"reasoning": {"effort": "huge"}}, "reasoning.effort", '"huge"'),
        ({"reasoning": {"efort": "low"}}, "reasoning.efort", "did you mean reasoning.effort?"),
        ({"tools": [{"type": "web_search"}]}, "tools[0].type", "no tool runs on this server"),
        ({"tool_choice": "required"}, "tool_choice", "there are no tools"),
        ({"tool_choice": {"type": "web_search"}}, "tool_choice.type", "no tool runs on this server"),
        ({"input": []}, "input", "length >= 1"),
        ({"input": [{"type": "item_reference", "id": "x"}]}, "input[0].type", "function_call_output"),
        ({"input": [USER | {"content": [{"type": "input_image"}]}]}, "input[0].content[0].type", "text only"),
        (
            {"input": [USER, {"type": "function_call_output", "call_id": "c", "output": "1"}]},
            "input",
            "no such call",
        ),
    ],
)
def test_refusals_name_field_value_and_mend(client, engine, fields, param, words) -> None:
    error = error_of(client.ask("POST", PATH, ASK | fields), 400)
    assert error["param"] == param
    assert words in error["message"]
    assert engine.requests == []


def test_what_asks_for_nothing_is_taken(client) -> None:
    neutral = {
        "store": False, "previous_response_id": None, "background": False, "truncation": "disabled",
        "include": ["reasoning.encrypted_content"], "service_tier": "auto", "text": {"verbosity": "medium"},
        "top_logprobs": 0, "user": "me", "prompt_cache_key": "k",
        "stream_options": {"include_obfuscation": False},
    }  # fmt: skip
    assert client.ask("POST", PATH, ASK | neutral)[0] == 200
