"""Answers that the client has begun, over HTTP with a scripted engine: the prompt's end, and what comes."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from tests.models.small_tokenizers import CHATML, LLAMA3, byte_level, sentence_piece
from tests.server.scripted import CHAT, HI, TOKENIZER, error_of, prompt_of
from tests.server.test_families import CHATML_TEMPLATE, LLAMA3_TEMPLATE, serving
from tests.server.test_messages import anthropic_error_of
from tests.server.test_think_marks import SPEAKING, Served, served, special, spelled, tokens

HEAD = "<bos><|turn>user\nHi<turn|>\n<|turn>model\n"
GO_ON = {"continue_final_message": True, "add_generation_prompt": False}
SCHEMA = {"type": "object", "properties": {"s": {"type": "string"}}}
FUNCTION: dict[str, Any] = {"name": "f", "parameters": SCHEMA}
TOOLS = [{"type": "function", "function": FUNCTION}]
STRICT = [{"type": "function", "function": FUNCTION | {"strict": True}}]
NAMED = {"type": "function", "function": {"name": "f"}}
ALLOWED = {"type": "allowed_tools", "allowed_tools": {"mode": "auto", "tools": [NAMED]}}
ANTHROPIC_TOOL = {"name": "f", "input_schema": SCHEMA}
CALL = '<|tool_call>call:f{s:<|"|>a<|"|>}<tool_call|>'
TEXTS = ["It is", "It is ", "It is\n\n", " It", "model", "Hi", "{"]


def begun(text: Any, **fields: Any) -> dict[str, Any]:
    return {"messages": [*HI["messages"], {"role": "assistant", "content": text}], **fields}


def say(engine: Any, answer: str) -> None:
    engine.windows = [TOKENIZER.encode(answer), [106]]


@pytest.mark.parametrize("text", TEXTS)
def test_chat_goes_on_behind_the_last_message_as_it_stands(client, engine, text) -> None:
    say(engine, " forty")
    status, reply = client.ask("POST", CHAT, begun(text, **GO_ON))
    assert (status, reply["choices"][0]["message"]["content"]) == (200, " forty")
    parts = begun([{"type": "text", "text": text}], continue_final_message=True)
    events = client.stream(CHAT, parts)
    assert "".join(event["choices"][0]["delta"].get("content") or "" for event in events[:-1]) == " forty"
    assert [prompt_of(request) for request in engine.requests] == [HEAD + text] * 2
    usage = reply["usage"]
    assert usage["prompt_tokens"] == len(engine.requests[0].prompt)
    assert usage["completion_tokens"] == len(TOKENIZER.encode(" forty")) + 1
    count = client.ask("POST", "/tokenize", parts)[1]
    assert count["tokens"] == list(engine.requests[0].prompt)


def test_without_the_field_a_new_answer_comes(client, engine) -> None:
    for fields in ({}, {"continue_final_message": False}, {"add_generation_prompt": True}):
        assert client.ask("POST", CHAT, begun("It", **fields))[0] == 200
        assert prompt_of(engine.requests[-1]) == f"{HEAD}It<turn|>\n<|turn>model\n"
    assert client.ask("POST", CHAT, begun("It", add_generation_prompt=False))[0] == 200
    assert prompt_of(engine.requests[-1]) == f"{HEAD}It<turn|>\n"


def test_choices_and_log_probabilities_of_a_begun_answer(client, engine) -> None:
    say(engine, " forty")
    asked = begun("It is", n=2, logprobs=True, return_token_ids=True, seed=1, **GO_ON)
    reply = client.ask("POST", CHAT, asked)[1]
    assert [choice["message"]["content"] for choice in reply["choices"]] == [" forty"] * 2
    for choice in reply["choices"]:
        told = [token["token"] for token in choice["logprobs"]["content"]]
        assert "".join(told[:-1]) == " forty"
        assert choice["token_ids"] == [*TOKENIZER.encode(" forty"), 106]
    assert reply["prompt_token_ids"] == TOKENIZER.encode(f"{HEAD}It is")


@pytest.mark.parametrize(
    ("fields", "words", "param"),
    [
        (GO_ON | {"add_generation_prompt": True}, "both true", "continue_final_message"),
        ({"messages": HI["messages"]}, "that is the user's", "messages"),
        (begun(""), "that has no text", "messages"),
        (begun(" \n"), "that has no text", "messages"),
        (begun("A<channel|>B"), "does not print its text as it stands", "messages"),
        ({"response_format": {"type": "json_object"}}, "leave it out", "response_format"),
        ({"structured_outputs": {"regex": "a"}}, "leave it out", "structured_outputs.regex"),
        ({"tools": TOOLS, "tool_choice": "required"}, "leave it out", "tool_choice"),
        ({"tools": TOOLS, "tool_choice": NAMED}, "leave it out", "tool_choice"),
    ],
)
def test_what_cannot_be_continued_is_refused(client, engine, fields, words, param) -> None:
    error = error_of(client.ask("POST", CHAT, begun("It", continue_final_message=True) | fields), 400)
    assert words in error["message"]
    assert error["param"] == param
    assert engine.requests == []


def test_a_message_that_calls_is_not_continued(client, engine) -> None:
    body = begun("It", continue_final_message=True)
    body["messages"][-1]["tool_calls"] = [{"id": "1", "function": {"name": "f", "arguments": "{}"}}]
    assert "that calls tools" in error_of(client.ask("POST", CHAT, body), 400)["message"]
    assert engine.requests == []


@pytest.mark.parametrize(
    "fields",
    [{"tools": TOOLS}, {"tools": STRICT}, {"tools": TOOLS, "tool_choice": ALLOWED}],
    ids=["auto", "strict", "allowed"],
)
def test_calls_may_follow_a_begun_text(client, engine, fields) -> None:
    engine.context = 400
    engine.windows = [[*TOKENIZER.encode(f" look.{CALL}"), 50]]
    thinking = {"chat_template_kwargs": {"enable_thinking": True}}
    reply = client.ask("POST", CHAT, begun("I", **fields, **GO_ON, **thinking))[1]["choices"][0]
    assert (reply["message"]["content"], reply["finish_reason"]) == (" look.", "tool_calls")
    assert reply["message"]["tool_calls"][0]["function"] == {"name": "f", "arguments": '{"s":"a"}'}


def test_a_budget_of_thoughts_costs_no_guide_where_none_come(client, engine) -> None:
    """Guides would make each token a step of its own."""
    asked = begun("It", reasoning_effort="low", thinking_token_budget=5, **GO_ON)
    assert client.ask("POST", CHAT, asked)[0] == 200
    assert engine.requests[0].guides == ()
    assert "<|think|>" in prompt_of(engine.requests[0])


@pytest.mark.parametrize("content", ["It is", [{"type": "text", "text": "It is"}]], ids=["text", "blocks"])
def test_messages_goes_on_with_a_last_message_of_the_assistant(client, engine, content) -> None:
    say(engine, " forty")
    body = begun(content, max_tokens=50)
    status, reply = client.ask("POST", "/v1/messages", body)
    assert (status, reply["content"]) == (200, [{"type": "text", "text": " forty"}])
    events = client.events("/v1/messages", body)
    deltas = [event["delta"]["text"] for event in events if event["type"] == "content_block_delta"]
    assert "".join(deltas) == " forty"
    assert {prompt_of(request) for request in engine.requests} == {f"{HEAD}It is"}
    del body["max_tokens"]
    counted = client.ask("POST", "/v1/messages/count_tokens", body)[1]["input_tokens"]
    assert counted == len(engine.requests[0].prompt)


@pytest.mark.parametrize(
    ("content", "fields", "words"),
    [
        ("It is ", {}, "messages: final assistant content cannot end with trailing whitespace"),
        ([{"type": "text", "text": "It\n"}], {}, "cannot end with trailing whitespace"),
        ([{"type": "tool_use", "id": "1", "name": "f", "input": {}}], {}, "that calls tools"),
        ([{"type": "thinking", "thinking": "Hm.", "signature": ""}], {}, "that has no text"),
        ("{", {"output_config": {"format": {"type": "json_schema", "schema": {}}}}, "leave it out"),
        ("{", {"tools": [ANTHROPIC_TOOL], "tool_choice": {"type": "any"}}, "tool_choice does not go"),
    ],
)
def test_what_messages_cannot_continue_is_refused(client, engine, content, fields, words) -> None:
    reply = client.ask("POST", "/v1/messages", begun(content, max_tokens=50) | fields)
    assert words in anthropic_error_of(reply, 400)["message"]
    assert engine.requests == []


def test_ollama_goes_on_with_a_last_message_of_the_assistant(client, engine) -> None:
    say(engine, " forty")
    lines = client.lines("/api/chat", begun("It is ", model="acorn"))
    assert "".join(line["message"]["content"] for line in lines) == " forty"
    whole = client.ask("POST", "/api/chat", begun("It is ", model="acorn", stream=False))[1]
    assert whole["message"] == {"role": "assistant", "content": " forty"}
    assert {prompt_of(request) for request in engine.requests} == {f"{HEAD}It is "}
    refused = client.ask("POST", "/api/chat", begun("{", model="acorn", format="json"))
    assert refused[0] == 400
    assert "format does not go with an answer that has begun" in refused[1]["error"]


@pytest.mark.parametrize("path", ["/api/chat", "/v1/messages"])
def test_an_empty_beginning_begins_nothing(client, engine, path) -> None:
    assert client.ask("POST", path, begun("", model="acorn", max_tokens=5, stream=False))[0] == 200
    assert prompt_of(engine.requests[0]) == HEAD
    alone = {"messages": [{"role": "assistant", "content": ""}], "model": "acorn", "max_tokens": 5}
    status, refused = client.ask("POST", path, alone)
    assert (status, "nothing but an empty message" in str(refused)) == (400, True)
    assert len(engine.requests) == 1


@pytest.fixture
def chatml() -> Iterator[Served]:
    with served(spelled(), CHATML_TEMPLATE.replace("{% if", "{{ tools and '' }}{% if")) as found:
        yield found


WHOLE_CALL = '{"name": "f", "parameters": {}}'
MARKED = f"<tool_call>{WHOLE_CALL}</tool_call>"


@pytest.mark.parametrize("at_once", [True, False], ids=["one window", "token by token"])
def test_what_looks_like_a_call_is_text_behind_a_begun_text(chatml, at_once) -> None:
    window = 1000 if at_once else 1
    fields = begun("It is ", tools=TOOLS, **GO_ON)
    chatml.say(WHOLE_CALL, window)
    assert chatml.message(**fields)[0]["content"] == WHOLE_CALL
    assert chatml.streamed(**fields)[0] == WHOLE_CALL
    chatml.say(f" forty.{MARKED}", window)
    message = chatml.message(**fields)[0]
    assert (message["content"], message["tool_calls"][0]["function"]["name"]) == (" forty.", "f")
    chatml.say(WHOLE_CALL, window)
    assert chatml.message(tools=TOOLS)[0]["tool_calls"][0]["function"]["name"] == "f"


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"tools": STRICT}, "tools.function.strict"),
        ({"tools": TOOLS, "tool_choice": ALLOWED}, "tool_choice"),
    ],
)
def test_forms_of_calls_that_may_be_the_whole_answer_are_refused(chatml, fields, param) -> None:
    error = error_of(chatml.client.ask("POST", CHAT, begun("It", **fields, **GO_ON)), 400)
    assert error["param"] == param
    assert chatml.engine.requests == []


MARKS_ARE_TEXT = [
    ("It is", "<think>a", "<think>a", None),
    ("It is", "</think>a", "</think>a", None),
    ("A <think> b", " c", " c", None),
]
"""Behind text, unless they are special tokens."""

MARKS_ARE_MARKS = [
    ("It is", "[THINK]a", "", "a"),
    ("It is", "[/THINK]a", "a", None),
    ("A [THINK] b", " c", "", " c"),
]


@pytest.mark.parametrize("backend", [spelled, tokens, special])
@pytest.mark.parametrize("window", [1, 1000])
def test_thoughts_of_a_begun_answer(backend, window) -> None:
    open, close = ("[THINK]", "[/THINK]") if backend is special else ("<think>", "</think>")
    with served(backend(), SPEAKING.replace("<think>", open)) as found:
        for text, answer, content, thoughts in (
            ("It is", " forty", " forty", None),  # text goes on
            ("It is", f" a {close} mark", f" a {'' if backend is special else close} mark", None),
            (f"{open}\nHm.", f" So\n{close}\n\nIt is", "It is", " So"),  # thoughts go on
            (f"{open}\n", f"\nHm.\n{close}\n\nIt is", "It is", "Hm."),
            (f"{open}\n\n{close}\n\n", "\nIt is", "It is", None),  # they have ended
            (f"{open}Hm.{close}It", "  is", "  is", None),
            *(MARKS_ARE_MARKS if backend is special else MARKS_ARE_TEXT),
        ):
            found.say(answer, window)
            message, _ = found.message(**begun(text, **GO_ON))
            assert (message["content"], message.get("reasoning")) == (content, thoughts), text
            assert found.streamed(**begun(text, **GO_ON))[:2] == (content, thoughts or "")
            ids = found.engine.requests[-1].prompt
            assert found.tokenizer.decode(ids, skip_special=False).endswith(f"<|im_start|>assistant\n{text}")


def test_a_whole_call_may_follow_thoughts_that_the_client_has_closed() -> None:
    with served(tokens(), "{{ tools and '' }}" + SPEAKING) as found:
        found.say(WHOLE_CALL)
        for text, calls in (("<think>\n\n</think>\n\n", True), ("<think>\n\n</think>\n\nIt is", False)):
            message = found.message(**begun(text, tools=TOOLS, **GO_ON))[0]
            assert ("tool_calls" in message) == calls


def test_a_blank_behind_a_begun_text_is_shown() -> None:
    """Tokenizers of Llama 2's kind begin a text with a blank, which is not one where a text goes on."""
    template = "{% for m in messages %}[{{ m.role }}]{{ m.content }}</s>{% endfor %}[assistant]"
    config = {"tokenizer_class": "LlamaTokenizer", "eos_token": "</s>"}
    with serving(sentence_piece(), template, **config) as (client, engine, tokenizer):
        ids = [tokenizer.token_id("▁Tom"), tokenizer.token_id("</s>")]
        engine.windows = [ids]
        for fields, shown in ((HI, "Tom"), (begun("is", **GO_ON), " Tom")):
            assert client.ask("POST", CHAT, fields)[1]["choices"][0]["message"]["content"] == shown


@pytest.mark.parametrize(
    ("special_tokens", "template", "head"),
    [
        (CHATML, CHATML_TEMPLATE, "<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n"),
        (
            LLAMA3,
            LLAMA3_TEMPLATE,
            "<|begin_of_text|><|start_header_id|>user<|end_header_id|>\n\nHi<|eot_id|>"
            "<|start_header_id|>assistant<|end_header_id|>\n\n",
        ),
    ],
    ids=["chatml", "llama"],
)
@pytest.mark.parametrize("text", TEXTS)
def test_prompts_of_other_families_end_with_the_begun_text(special_tokens, template, head, text) -> None:
    bos = special_tokens[0]
    with serving(byte_level(special_tokens, bos), template, bos_token=bos) as (client, engine, tokenizer):
        engine.windows = [[next(iter(tokenizer.stop_ids))]]
        assert client.ask("POST", CHAT, begun(text, **GO_ON))[0] == 200
        shown = tokenizer.decode(engine.requests[0].prompt, skip_special=False)
        assert shown.removeprefix("<|endoftext|>") == f"{head}{text}"
