"""What only llama.cpp's server has, over HTTP with a scripted engine: completion, properties and paths."""

from __future__ import annotations

import json
from typing import Any

import pytest

from onechip.config import ServeConfig
from tests.server.scripted import HI, TOKENIZER, error_of, model, prompt_of, running, wait_until

PATH = "/completion"
ASK: dict[str, Any] = {"prompt": "Hi", "n_predict": 9}
"""What promptfoo sends, and what llama.cpp's documentation begins with."""


@pytest.mark.parametrize("path", [PATH, "/completions"])
def test_a_whole_completion(client, engine, path) -> None:
    status, reply = client.ask("POST", path, ASK)
    [request] = engine.requests
    assert status == 200
    assert (prompt_of(request), request.sampling.max_tokens) == ("<bos>Hi", 9)
    timings = reply.pop("timings")
    assert reply == {
        "content": "Hello you",
        "model": "acorn",
        "prompt": "Hi",
        "stop_type": "eos",
        "stopping_word": "",
        "tokens_predicted": 3,
        "tokens_evaluated": len(request.prompt),
        "tokens_cached": len(request.prompt) + 3,
        "index": 0,
        "stop": True,
        "tokens": [],
        "truncated": False,
    }
    assert (timings["cache_n"], timings["prompt_n"], timings["predicted_n"]) == (
        3,
        len(request.prompt) - 3,
        3,
    )
    assert timings["predicted_per_second"] == pytest.approx(3 / timings["predicted_ms"] * 1e3)


def test_a_stream(client, engine) -> None:
    *parts, last = client.stream(PATH, ASK)
    assert "".join(part["content"] for part in parts) == "Hello you"
    assert [part["stop"] for part in parts] == [False] * len(parts)
    assert (last["content"], last["stop"], last["stop_type"], last["tokens_predicted"]) == (
        "",
        True,
        "eos",
        3,
    )
    engine.error = "the chip is gone"
    assert client.stream(PATH, ASK)[-1]["error"]["message"] == "the chip is gone"


def test_why_it_ended(client, engine) -> None:
    engine.windows = [TOKENIZER.encode("1 2 3 4"), *[[7]] * 1000]
    reply = client.ask("POST", PATH, ASK | {"stop": ["3"]})[1]
    assert (reply["content"], reply["stop_type"], reply["stopping_word"]) == ("1 2 ", "word", "3")
    engine.windows = [TOKENIZER.encode('"'), *[TOKENIZER.encode("a")] * 1000]
    reply = client.ask("POST", PATH, ASK | {"json_schema": {"type": "string"}})[1]
    assert (reply["content"][:3], reply["stop_type"], reply["tokens_predicted"]) == ('"aa', "limit", 9)
    reply = client.ask("POST", PATH, ASK | {"grammar": 'root ::= "yes" | "no"'})[1]
    assert (reply["content"] in ("yes", "no"), reply["stop_type"]) == (True, "eos")


def test_what_is_asked_for(client, engine) -> None:
    asked = {
        "temperature": 0.5, "top_k": 9, "top_p": 0.8, "min_p": 0.1, "seed": 5, "repeat_penalty": 1.5,
        "repeat_last_n": -1, "cache_prompt": True, "id_slot": -1, "n_keep": 0, "dry_multiplier": 0.0,
        "typical_p": 1.0, "logit_bias": [], "ignore_eos": True,
    }  # fmt: skip
    assert client.ask("POST", PATH, ASK | asked | {"prompt": TOKENIZER.encode("Hi")})[0] == 200
    request = engine.requests[0]
    sampling = request.sampling
    assert prompt_of(request) == "Hi"
    assert (sampling.temperature, sampling.top_k, sampling.top_p, sampling.min_p) == (0.5, 9, 0.8, 0.1)
    assert (sampling.seed, sampling.repetition_penalty, sampling.ignore_eos) == (5, 1.5, True)
    client.ask("POST", PATH, {"prompt": "Hi", "max_tokens": -1, "repeat_penalty": 1.5, "repeat_last_n": 0})
    request = engine.requests[1]
    assert request.sampling.max_tokens == engine.context - len(request.prompt)
    assert request.sampling.repetition_penalty == 1
    for seed in (-1, 2**32 - 1):  # llama.cpp's for a random one
        for _ in range(2):
            client.ask("POST", PATH, ASK | {"seed": seed})
        *_, one, other = (request.sampling.seed for request in engine.requests)
        assert one != other


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"n_predict": 0}, "n_predict"),
        ({"n_predict": 1000, "ignore_eos": True}, "n_predict"),
        ({"repeat_penalty": 1.1, "repeat_last_n": 64}, "repeat_last_n"),
        ({"n_probs": 3}, "n_probs"),
        ({"mirostat": 2}, "mirostat"),
        ({"grammar": 'root ::= "a"', "json_schema": {}}, "grammar"),
        ({"prompt": [TOKENIZER.vocab_size]}, "prompt"),
        ({"max_tokens": 5}, "max_tokens"),  # beside n_predict
        ({"n_predict": None, "max_tokens": "5"}, "max_tokens"),
    ],
)
def test_refusals_name_the_field(client, engine, fields, param) -> None:
    assert error_of(client.ask("POST", PATH, ASK | fields), 400)["param"] == param
    assert engine.requests == []


def test_props(client, engine) -> None:
    props = client.ask("GET", "/props")[1]
    assert props["default_generation_settings"]["n_ctx"] == engine.context
    assert (props["total_slots"], props["model_alias"]) == (engine.max_requests, "acorn")
    assert props["chat_template"] == client.ask("POST", "/api/show", {"model": "acorn"})[1]["template"]
    assert props["modalities"] == {"vision": False, "audio": False}


def test_the_prompt_of_a_chat_request(client, engine) -> None:
    tool = {"type": "function", "function": {"name": "weather", "parameters": {"type": "object"}}}
    for fields in (
        {},
        {"tools": [tool]},
        {"tools": [tool], "tool_choice": "none", "max_tokens": 5},
        {"chat_template_kwargs": {"enable_thinking": True}},
        {"reasoning_effort": "low"},
    ):
        text = client.ask("POST", "/apply-template", HI | fields)[1]["prompt"]
        count = client.ask("POST", "/v1/chat/completions/input_tokens", HI | fields)[1]
        usage = client.ask("POST", "/v1/chat/completions", HI | fields)[1]["usage"]
        assert prompt_of(engine.requests[-1]).removeprefix("<bos>") == text.removeprefix("<bos>")
        assert ("weather" in text) == ("tools" in fields and "tool_choice" not in fields)
        assert count == {"object": "response.input_tokens", "input_tokens": usage["prompt_tokens"]}
    assert len(engine.requests) == 5  # none but for the answers
    for path in ("/apply-template", "/v1/chat/completions/input_tokens"):
        wrong = HI | {"chat_template_kwargs": {"flumox": 1}}
        assert error_of(client.ask("POST", path, wrong), 400)["param"] == "chat_template_kwargs.flumox"


def test_paths_without_v1(client) -> None:
    answered = client.ask("POST", "/chat/completions", HI)
    assert (answered[0], answered[1]["object"]) == (200, "chat.completion")
    assert client.ask("GET", "/models") == client.ask("GET", "/v1/models")
    for path in ("/v1/health", "/ping"):
        assert client.ask("GET", path) == client.ask("GET", "/health")
    error_of(client.ask("GET", "/chat/completions"), 405)


def test_the_key_is_needed_there_too(engine) -> None:
    with running(ServeConfig(api_key="sesame"), lambda progress: model(engine)) as (client, service):
        wait_until(lambda: service.state == "ready")
        body = json.dumps(ASK).encode()
        for path in (PATH, "/completions", "/chat/completions", "/apply-template"):
            error_of(client.ask("POST", path, body), 401, "authentication_error")
        for path in ("/models", "/props"):
            error_of(client.ask("GET", path), 401, "authentication_error")
            assert client.ask("GET", path, Authorization="Bearer sesame")[0] == 200
        for path in ("/v1/health", "/ping", "/health"):
            assert client.ask("GET", path)[0] == 200
        assert engine.requests == []
