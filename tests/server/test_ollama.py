"""Ollama's API over HTTP with a scripted engine: lines, figures, options, errors."""

from __future__ import annotations

from datetime import datetime
from typing import Any

import pytest

from onechip.config import ServeConfig
from tests.server.scripted import (
    THINKING_CALL,
    TOKENIZER,
    model,
    prompt_of,
    running,
    wait_until,
)

CHAT, GENERATE = "/api/chat", "/api/generate"
PARAMETERS = {"type": "object", "properties": {"s": {"type": "string"}}}
TOOLS = [{"type": "function", "function": {"name": "f", "parameters": PARAMETERS}}]
USER = {"role": "user", "content": "Hi"}
ASK: dict[str, Any] = {"model": "acorn", "messages": [USER]}
CALLED = {"index": 0, "name": "f", "arguments": {"s": 'a"b'}}


def test_a_stream_of_lines(client, engine) -> None:
    engine.windows = [[id] for id in THINKING_CALL]
    *lines, last = client.lines(CHAT, ASK | {"tools": TOOLS})
    assert {line["model"] for line in lines} == {"acorn"}
    assert not any(line["done"] for line in lines)
    assert all(datetime.fromisoformat(line["created_at"]) for line in lines)
    messages = [line["message"] for line in lines]
    assert "".join(message.get("thinking", "") for message in messages) == "Hm."
    assert "".join(message["content"] for message in messages) == "Look."
    (call,) = [call for message in messages for call in message.get("tool_calls", [])]
    assert call["function"] == CALLED
    assert (last["done"], last["done_reason"], last["message"]["content"]) == (True, "stop", "")
    counts = len(engine.requests[0].prompt), len(THINKING_CALL)
    assert (last["prompt_eval_count"], last["eval_count"]) == counts
    assert last["load_duration"] == 0
    assert last["prompt_eval_duration"] > 0 < last["eval_duration"]
    whole = last["prompt_eval_duration"] + last["eval_duration"]
    assert abs(last["total_duration"] - whole) <= 2  # each is rounded to a nanosecond


def test_a_whole_answer(client, engine) -> None:
    engine.windows = [THINKING_CALL]
    status, reply = client.ask("POST", CHAT, ASK | {"tools": TOOLS, "stream": False})
    assert (status, reply["done"]) == (200, True)
    message = reply["message"]
    assert (message["role"], message["content"], message["thinking"]) == ("assistant", "Look.", "Hm.")
    assert message["tool_calls"][0]["function"] == CALLED


def test_generate(client, engine) -> None:
    *lines, last = client.lines(GENERATE, {"model": "acorn:latest", "prompt": "Hi", "system": "Be kind."})
    assert "".join(line["response"] for line in lines) == "Hello you"
    assert (last["response"], last["done_reason"], last["model"]) == ("", "stop", "acorn:latest")
    assert prompt_of(engine.requests[0]).startswith(
        "<bos><|turn>system\nBe kind.<turn|>\n<|turn>user\nHi<turn|>"
    )
    reply = client.ask("POST", GENERATE, {"model": "acorn", "prompt": "Hi", "raw": True, "stream": False})[1]
    assert reply["response"] == "Hello you"
    assert prompt_of(engine.requests[1]) == "<bos>Hi"


def test_nothing_asked_says_that_the_model_is_loaded(client, engine) -> None:
    for path in (CHAT, GENERATE):
        reply = client.ask("POST", path, {"model": "acorn"})[1]
        assert (reply["done"], reply["done_reason"]) == (True, "load")
    assert engine.requests == []


def test_options(client, engine) -> None:
    options = {
        "num_predict": 7, "temperature": 0.5, "top_k": 9, "top_p": 0.8, "min_p": 0.1, "seed": 5,
        "num_ctx": 100, "num_thread": 8, "repeat_penalty": 1.0, "stop": ["x"],
    }  # fmt: skip
    client.lines(CHAT, ASK | {"options": options, "keep_alive": "5m"})
    sampling = engine.requests[0].sampling
    assert (sampling.max_tokens, sampling.temperature, sampling.top_k) == (7, 0.5, 9)
    assert (sampling.top_p, sampling.min_p, sampling.seed) == (0.8, 0.1, 5)
    client.lines(CHAT, ASK | {"options": {"num_predict": -1, "num_ctx": 100}})
    assert engine.requests[1].sampling.max_tokens == 100 - len(engine.requests[1].prompt)
    client.lines(CHAT, ASK | {"options": {"num_predict": -1}})
    assert engine.requests[2].sampling.max_tokens == engine.context - len(engine.requests[2].prompt)
    for _ in range(2):  # Ollama's for a random one
        client.lines(CHAT, ASK | {"options": {"seed": -1}})
    assert engine.requests[3].sampling.seed != engine.requests[4].sampling.seed


@pytest.mark.parametrize(("think", "thinks"), [(True, True), (False, False), ("low", True)])
def test_think(client, engine, think, thinks) -> None:
    client.lines(CHAT, ASK | {"think": think})
    assert ("<|think|>" in prompt_of(engine.requests[0])) == thinks


@pytest.mark.parametrize("said", [{"tool_name": "f"}, {}, {"tool_call_id": "7"}])
def test_results_find_their_calls(client, engine, said) -> None:
    call = {"function": {"name": "f", "arguments": {"s": "a"}}}
    call |= {"id": "7"} if "tool_call_id" in said else {}
    other = {"function": {"name": "g", "arguments": {}}}
    calls = [call, other] if not said else [other, call]
    history = [
        USER,
        {"role": "assistant", "content": "", "tool_calls": calls},
        {"role": "tool", "content": "ok"} | said,
    ]
    client.lines(CHAT, ASK | {"messages": history, "tools": TOOLS})
    assert 'response:f{value:<|"|>ok<|"|>}' in prompt_of(engine.requests[0])


def test_what_there_is_to_ask(client) -> None:
    (listed,) = client.ask("GET", "/api/tags")[1]["models"]
    assert (listed["name"], listed["details"]["format"]) == ("acorn", "safetensors")
    shown = client.ask("POST", "/api/show", {"model": "acorn"})[1]
    assert shown["capabilities"] == ["completion", "tools", "thinking"]
    assert shown["model_info"]["gemma4_text.context_length"] == 200
    assert client.ask("POST", "/api/show", {"name": "acorn:latest", "verbose": True})[1] == shown
    assert client.ask("GET", "/api/version")[1]["version"] >= "0.13.4"


@pytest.mark.parametrize(
    ("path", "fields", "words"),
    [
        (CHAT, {"format": "xml"}, "format is \"xml\": allowed is json, or a JSON schema"),
        (CHAT, {"options": {"num_predict": 0}}, "options.num_predict is 0"),
        (CHAT, {"options": {"mirostat": 2}}, "options.mirostat is not supported"),
        (CHAT, {"options": {"repeat_penalty": 1.1, "repeat_last_n": 64}}, "options.repeat_last_n is 64"),
        (CHAT, {"top_logprobs": 2}, "top_logprobs needs logprobs"),
        (CHAT, {"options": {"tempreature": 1}}, "did you mean options.temperature?"),
        (CHAT, {"messages": [USER | {"images": ["aGk="]}]}, "reads text only"),
        (CHAT, {"messages": [USER, {"role": "tool", "content": "1"}]}, "messages[1] has a tool's result"),
        (CHAT, {"messages": [USER, {"role": "tool", "content": "1", "tool_call_id": "c"}]}, "no such call"),
        (GENERATE, {"prompt": "a", "context": [1]}, "send the messages so far"),
        (GENERATE, {"prompt": "a", "template": "x"}, "for another prompt set raw"),
        (GENERATE, {"prompt": "a", "raw": True, "system": "x"}, "system has no place in a raw prompt"),
    ],
)  # fmt: skip
def test_refusals_name_field_value_and_mend(client, engine, path, fields, words) -> None:
    start = ASK if path == CHAT else {"model": "acorn"}
    status, body = client.ask("POST", path, start | fields)
    assert (status, set(body)) == (400, {"error"})
    for word in words.split(".*"):
        assert word in body["error"]
    assert engine.requests == []


def test_errors_have_ollamas_body(client, engine) -> None:
    assert set(client.ask("POST", CHAT, ASK | {"model": "llama"})[1]) == {"error"}
    assert client.ask("POST", CHAT, {"messages": []}) == (400, {"error": "model is missing."})
    for path in ("/api/embed", "/api/embeddings", "/api/pull", "/api/delete", "/api/nothing"):
        status, body = client.ask("POST", path, {"model": "acorn"})
        assert (status, set(body)) == (404, {"error"})
    assert "an embedding model" in client.ask("POST", "/api/embed", {})[1]["error"]
    assert "an embedding model" in client.ask("POST", "/v1/embeddings", {})[1]["error"]["message"]
    engine.error = "the chip is gone"
    assert client.lines(CHAT, ASK)[-1] == {"error": "the chip is gone"}
    with running(ServeConfig(api_key="sesame"), lambda progress: model(engine)) as (guarded, service):
        wait_until(lambda: service.state == "ready")
        assert guarded.ask("GET", "/api/tags")[0] == 401


def test_a_call_without_arguments(client, engine) -> None:
    engine.windows = [[*TOKENIZER.encode("<|tool_call>call:f{}<tool_call|>"), 50]]
    reply = client.ask("POST", CHAT, ASK | {"tools": TOOLS, "stream": False})[1]
    assert reply["message"]["tool_calls"][0]["function"]["arguments"] == {}
