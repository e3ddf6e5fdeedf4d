"""Models without Gemma 4's markers over HTTP: BOS or none, templates or none, blanks at the start, tools."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import tokenizers

from onechip.config import ServeConfig
from onechip.engine.guides.grammar import Grammars
from onechip.models.chat_template import ChatTemplate
from onechip.models.generation import GenerationDefaults
from onechip.models.tokenizer import Tokenizer
from onechip.server.facts import Facts
from onechip.server.service import Model
from tests.models.small_tokenizers import CHATML, LLAMA3, byte_level, save, sentence_piece
from tests.server.scripted import CHAT, HI, Client, ScriptedEngine, error_of, running, wait_until

TEXT = "/v1/completions"
FACTS = Facts("llama", "safetensors", 0, 0.0)
TOOLS = [{"type": "function", "function": {"name": "f", "parameters": {"type": "object"}}}]
LLAMA3_TEMPLATE = (
    "{{ bos_token }}{% for m in messages %}<|start_header_id|>{{ m['role'] }}<|end_header_id|>\n\n"
    "{{ m['content'] | trim }}<|eot_id|>{% endfor %}"
    "{% if add_generation_prompt %}<|start_header_id|>assistant<|end_header_id|>\n\n{% endif %}"
)
CHATML_TEMPLATE = (
    "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
FOLDED_TEMPLATE = (
    "{% if messages[0].role == 'system' %}{{ raise_exception('System role not supported') }}{% endif %}"
    "{% for m in messages %}[INST] {{ m.content }} [/INST]{% endfor %}"
)


@contextmanager
def serving(
    backend: tokenizers.Tokenizer, template: str | None, **config: object
) -> Iterator[tuple[Client, ScriptedEngine, Tokenizer]]:
    """A server in front of a scripted engine that speaks with this tokenizer."""
    with tempfile.TemporaryDirectory() as name:
        folder = save(backend, Path(name), **config, chat_template=template)
        tokenizer, chat_template = Tokenizer.load(folder, []), ChatTemplate.load(folder)
    engine = ScriptedEngine()
    engine.tokenizer = tokenizer
    grammars = Grammars(tokenizer, tokenizer.vocab_size)
    model = Model(engine, tokenizer, chat_template, GenerationDefaults(), 300, FACTS, grammars)
    with running(ServeConfig(), lambda progress: model) as (client, service):
        wait_until(lambda: service.state == "ready")
        engine.loop = service.loop
        yield client, engine, tokenizer


@pytest.fixture
def llama3() -> Iterator[tuple[Client, ScriptedEngine, Tokenizer]]:
    with serving(byte_level(LLAMA3, LLAMA3[0]), LLAMA3_TEMPLATE, bos_token=LLAMA3[0]) as served:
        yield served


@pytest.fixture
def llama2() -> Iterator[tuple[Client, ScriptedEngine, Tokenizer]]:
    config = {"tokenizer_class": "LlamaTokenizer", "eos_token": "</s>"}
    with serving(sentence_piece(), FOLDED_TEMPLATE, **config) as served:
        yield served


def prompts(engine: ScriptedEngine, tokenizer: Tokenizer) -> list[str]:
    return [tokenizer.decode(request.prompt, skip_special=False) for request in engine.requests]


def contents(client: Client, **fields: object) -> list[str]:
    """What each event of a streamed chat answer adds."""
    events = client.stream(CHAT, HI | fields)
    return [event["choices"][0]["delta"].get("content") or "" for event in events[:-1]]


def test_a_prompt_has_one_bos_whoever_puts_it_there(llama3) -> None:
    client, engine, tokenizer = llama3
    for path, body in ((CHAT, HI), (TEXT, {"prompt": "Tom"}), (TEXT, {"prompt": f"{LLAMA3[0]}Tom"})):
        engine.windows = [tokenizer.encode("Hello"), [tokenizer.token_id("<|eot_id|>")]]
        assert client.ask("POST", path, body)[0] == 200
    assert prompts(engine, tokenizer) == [
        "<|begin_of_text|><|start_header_id|>user<|end_header_id|>\n\nHi<|eot_id|>"
        "<|start_header_id|>assistant<|end_header_id|>\n\n",
        "<|begin_of_text|>Tom",
        "<|begin_of_text|>Tom",
    ]


def test_a_bos_that_the_template_does_not_print(llama2) -> None:
    client, engine, tokenizer = llama2
    engine.windows = [[tokenizer.token_id("</s>")]]
    assert client.ask("POST", CHAT, HI)[0] == 200
    assert engine.requests[0].prompt[0] == tokenizer.bos_id
    assert tokenizer.bos_id not in engine.requests[0].prompt[1:]


def test_a_model_without_bos() -> None:
    with serving(byte_level(CHATML), CHATML_TEMPLATE, bos_token=CHATML[0]) as (client, engine, tokenizer):
        engine.windows = [[*tokenizer.encode("Hello"), tokenizer.token_id("<|im_end|>")]]
        reply = client.ask("POST", CHAT, HI)[1]
        assert reply["choices"][0]["message"]["content"] == "Hello"
        assert client.ask("POST", TEXT, {"prompt": "Tom"})[1]["choices"][0]["text"] == "Hello"
        assert prompts(engine, tokenizer) == [
            "<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n",
            "Tom",
        ]


def test_streams_hide_control_tokens_and_split_no_character(llama3) -> None:
    client, engine, tokenizer = llama3
    ids = [*tokenizer.encode("né 漢 🌰"), *(tokenizer.token_id(token) for token in LLAMA3[1:])]
    engine.windows = [[id] for id in ids]
    pieces = contents(client, ignore_eos=True)
    assert "".join(pieces) == "né 漢 🌰"
    assert "�" not in "".join(pieces)
    assert pieces.count("") > 5  # the halves of characters and the control tokens, each an event of its own
    assert "".join(contents(client, stop=["漢"])) == "né "
    asked = {"prompt": "x", "skip_special_tokens": False}
    text = client.ask("POST", TEXT, asked)[1]["choices"][0]["text"]
    assert text == "né 漢 🌰<|end_of_text|><|start_header_id|><|end_header_id|>"  # the stop token is no text


def test_the_blank_at_the_start_belongs_to_a_continuation_only(llama2) -> None:
    client, engine, tokenizer = llama2
    ids = tokenizer.encode("Tom a")
    engine.windows = [[ids[0]], ids[1:], [tokenizer.token_id("</s>")]]
    assert contents(client) == ["", "Tom", " a", "", ""]
    assert client.ask("POST", TEXT, {"prompt": "Hi"})[1]["choices"][0]["text"] == " Tom a"


def test_a_system_message_that_the_template_refuses(llama2) -> None:
    client = llama2[0]
    messages = [{"role": "system", "content": "Be brief."}, *HI["messages"]]
    error = error_of(client.ask("POST", CHAT, {"messages": messages}), 400)
    assert (error["param"], "System role not supported" in error["message"]) == ("messages", True)


def test_without_a_template_there_is_no_chat_but_the_rest() -> None:
    with serving(byte_level(CHATML), None) as (client, engine, tokenizer):
        engine.windows = [[*tokenizer.encode("Hello"), tokenizer.token_id("<|im_end|>")]]
        for path, body in ((CHAT, HI), ("/tokenize", HI)):
            error = error_of(client.ask("POST", path, body), 400)
            assert "no chat template: ask /v1/completions, or" in error["message"]
        assert engine.requests == []
        assert client.ask("POST", TEXT, {"prompt": "Tom"})[1]["choices"][0]["text"] == "Hello"


def test_calls_in_json() -> None:
    template = "{% for t in tools or [] %}{{ t.function | tojson }}{% endfor %}" + LLAMA3_TEMPLATE
    with serving(byte_level(LLAMA3, LLAMA3[0]), template) as (client, engine, tokenizer):
        stop = tokenizer.token_id("<|eot_id|>")
        ids = tokenizer.encode('{"name": "f", "parameters": {"s": "a\\"b"}}')
        engine.windows = [*([id] for id in ids), [stop]]
        choice = client.ask("POST", CHAT, HI | {"tools": TOOLS})[1]["choices"][0]
        assert (choice["finish_reason"], choice["message"]["content"]) == ("tool_calls", None)
        call = choice["message"]["tool_calls"][0]
        assert (call["type"], call["function"]) == ("function", {"name": "f", "arguments": '{"s":"a\\"b"}'})
        assert '{"name": "f", "parameters": {"type": "object"}}' in prompts(engine, tokenizer)[0]
        # Streamed: nothing of it is shown as text; it comes when it is known to be a call.
        events = client.stream(CHAT, HI | {"tools": TOOLS})
        deltas = [event["choices"][0]["delta"] for event in events[:-1]]
        assert "".join(delta.get("content") or "" for delta in deltas) == ""
        streamed = [call for delta in deltas for call in delta.get("tool_calls", [])]
        assert [call["function"] for call in streamed] == [{"name": "f", "arguments": '{"s":"a\\"b"}'}]
        assert events[-2]["choices"][0]["finish_reason"] == "tool_calls"
        # Without tools the same answer is text.
        assert client.ask("POST", CHAT, HI)[1]["choices"][0]["message"]["content"] == tokenizer.decode(ids)
        # The call and its result go back into the prompt.
        answered = [*HI["messages"], choice["message"], {"role": "tool", "tool_call_id": "x", "content": "5"}]
        assert client.ask("POST", CHAT, {"messages": answered, "tools": TOOLS})[0] == 200


def test_a_tool_is_printed_alike_whichever_protocol_describes_it() -> None:
    template = "{% for t in tools or [] %}{{ t | tojson }}{% endfor %}" + CHATML_TEMPLATE
    named, schema = {"name": "f", "description": "Does it."}, {"type": "object"}
    function = named | {"parameters": schema}
    asks = (
        (CHAT, HI | {"tools": [{"type": "function", "function": function}]}),
        ("/v1/responses", {"input": "Hi", "tools": [{"type": "function"} | function]}),
        ("/v1/messages", HI | {"max_tokens": 5, "tools": [named | {"input_schema": schema}]}),
        ("/api/chat", HI | {"model": "acorn", "stream": False, "tools": [{"function": function}]}),
    )
    with serving(byte_level(CHATML), template) as (client, engine, tokenizer):
        engine.windows = [[tokenizer.token_id("<|im_end|>")]]
        for path, body in asks:
            assert client.ask("POST", path, body)[0] == 200
        printed = json.dumps({"type": "function", "function": function})
        turn = "<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n"
        assert prompts(engine, tokenizer) == [printed + turn] * len(asks)


def test_one_call_at_a_time_if_so_asked() -> None:
    template = "{{ tools | length }}" + CHATML_TEMPLATE
    with serving(byte_level(CHATML), template) as (client, engine, tokenizer):
        call = tokenizer.encode('<tool_call>\n{"name": "f", "arguments": {}}\n</tool_call>\n')
        engine.windows = [call, call, [tokenizer.token_id("<|im_end|>")]]
        asked = HI | {"tools": TOOLS, "parallel_tool_calls": False}
        reply = client.ask("POST", CHAT, asked)[1]
        assert len(reply["choices"][0]["message"]["tool_calls"]) == 1
        assert reply["choices"][0]["finish_reason"] == "tool_calls"
        wait_until(lambda: bool(engine.cancelled))
        reply = client.ask("POST", CHAT, asked | {"parallel_tool_calls": True})[1]
        assert len(reply["choices"][0]["message"]["tool_calls"]) == 2


def test_tools_and_thoughts_for_which_the_template_has_no_place_are_refused_by_name(llama3) -> None:
    client, engine, tokenizer = llama3
    error = error_of(client.ask("POST", CHAT, HI | {"tools": TOOLS}), 400)
    assert (error["param"], "has no place for them" in error["message"]) == ("tools", True)
    error = error_of(client.ask("POST", CHAT, HI | {"chat_template_kwargs": {"enable_thinking": True}}), 400)
    assert error["param"] == "chat_template_kwargs.enable_thinking"
    assert engine.requests == []
    engine.windows = [[*tokenizer.encode("Hello"), tokenizer.token_id("<|eot_id|>")]]
    harmless = {"tools": TOOLS, "tool_choice": "none", "chat_template_kwargs": {"enable_thinking": False}}
    assert client.ask("POST", CHAT, HI | harmless)[1]["choices"][0]["message"]["content"] == "Hello"


def test_forced_calls_in_json() -> None:
    template = "{% for t in tools or [] %}{{ t.function | tojson }}{% endfor %}" + CHATML_TEMPLATE
    schema = {"type": "object", "properties": {"n": {"enum": [4, 5]}}, "required": ["n"]}
    closed = schema | {"additionalProperties": False}
    tools = [{"type": "function", "function": {"name": name, "parameters": closed}} for name in ("f", "g")]
    strict = [{"type": "function", "function": tool["function"] | {"strict": True}} for tool in tools]
    with serving(byte_level(CHATML), template) as (client, engine, tokenizer):
        wish = 'Hm. <tool_call>\n{"name": "g", "arguments": {"n": 35, "m": 1}}\n</tool_call>'
        engine.context, letters = 1000, [id for letter in wish for id in tokenizer.encode(letter)]
        engine.windows = [[*letters, tokenizer.token_id("<|im_end|>")]]
        named = {"type": "function", "function": {"name": "g"}}
        for fields in ({"tool_choice": "required"}, {"tool_choice": named}, {"tools": strict}):
            message = client.ask("POST", CHAT, HI | {"tools": tools} | fields)[1]["choices"][0]["message"]
            (call,) = message["tool_calls"]
            assert (call["function"]["name"], json.loads(call["function"]["arguments"])) == ("g", {"n": 5})
            assert (message["content"] or "").strip() == ("Hm." if "tools" in fields else "")
        assert "strict" not in prompts(engine, tokenizer)[-1]
        form = {"type": "json_schema", "json_schema": {"name": "x", "schema": closed}}
        engine.windows = [[*tokenizer.encode('{"n": 5}'), tokenizer.token_id("<|im_end|>")]]
        reply = client.ask("POST", CHAT, HI | {"tools": tools, "response_format": form})[1]
        assert json.loads(reply["choices"][0]["message"]["content"]) == {"n": 5}


def test_a_budget_of_thoughts_that_cannot_be_told_from_text(llama3) -> None:
    client, engine, tokenizer = llama3
    engine.windows = [[*tokenizer.encode("Hello"), tokenizer.token_id("<|eot_id|>")]]
    error = error_of(client.ask("POST", CHAT, HI | {"thinking_token_budget": 5}), 400)
    assert error["param"] == "thinking_token_budget"
    assert "does not mark its thoughts" in error["message"]
    for harmless in ({"thinking_token_budget": -1}, {"reasoning_effort": "none"}):
        assert client.ask("POST", CHAT, HI | harmless)[0] == 200


@pytest.mark.parametrize("prompt", ["ab ba", " a"])
def test_places_of_tokens_where_texts_begin_with_a_blank_of_the_tokenizer_s_own(llama2, prompt) -> None:
    """An echoed prompt is what was sent, and its tokens are found in it; the first has a blank more."""
    client, engine, tokenizer = llama2
    engine.windows = [tokenizer.encode("b a"), [tokenizer.token_id("</s>")]]
    choice = client.ask("POST", TEXT, {"prompt": prompt, "echo": True, "logprobs": 0, "max_tokens": 9})[1][
        "choices"
    ][0]
    assert choice["text"].startswith(prompt)
    logprobs = choice["logprobs"]
    for token, place in zip(logprobs["tokens"], logprobs["text_offset"], strict=True):
        if token not in ("<s>", "</s>"):
            shown = choice["text"][place:]
            assert shown.startswith(token) or (place == 0 and shown.startswith(token.removeprefix(" ")))
    assert logprobs["text_offset"] == sorted(logprobs["text_offset"])
