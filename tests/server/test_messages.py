"""/v1/messages over HTTP with a scripted engine: blocks, events and their order, Anthropic's errors."""

from __future__ import annotations

from typing import Any

import pytest

from onechip.config import ServeConfig
from tests.server.scripted import THINKING_CALL, TOKENIZER, model, prompt_of, running, wait_until

PATH = "/v1/messages"
TOOLS = [
    {"name": "f", "input_schema": {"type": "object", "properties": {"s": {"type": "string"}}}},
]
USER = {"role": "user", "content": "Hi"}
ASK: dict[str, Any] = {"max_tokens": 50, "messages": [USER]}


def anthropic_error_of(reply: tuple[int, Any], status: int, kind: str = "invalid_request_error") -> Any:
    assert reply[0] == status
    assert set(reply[1]) == {"type", "error"}
    assert reply[1]["type"] == "error"
    assert reply[1]["error"]["type"] == kind
    return reply[1]["error"]


def test_a_whole_message(client, engine) -> None:
    engine.windows = [THINKING_CALL]
    status, reply = client.ask("POST", PATH, ASK | {"tools": TOOLS})
    assert status == 200
    assert reply.pop("id").startswith("msg_")
    call = reply["content"][2]
    thoughts = len(TOKENIZER.encode("thought\nHm.\n"))
    assert reply == {
        "type": "message",
        "role": "assistant",
        "model": "acorn",
        "content": [
            {"type": "thinking", "thinking": "Hm.", "signature": ""},
            {"type": "text", "text": "Look."},
            {"type": "tool_use", "id": call["id"], "name": "f", "input": {"s": 'a"b'}},
        ],
        "stop_reason": "tool_use",
        "stop_sequence": None,
        "usage": {
            "input_tokens": len(engine.requests[0].prompt) - 3,
            "cache_read_input_tokens": 3,
            "cache_creation_input_tokens": 0,
            "output_tokens": len(THINKING_CALL),
            "output_tokens_details": {"thinking_tokens": thoughts},
            "service_tier": "standard",
        },
    }


@pytest.mark.parametrize("at_once", [True, False], ids=["one window", "token by token"])
def test_the_events_of_a_stream(client, engine, at_once) -> None:
    engine.windows = [THINKING_CALL] if at_once else [[id] for id in THINKING_CALL]
    events = client.events(PATH, ASK | {"tools": TOOLS})
    names = [event["type"] for event in events]
    block = ["content_block_start", "content_block_delta", "content_block_stop"]
    assert [name for at, name in enumerate(names) if names[at - 1] != name] == [
        "message_start", *block, *block, *block, "message_delta", "message_stop",
    ]  # fmt: skip
    start = events[0]["message"]
    assert (start["content"], start["stop_reason"]) == ([], None)
    blocks = [event["content_block"] for event in events if event["type"] == "content_block_start"]
    assert blocks[:2] == [
        {"type": "thinking", "thinking": "", "signature": ""},
        {"type": "text", "text": ""},
    ]
    assert (blocks[2]["name"], blocks[2]["input"]) == ("f", {})
    texts = ["", "", ""]
    for event in events:
        if event["type"] == "content_block_delta":
            delta = event["delta"]
            kind = delta.pop("type")
            assert kind == ("thinking_delta", "text_delta", "input_json_delta")[event["index"]]
            (piece,) = delta.values()
            texts[event["index"]] += piece
    assert texts == ["Hm.", "Look.", '{"s":"a\\"b"}']
    assert events[-2]["delta"] == {"stop_reason": "tool_use", "stop_sequence": None}
    assert events[-2]["usage"]["output_tokens"] == len(THINKING_CALL)


def test_the_conversation_becomes_a_prompt(client, engine) -> None:
    engine.windows = [THINKING_CALL]
    content = client.ask("POST", PATH, ASK | {"tools": TOOLS})[1]["content"]
    result = {"type": "tool_result", "tool_use_id": content[-1]["id"], "content": "no", "is_error": True}
    marked = {"type": "text", "text": "Go on.", "cache_control": {"type": "ephemeral"}}
    again = [
        USER,
        {"role": "assistant", "content": content},
        {"role": "user", "content": [result, marked]},
    ]
    asked = {"messages": again, "tools": TOOLS, "system": [{"type": "text", "text": "Be kind."}]}
    assert client.ask("POST", PATH, asked | {"max_tokens": 5})[0] == 200
    prompt = prompt_of(engine.requests[-1])
    assert prompt.startswith("<bos><|turn>system\nBe kind.")
    assert prompt.endswith(
        '<|turn>model\n<|tool_call>call:f{s:<|"|>a"b<|"|>}<tool_call|>'
        '<|tool_response>response:f{value:<|"|>Error: no<|"|>}<tool_response|>Look.<turn|>\n'
        "<|turn>user\nGo on.<turn|>\n<|turn>model\n"
    )
    counted = client.ask("POST", f"{PATH}/count_tokens", asked)
    assert counted == (200, {"input_tokens": len(engine.requests[-1].prompt)})


@pytest.mark.parametrize(
    ("thinking", "thinks"),
    [
        ({"type": "enabled", "budget_tokens": 1024}, True),
        ({"type": "adaptive"}, True),
        ({"type": "disabled"}, False),
    ],
)
def test_thinking(client, engine, thinking, thinks) -> None:
    assert client.ask("POST", PATH, ASK | {"thinking": thinking})[0] == 200
    assert ("<|think|>" in prompt_of(engine.requests[0])) == thinks


def test_one_call_is_enough_where_the_client_says_so(client, engine) -> None:
    engine.windows = [TOKENIZER.encode("<|tool_call>call:f{}<tool_call|>"), *[[7]] * 1000]
    choice = {"type": "auto", "disable_parallel_tool_use": True}
    reply = client.ask("POST", PATH, ASK | {"tools": TOOLS, "tool_choice": choice})[1]
    assert [block["input"] for block in reply["content"]] == [{}]
    assert list(engine.cancelled) == [engine.requests[0].id]
    engine.windows = [[106]]
    client.ask("POST", PATH, ASK | {"tools": TOOLS, "tool_choice": {"type": "none"}})
    assert "<|tool>" not in prompt_of(engine.requests[1])


def test_the_stop_sequence_that_was_met_is_said(client, engine) -> None:
    engine.windows = [TOKENIZER.encode("1 2 3 4"), TOKENIZER.encode(" 5 6 7"), *[[7]] * 1000]
    asked = ASK | {"stop_sequences": ["6", "4 5"]}
    reply = client.ask("POST", PATH, asked)[1]
    assert (reply["content"], reply["stop_reason"], reply["stop_sequence"]) == (
        [{"type": "text", "text": "1 2 3 "}],
        "stop_sequence",
        "4 5",
    )
    assert client.events(PATH, asked)[-2]["delta"] == {"stop_reason": "stop_sequence", "stop_sequence": "4 5"}


def test_an_answer_that_fails_on_the_way(client, engine) -> None:
    engine.error = "the chip is gone"
    *_, last = client.events(PATH, ASK)
    assert last == {"type": "error", "error": {"type": "api_error", "message": "the chip is gone"}}
    anthropic_error_of(client.ask("POST", PATH, ASK), 503, "api_error")
    engine.queue_full = True
    anthropic_error_of(client.ask("POST", PATH, ASK), 429, "rate_limit_error")


def said(role: str, **block: Any) -> dict[str, Any]:
    return {"messages": [USER, {"role": role, "content": [block]}]}


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"max_tokens": None}, "max_tokens is missing"),
        ({"temperature": 1.5}, "temperature is 1.5"),
        ({"top_k": 2**31}, "top_k is 2147483648"),
        ({"top_k": 0}, "top_k is 0"),
        ({"tool_choice": {"type": "some"}}, 'tool_choice.type is "some": allowed is auto, any, tool or none'),
        ({"tool_choice": {"type": "any"}}, "tool_choice requires a call, but there are no tools"),
        ({"tools": [{"type": "web_search_20250305", "name": "w"}]}, "tools[0].type"),
        ({"thinking": {"type": "enabled"}}, "thinking.budget_tokens is missing"),
        ({"thinking": {"type": "adaptive", "display": "omitted"}}, "they are not left out"),
        ({"output_config": {"format": {"type": "xml"}}}, 'output_config.format.type is "xml": allowed is'),
        ({"mcp_servers": [{}]}, "mcp_servers is not supported"),
        ({"stop_sequence": "x"}, "Unknown field: stop_sequence; did you mean stop_sequences?"),
        (said("user", type="image", source={}), "reads text only"),
        (said("user", type="tool_result", tool_use_id="x"), "no such call before it"),
    ],
)
def test_refusals_name_field_value_and_mend(client, engine, fields, words) -> None:
    error = anthropic_error_of(client.ask("POST", PATH, ASK | fields), 400)
    assert words in error["message"]
    assert "details" not in error
    assert engine.requests == []


def test_a_thread_is_refused_so_that_the_client_goes_on_without(client) -> None:
    error = anthropic_error_of(client.ask("POST", PATH, ASK | {"thread": {"type": "create"}}), 400)
    assert "send the whole conversation in messages" in error["message"]
    assert error["details"] == {"error_code": "thread_unsupported_request", "unsupported": ["thread"]}


def test_other_errors_have_anthropics_body_too(client, engine) -> None:
    anthropic_error_of(client.ask("GET", PATH), 405)
    anthropic_error_of(client.ask("POST", PATH, b"{"), 400)
    anthropic_error_of(client.ask("POST", f"{PATH}/batches", {}), 404, "not_found_error")
    with running(ServeConfig(api_key="sesame"), lambda progress: model(engine)) as (guarded, service):
        wait_until(lambda: service.state == "ready")
        anthropic_error_of(guarded.ask("POST", PATH, ASK), 401, "authentication_error")
        assert guarded.ask("POST", PATH, ASK, x_api_key="sesame")[0] == 200
