"""What coding agents send in every request, word for word but shortened, and what they read of the answer.

Recorded on 2026-12-01 between the server and Claude Code 2.1.197, Codex 0.171.0, opencode, LangChain and
ollama-ai-provider-v2 in their default settings.
"""

from __future__ import annotations

import re
from datetime import datetime
from typing import Any

import pytest

from tests.models.small_tokenizers import CHATML, byte_level
from tests.server.scripted import CHAT, HI, TOKENIZER, error_of, prompt_of
from tests.server.test_families import CHATML_TEMPLATE, serving

MESSAGES, RESPONSES, OLLAMA = "/v1/messages", "/v1/responses", "/api/chat"
SHELL = {"type": "object", "properties": {"command": {"type": "string"}}, "required": ["command"]}
CLAUDE_CODE: dict[str, Any] = {
    "model": "acorn",
    "messages": [
        {
            "role": "user",
            "content": [
                {"type": "text", "text": "<system-reminder>\nToday.\n</system-reminder>"},
                {"type": "text", "text": "say the marker", "cache_control": {"type": "ephemeral"}},
            ],
        },
        {"role": "system", "content": "Available agent types for the Agent tool:\n- claude"},
    ],
    "system": [
        {"type": "text", "text": "x-anthropic-billing-header: cc_version=2.1.197.b97;"},
        {"type": "text", "text": "You are an agent.", "cache_control": {"type": "ephemeral"}},
    ],
    "tools": [
        {
            "name": "Bash",
            "description": "Executes a bash command.",
            "input_schema": {"$schema": "https://json-schema.org/draft/2020-12/schema"} | SHELL,
        }
    ],
    "metadata": {"user_id": '{"device_id":"ab5cd8","account_uuid":""}'},
    "max_tokens": 32000,
    "thinking": {"type": "adaptive"},
    "context_management": {"edits": [{"type": "clear_thinking_20251015", "keep": "all"}]},
    "output_config": {"effort": "high"},
    "stream": True,
}
FUNCTION = {"type": "function", "name": "exec_command", "strict": False, "parameters": SHELL}
INNER = {"type": "function", "name": "close", "strict": False, "parameters": {"type": "object"}}
CODEX: dict[str, Any] = {
    "model": "acorn",
    "input": [
        {
            "type": "message",
            "id": "msg_1",
            "role": role,
            "content": [{"type": "input_text", "text": text}],
        }
        for role, text in (("developer", "You are an agent."), ("user", "say the marker"))
    ],
    "tools": [
        FUNCTION,
        {"type": "namespace", "name": "agents", "description": "Tools for agents.", "tools": [INNER]},
        {"type": "web_search", "external_web_access": False},
    ],
    "tool_choice": "auto",
    "parallel_tool_calls": True,
    "reasoning": {"summary": "auto"},
    "store": False,
    "include": ["reasoning.encrypted_content"],
    "prompt_cache_key": "01a22fbd",
    "client_metadata": {"x-codex-installation-id": "dd9a0d0b", "turn_id": "01a22fbd"},
    "stream": True,
}


@pytest.fixture
def roomy(engine) -> None:
    engine.context = 4096


@pytest.mark.usefixtures("roomy")
def test_claude_code(client, engine) -> None:
    engine.windows = [TOKENIZER.encode('<|tool_call>call:Bash{command:<|"|>ls<|"|>}<tool_call|>'), [50]]
    *_, ending, stop = client.events(f"{MESSAGES}?beta=true", CLAUDE_CODE)
    assert (ending["delta"]["stop_reason"], stop["type"]) == ("tool_use", "message_stop")
    prompt = prompt_of(engine.requests[0])
    assert "<|think|>" in prompt
    assert "declaration:Bash{" in prompt
    assert prompt.index("say the marker") < prompt.index("Available agent types")
    counted = {name: CLAUDE_CODE[name] for name in ("model", "messages", "system", "tools", "thinking")}
    status, reply = client.ask("POST", f"{MESSAGES}/count_tokens?beta=true", counted)
    assert (status, reply["input_tokens"]) == (200, len(engine.requests[0].prompt))


def test_claude_code_with_a_model_that_cannot_think() -> None:
    """`adaptive` leaves it to the model, and is no wish that could not be kept."""
    with serving(byte_level(CHATML), CHATML_TEMPLATE, eos_token="<|im_end|>") as (client, engine, tokenizer):
        asked = {
            "max_tokens": 5,
            "messages": [{"role": "user", "content": "Hi"}],
            "output_config": {"effort": "high"},
        }
        engine.windows = [tokenizer.encode("Hi")]
        assert client.ask("POST", MESSAGES, asked | {"thinking": {"type": "adaptive"}})[0] == 200
        status, reply = client.ask(
            "POST", MESSAGES, asked | {"thinking": {"type": "enabled", "budget_tokens": 9}}
        )
        assert (status, "knows nothing of thinking" in reply["error"]["message"]) == (400, True)


@pytest.mark.parametrize(
    "edit", [{"type": "clear_tool_uses_20250919"}, {"type": "compact_20260112"}], ids=["tools", "compact"]
)
def test_what_would_cut_a_conversation_is_refused(client, edit) -> None:
    asked = CLAUDE_CODE | {"context_management": {"edits": [edit]}}
    status, reply = client.ask("POST", MESSAGES, asked)
    assert status == 400
    assert "shorten messages yourself" in reply["error"]["message"]


@pytest.mark.usefixtures("roomy")
def test_codex(client, engine) -> None:
    """Functions in a namespace are told of, called and handed back under its name."""
    engine.windows = [TOKENIZER.encode("<|tool_call>call:agents.close{}<tool_call|>"), [50]]
    events = client.events(RESPONSES, CODEX)
    prompt = prompt_of(engine.requests[0])
    assert "declaration:exec_command{" in prompt
    assert "declaration:agents.close{" in prompt
    assert "web_search" not in prompt
    named = {"type": "function_call", "name": "close", "namespace": "agents"}
    items = [event["item"] for event in events if event["type"].startswith("response.output_item.")]
    items += events[-1]["response"]["output"]
    assert len(items) == 3
    assert all(item.items() >= named.items() for item in items)
    [done] = [event for event in events if event["type"] == "response.function_call_arguments.done"]
    assert (done["name"], done["arguments"]) == ("close", "{}")
    assert events[-1]["response"]["tools"][1]["tools"][0]["name"] == "close"
    result = {"type": "function_call_output", "call_id": items[-1]["call_id"], "output": "closed"}
    engine.windows = [[*TOKENIZER.encode("Done."), 106]]
    client.events(RESPONSES, CODEX | {"input": [*CODEX["input"], items[-1], result]})
    handed_back = prompt_of(engine.requests[1])
    assert "<|tool_call>call:agents.close{}<tool_call|>" in handed_back
    assert 'response:agents.close{value:<|"|>closed<|"|>}' in handed_back


@pytest.mark.usefixtures("roomy")
@pytest.mark.parametrize(
    "tool", [{"type": "web_search"}, {"type": "web_search", "external_web_access": True}]
)
def test_a_search_of_the_web_is_refused(client, engine, tool) -> None:
    error = error_of(client.ask("POST", RESPONSES, CODEX | {"tools": [tool]}), 400)
    assert "no tool runs on this server" in error["message"]
    choice = {"tool_choice": {"type": "web_search"}}
    assert "tool_choice.type" in error_of(client.ask("POST", RESPONSES, CODEX | choice), 400)["message"]
    assert engine.requests == []


def test_more_tokens_are_allowed_than_there_is_room(client, engine) -> None:
    """As in llama.cpp and Ollama. opencode allows 32,000 whatever the model, pi 16,384, LangChain 4096."""
    engine.windows = [[7]] * 1000
    for path, field, extra in (
        (CHAT, "max_tokens", HI),
        (CHAT, "max_completion_tokens", HI),
        ("/v1/completions", "max_tokens", {"prompt": "Hi"}),
        (RESPONSES, "max_output_tokens", {"input": "Hi"}),
        (MESSAGES, "max_tokens", HI),
    ):
        status, _ = client.ask("POST", path, extra | {field: 32_000})
        request = engine.requests[-1]
        assert status == 200
        assert request.sampling.max_tokens == engine.context - len(request.prompt)
    options = {"num_predict": 32_000, "num_ctx": 1_000_000}
    client.lines(OLLAMA, HI | {"model": "acorn", "options": options})
    request = engine.requests[-1]
    assert request.sampling.max_tokens == engine.context - len(request.prompt)


def test_tokens_that_are_wanted_need_room(client, engine) -> None:
    """Without an end of its own an answer has exactly so many: a measurement would be of another length."""
    for path, field, extra in (
        (CHAT, "max_tokens", HI),
        ("/v1/completions", "max_tokens", {"prompt": "Hi"}),
        (RESPONSES, "max_output_tokens", {"input": "Hi"}),
    ):
        error = error_of(client.ask("POST", path, extra | {field: 1000, "ignore_eos": True}), 400)
        assert (error["code"], error["param"]) == ("context_length_exceeded", field)
    assert "min_tokens is 500" in error_of(client.ask("POST", CHAT, HI | {"min_tokens": 500}), 400)["message"]
    assert engine.requests == []


@pytest.mark.parametrize(("limit", "reason"), [(32_000, "model_context_window_exceeded"), (5, "max_tokens")])
def test_messages_say_which_end_an_answer_met(client, engine, limit, reason) -> None:
    """The scripted engine looks at lengths where an answer has a form."""
    engine.windows = [TOKENIZER.encode('"'), *[TOKENIZER.encode("a")] * 1000]
    form = {"format": {"type": "json_schema", "schema": {"type": "string"}}}
    asked = HI | {"max_tokens": limit, "output_config": form}
    assert client.ask("POST", MESSAGES, asked)[1]["stop_reason"] == reason
    assert client.events(MESSAGES, asked)[-2]["delta"]["stop_reason"] == reason


@pytest.mark.parametrize("words", [300, 99_999], ids=["counted", "not even cut into tokens"])
def test_agents_are_told_that_the_prompt_is_too_long_in_the_words_they_know(client, words) -> None:
    """Claude Code, opencode, pi and litellm look for these, and then sum the conversation up."""
    text = " word" * words
    said = {"messages": [{"role": "user", "content": text}]}
    for path, asked in (
        (MESSAGES, said | {"max_tokens": 5}),
        (RESPONSES, {"input": text}),
        (CHAT, said),
        (OLLAMA, said | {"model": "acorn"}),
    ):
        status, reply = client.ask("POST", path, asked)
        error = reply["error"]
        message = error if isinstance(error, str) else error["message"]
        assert status == 400
        assert message.startswith("The prompt is too long: ")
        if words == 300:
            assert re.search(r"prompt is too long[^0-9]*(\d+)\s*tokens?\s*>\s*(199)\b", message)


def test_options_beside_ollamas_options(client, engine) -> None:
    """Where ollama-ai-provider-v2 puts them. What `options` says comes first."""
    beside = {"temperature": 0.5, "max_output_tokens": 9, "top_p": 0.25, "stop": ["x"]}
    client.lines(OLLAMA, HI | {"model": "acorn", "options": {"top_p": 0.5}} | beside)
    sampling = engine.requests[0].sampling
    assert (sampling.temperature, sampling.max_tokens, sampling.top_p) == (0.5, 9, 0.5)
    status, reply = client.ask("POST", OLLAMA, HI | {"model": "acorn", "temperature": 9})
    assert (status, "options.temperature is 9" in reply["error"]) == (400, True)


@pytest.mark.parametrize("choice", ["auto", "required", {"type": "function", "function": {"name": "f"}}])
def test_a_choice_of_tools_at_ollamas_path(client, engine, choice) -> None:
    """Ollama does not know it, ollama-ai-provider-v2 sends `auto` beside all tools."""
    engine.windows = [[*TOKENIZER.encode("Hello"), 106]]
    tools = [{"type": "function", "function": {"name": "f", "parameters": {"type": "object"}}}]
    asked = HI | {"model": "acorn", "tools": tools, "tool_choice": choice, "stream": False}
    message = client.ask("POST", OLLAMA, asked)[1]["message"]
    assert (message["content"], "tool_calls" in message) == (
        ("Hello", False) if choice == "auto" else ("", True)
    )
    status, reply = client.ask("POST", OLLAMA, asked | {"tool_choice": "some"})
    assert (status, "allowed is auto, none, required" in reply["error"]) == (400, True)


def test_a_form_that_is_said_twice(client, engine) -> None:
    """guidance says it under vLLM's old name and under its new one, and which library shall hold to it."""
    grammar = '%llguidance {}\n\nstart: x\nx[capture]: X\n\nX: "yes"\n     | "no"\n\n'
    new = {"structured_outputs": {"grammar": grammar}}
    asked = HI | new | {"guided_grammar": grammar, "guided_decoding_backend": "guidance", "tools": None}
    assert client.ask("POST", CHAT, asked)[1]["choices"][0]["message"]["content"] in ("yes", "no")
    error = error_of(
        client.ask("POST", CHAT, HI | new | {"guided_regex": "a", "guided_grammar": grammar}), 400
    )
    assert "structured_outputs.grammar and guided_regex: an answer has one form" in error["message"]


def test_models_as_anthropics_client_lists_them(client, engine) -> None:
    reply = client.ask("GET", "/v1/models?limit=1000", anthropic_version="2023-06-01")[1]
    [card] = reply["data"]
    assert (reply["first_id"], reply["last_id"], reply["has_more"]) == ("acorn", "acorn", False)
    assert (card["type"], card["display_name"], card["max_input_tokens"]) == (
        "model",
        "acorn",
        engine.context,
    )
    assert datetime.fromisoformat(card["created_at"]).timestamp() == card["created"]


def test_which_model_is_loaded(client, engine) -> None:
    [listed] = client.ask("GET", "/api/tags")[1]["models"]
    [loaded] = client.ask("GET", "/api/ps")[1]["models"]
    assert loaded.pop("context_length") == engine.context
    assert loaded.pop("expires_at") > listed.pop("modified_at")
    assert loaded == listed
