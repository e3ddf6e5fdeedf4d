"""Fields of vLLM, SGLang, llama.cpp and mistral.rs: honoured, refused, or taken where they ask nothing."""

from __future__ import annotations

import json
from typing import Any

import pytest

from onechip.server import neutral
from tests.server.scripted import CHAT, HI, TOKENIZER, error_of

COMPLETIONS = "/v1/completions"
PATHS = [(CHAT, HI), (COMPLETIONS, {"prompt": "Hi"})]
DEFAULTS: dict[str, Any] = {
    "cache_prompt": True, "id_slot": -1, "n_keep": 0, "n_probs": 0, "timings_per_token": False,
    "return_progress": False, "mirostat": 0, "mirostat_tau": 5.0, "mirostat_eta": 0.1, "typical_p": 1.0,
    "xtc_probability": 0.0, "xtc_threshold": 0.1, "dry_multiplier": 0, "dry_base": 1.75,
    "dry_allowed_length": 2, "dry_sequence_breakers": ["\n", ":"], "top_n_sigma": -1, "dynatemp_range": 0.0,
    "repeat_last_n": 64, "repeat_penalty": 1.0, "priority": 0, "vllm_xargs": {}, "no_stop_trim": False,
    "prompt_cache_key": "x", "prompt_cache_retention": "24h", "safety_identifier": "x", "store": False,
    "metadata": {"a": "b"}, "service_tier": "default", "functions": [], "function_call": "none",
}  # fmt: skip
OF_CHAT = {
    "include_reasoning": True, "separate_reasoning": True, "stream_reasoning": True, "parse_tool_calls": True,
    "reasoning_format": "deepseek", "reasoning_budget_tokens": -1, "add_special_tokens": False,
}  # fmt: skip


def answer(client, path: str, body: dict[str, Any]) -> Any:
    status, reply = client.ask("POST", path, body)
    assert status == 200, reply
    return reply


@pytest.mark.parametrize(("path", "ask"), PATHS)
def test_defaults_that_are_written_out_change_nothing(client, engine, path, ask) -> None:
    answer(client, path, ask | {"seed": 1})
    answer(client, path, ask | {"seed": 1} | DEFAULTS | (OF_CHAT if path == CHAT else {}))
    plain, written_out = engine.requests
    assert (written_out.prompt, written_out.sampling) == (plain.prompt, plain.sampling)
    assert written_out.guides == ()


@pytest.mark.parametrize(
    "fields",
    [
        {"mirostat": 2},
        {"typical_p": 0.9},
        {"xtc_probability": 0.5},
        {"dry_multiplier": 0.8},
        {"top_n_sigma": 1.0},
        {"dynatemp_range": 0.5},
        {"samplers": ["top_k"]},
        {"n_probs": 2},
        {"timings_per_token": True},
        {"mirostat": False},  # another thing than 0
        {"reasoning_format": "none"},
        {"separate_reasoning": False},
        {"priority": 1},
        {"function_call": {"name": "f"}},
    ],
)
def test_what_asks_for_something_that_we_lack_is_refused_by_name(client, engine, fields) -> None:
    error = error_of(client.ask("POST", CHAT, HI | fields), 400)
    assert (error["param"], error["code"]) == (next(iter(fields)), "unsupported_parameter")
    assert engine.requests == []


def test_what_sets_a_sampler_is_taken_only_where_the_sampler_can_not_be_turned_on() -> None:
    off = {name for name, values in neutral.SAMPLERS.items() if values is not neutral.ANY}
    assert {name.partition("_")[0] for name in neutral.SAMPLERS} == {name.partition("_")[0] for name in off}


@pytest.mark.parametrize(("path", "ask"), PATHS)
def test_other_names_of_fields(client, engine, path, ask) -> None:
    answer(client, path, ask | {"repeat_penalty": 1.5})
    assert engine.requests[0].sampling.repetition_penalty == 1.5
    answer(client, path, ask | {"repeat_penalty": 1.5, "repeat_last_n": 0})
    assert engine.requests[1].sampling.repetition_penalty == 1
    engine.windows = [[*TOKENIZER.encode("1 2 3"), 106]]
    choice = answer(client, path, ask | {"stop": ["2"], "no_stop_trim": True})["choices"][0]
    assert (choice["message"]["content"] if path == CHAT else choice["text"]) == "1 2"
    answer(client, path, ask | {"repeat_penalty": 1.5, "repetition_penalty": 1.5})
    for fields, param in (
        ({"repeat_penalty": 1.5, "repetition_penalty": 1.4}, "repeat_penalty"),
        ({"repeat_penalty": 1.5, "repeat_last_n": 64}, "repeat_last_n"),
        ({"repeat_penalty": 1000}, "repeat_penalty"),
        ({"no_stop_trim": "no"}, "no_stop_trim"),
    ):
        assert error_of(client.ask("POST", path, ask | fields), 400)["param"] == param


@pytest.mark.parametrize(("path", "ask"), PATHS)
def test_the_request_id_is_in_the_answer_s(client, engine, path, ask) -> None:
    kind = "chatcmpl" if path == CHAT else "cmpl"
    for name in ("request_id", "rid"):
        assert answer(client, path, ask | {name: "mine", "n": 2})["id"] == f"{kind}-mine"
        *events, _ = client.stream(path, ask | {name: "mine"})
        assert {event["id"] for event in events} == {f"{kind}-mine"}
    assert len({request.id for request in engine.requests}) == 6  # the engine has ids of its own
    assert error_of(client.ask("POST", path, ask | {"request_id": ""}), 400)["param"] == "request_id"
    assert error_of(client.ask("POST", path, ask | {"rid": ["a"]}), 400)["param"] == "rid"


def test_thoughts_are_hidden_and_counted(client, engine) -> None:
    thinking = [*TOKENIZER.encode("<|channel>thought\nHm.\n<channel|>Look."), 106]
    engine.windows = [thinking]
    shown = answer(client, CHAT, HI | {"include_reasoning": True})
    hidden = answer(client, CHAT, HI | {"include_reasoning": False})
    assert shown["choices"][0]["message"]["reasoning"] == "Hm."
    message = hidden["choices"][0]["message"]
    assert "reasoning" not in message
    assert "reasoning_content" not in message
    assert message["content"] == "Look."
    assert hidden["usage"] == shown["usage"]
    assert hidden["usage"]["completion_tokens_details"]["reasoning_tokens"] > 0
    engine.windows = [[token] for token in thinking]
    events = client.stream(CHAT, HI | {"include_reasoning": False})
    deltas = [event["choices"][0]["delta"] for event in events[:-1]]
    assert not any("reasoning" in delta or "reasoning_content" in delta for delta in deltas)
    assert "".join(delta.get("content") or "" for delta in deltas) == "Look."
    assert len(deltas) >= len(thinking)  # each window is an event, so that tokens can be timed


@pytest.mark.parametrize("field", ["logprobs", "return_token_ids"])
def test_thoughts_are_not_hidden_where_each_token_is_told_of(client, engine, field) -> None:
    error = error_of(client.ask("POST", CHAT, HI | {"include_reasoning": False, field: True}), 400)
    assert (error["param"], field in error["message"]) == ("include_reasoning", True)
    answer(client, CHAT, HI | {"include_reasoning": False, field: False})
    assert len(engine.requests) == 1


SCHEMA = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}


@pytest.mark.parametrize(
    ("fields", "wish", "text"),
    [
        ({"regex": "[0-9]{2}"}, "I say 4 2 7", "42"),
        ({"ebnf": 'root ::= "a" ("b" | "c")'}, "xac", "ac"),
        ({"grammar": {"type": "regex", "value": "[0-9]{2}"}}, "I say 4 2 7", "42"),
        ({"grammar": {"type": "lark", "value": 'start: "a" B\nB: /b+/'}}, "xabb", "abb"),
        ({"grammar": {"type": "json_schema", "value": SCHEMA}}, 'So {"n": "7"}', '{"n":7}'),
        ({"grammar": {"type": "json_schema", "value": json.dumps(SCHEMA)}}, '{"n": 7}', '{"n":7}'),
    ],
)
@pytest.mark.parametrize(("path", "ask"), PATHS)
def test_forms_by_sglangs_and_mistral_rs_names(client, engine, path, ask, fields, wish, text) -> None:
    spelled = [id for letter in wish for id in TOKENIZER.encode(letter)]
    engine.windows = [[*spelled, 106]]
    choice = answer(client, path, ask | fields)["choices"][0]
    said = choice["message"]["content"] if path == CHAT else choice["text"]
    assert said.replace(" ", "") == text


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"regex": "a", "ebnf": 'root ::= "a"'}, "ebnf"),
        ({"regex": "a", "grammar": {"type": "regex", "value": "b"}}, "grammar.value"),
        ({"grammar": {"type": "llguidance", "value": {}}}, "grammar.type"),
        ({"grammar": {"type": "regex", "value": {}}}, "grammar.value"),
        ({"grammar": {"type": "regex"}}, "grammar.value"),
        ({"regex": "(" }, "regex"),
    ],
)  # fmt: skip
def test_forms_that_are_wrong(client, engine, fields, param) -> None:
    assert error_of(client.ask("POST", CHAT, HI | fields), 400)["param"] == param
    assert engine.requests == []


def test_the_third_name_of_a_budget(client, engine) -> None:
    engine.context = 1000
    engine.windows = [[*TOKENIZER.encode("<|channel>thought\n" + " a b c d" * 20 + "\n<channel|>So."), 106]]
    usage = answer(client, CHAT, HI | {"reasoning_budget_tokens": 9})["usage"]
    assert usage["completion_tokens_details"]["reasoning_tokens"] == 9
    both = HI | {"reasoning_budget_tokens": 9, "thinking_token_budget": 8}
    assert error_of(client.ask("POST", CHAT, both), 400)["param"] == "reasoning_budget_tokens"
