"""A body that is not right is refused with the field's name, its value and the mend."""

from __future__ import annotations

import json
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from onechip.errors import RequestError
from onechip.models.chat_template import ChatTemplate
from onechip.models.json_text import MAX_NESTING
from onechip.server import ollama
from onechip.server.messages import MessagesBody
from onechip.server.parsing import check_reserved, parse
from onechip.server.responses import ResponsesBody
from onechip.server.schemas import ChatBody, CompletionBody
from tests.server.scripted import ACORN

HI = [{"role": "user", "content": "Hi"}]
TEMPLATE = ChatTemplate.load(ACORN)


def chat(**fields: Any) -> ChatBody:
    return parse(json.dumps({"messages": HI} | fields).encode(), ChatBody)


def refusal(**fields: Any) -> tuple[str | None, str]:
    """The field that is named and the message."""
    with pytest.raises(RequestError) as caught:
        chat(**fields)
    return caught.value.param, caught.value.message


def tool(**function: Any) -> list[dict[str, Any]]:
    return [{"type": "function", "function": {"name": "f"} | function}]


@pytest.mark.parametrize(
    ("fields", "param", "words"),
    [
        ({"temperature": "warm"}, "temperature", ['"warm"', "float"]),
        ({"temperature": 3}, "temperature", ["3", "<= 2.0"]),
        ({"temperature": -1}, "temperature", ["-1", ">= 0"]),
        ({"top_p": 0}, "top_p", ["0", "> 0"]),
        ({"top_k": -2}, "top_k", ["-2", ">= -1"]),
        ({"min_p": 1.5}, "min_p", ["1.5", "<= 1.0"]),
        ({"max_tokens": 0}, "max_tokens", ["0", ">= 1"]),
        ({"max_tokens": 1.5}, "max_tokens", ["1.5", "int"]),
        ({"seed": 2**64}, "seed", ["18446744073709551616"]),
        ({"stop": ["a"] * 17}, "stop", ["length <= 16"]),
        ({"stop": ["a", ""]}, "stop[1]", ['""', "length >= 1"]),
        ({"stream_options": {"include_usge": True}}, "stream_options.include_usge", ["Unknown field"]),
        ({"messages": []}, "messages", ["length >= 1"]),
        ({"messages": [{"role": "bot", "content": "x"}]}, "messages[0].role", ['"bot"', "assistant or tool"]),
        ({"messages": [{"content": "x"}]}, "messages[0].role", ["is missing"]),
        ({"messages": [{"role": "user"}]}, "messages[0].content", ["is missing"]),
        ({"messages": [*HI, {"role": "tool", "content": "x"}]}, "messages[1].tool_call_id", ["is missing"]),
        (
            {"messages": [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "x"}}]}]},
            "messages[0].content[0].type",
            ['"image_url"', "text only"],
        ),
        ({"messages": None}, "messages", ["is missing"]),
        ({"tool_choice": "always"}, "tool_choice", ['"always"', "auto, none, required"]),
        ({"tool_choice": {"type": "custom"}}, "tool_choice.type", ['"custom"', "function or allowed_tools"]),
        ({"tool_choice": {"type": "function"}}, "tool_choice.function", ["is missing"]),
        ({"tools": [{"type": "function"}]}, "tools[0].function", ["is missing"]),
        ({"response_format": {"type": "xml"}}, "response_format.type", ['"xml"', "json_schema"]),
        ({"length_penalty": 0.5}, "length_penalty", ["0.5", "not supported"]),
        ({"use_beam_search": True}, "use_beam_search", ["true", "not supported"]),
        ({"presence_penalty": 2.5}, "presence_penalty", ["2.5", "<= 2"]),
        ({"repetition_penalty": 1e-38}, "repetition_penalty", ["1e-38", ">= 0.01"]),
        ({"logit_bias": {"5": 101}}, "logit_bias[...]", ["101", "<= 100"]),
        ({"top_logprobs": 21}, "top_logprobs", ["21", "<= 20"]),
        ({"n": 0}, "n", ["0", ">= 1"]),
        ({"allowed_token_ids": []}, "allowed_token_ids", [">= 1"]),
        ({"bad_words": [""]}, "bad_words[0]", ["length"]),
        ({"store": True}, "store", ["true", "not supported"]),
        ({"temperture": 1}, "temperture", ["Unknown field", "did you mean temperature?"]),
        ({"foo": 1, "bar": 2}, "foo", ["Unknown field: foo, bar", "leave it out"]),
        ({"metadata": {"a": 1}}, "metadata[...]", ['{"a":1}', "str"]),
    ],
)  # fmt: skip
def test_refusals_name_field_value_and_mend(fields: Any, param: str, words: list[str]) -> None:
    named, message = refusal(**fields)
    assert named == param
    for word in words:
        assert word in message
    assert "`" not in message


@pytest.mark.parametrize(
    ("type", "fields", "said"),
    [
        (
            ChatBody,
            {"reasoning_effort": "much"},
            'reasoning_effort is "much": allowed is high, low, max, medium',
        ),
        (ResponsesBody, {"reasoning": {"summary": "x"}}, "allowed is auto, concise or detailed."),
        (
            ResponsesBody,
            {"input": [{"role": "x", "content": ""}]},
            'input[0].role is "x": allowed is assistant,',
        ),
        (MessagesBody, {"cache_control": {"type": "x"}}, 'cache_control.type is "x": allowed is ephemeral.'),
        (MessagesBody, {"cache_control": {"type": "ephemeral", "ttl": "2h"}}, "allowed is 1h or 5m."),
        (
            ollama.ChatBody,
            {"messages": [{"role": "user"}, {"role": "x"}]},
            'messages[1].role is "x": allowed is a',
        ),
    ],
)
def test_of_listed_values_those_that_would_do_are_said(type: Any, fields: Any, said: str) -> None:
    whole = {"model": "m", "max_tokens": 1, "messages": [{"role": "user", "content": "Hi"}]}
    body = fields if type is ResponsesBody else whole | fields
    if type is ollama.ChatBody:
        del body["max_tokens"]
    with pytest.raises(RequestError) as caught:
        parse(json.dumps(body).encode(), type)
    assert said in caught.value.message


def test_fields_that_ask_for_nothing_are_taken() -> None:
    neutral = {
        "n": 1, "frequency_penalty": 0, "presence_penalty": 0.0, "logit_bias": {}, "logprobs": False,
        "top_logprobs": None, "store": False, "service_tier": "auto", "audio": None, "modalities": ["text"],
        "response_format": {"type": "text"}, "user": "me", "metadata": {"a": "b"}, "tool_choice": "auto",
        "functions": None, "tools": None, "stop": None, "reasoning_effort": None,
    }  # fmt: skip
    assert chat(**neutral).user == "me"
    assert refusal(use_beam_search=0)[0] == "use_beam_search"  # false asks for nothing, 0 is another thing


def test_what_the_openai_client_hands_back_is_taken() -> None:
    answer = {
        "role": "assistant",
        "content": None,
        "refusal": None,
        "annotations": [],
        "audio": None,
        "function_call": None,
        "tool_calls": [
            {"id": "1", "type": "function", "index": 0, "function": {"name": "f", "arguments": "{}"}}
        ],
    }
    assert len(chat(messages=[*HI, answer]).messages) == 2


@pytest.mark.parametrize("body", [MessagesBody, ResponsesBody, ollama.ChatBody])
def test_null_asks_for_nothing_wherever_it_stands(body: Any) -> None:
    """Also in a field that nobody declared; in a client's own data it stays."""
    said = {"role": "assistant", "content": "Hi", "toolset_name": None}
    if body is MessagesBody:
        call = {"type": "tool_use", "id": "a", "name": "f", "input": {"x": None}, "toolset_name": None}
        said["content"] = [{"type": "text", "text": "Hi", "id": None, "citations": None}, call]
    field = "input" if body is ResponsesBody else "messages"
    data = {"model": "m", "max_tokens": 3, "new": None, field: [said]}
    if body is not MessagesBody:
        del data["max_tokens"]
    parsed = parse(json.dumps(data).encode(), body)
    [message] = getattr(parsed, field)
    if body is MessagesBody:
        assert message.content[1].input == {"x": None}
    said["toolset_name"] = "mine"
    with pytest.raises(RequestError, match=rf"Unknown field: {field}\[0\].toolset_name"):
        parse(json.dumps(data).encode(), body)


def test_each_endpoint_has_its_own_fields() -> None:
    with pytest.raises(RequestError, match="Unknown field: messages") as caught:
        parse(b'{"prompt": "a", "messages": []}', CompletionBody)
    assert caught.value.param == "messages"
    with pytest.raises(RequestError, match=r"prompt\[1\] is 2\.5: expected int \| str \| array"):
        parse(b'{"prompt": [1, 2.5]}', CompletionBody)
    with pytest.raises(RequestError, match="suffix is not supported"):
        parse(b'{"prompt": "a", "suffix": "b"}', CompletionBody)
    with pytest.raises(RequestError, match="prompt is missing"):
        parse(b"{}", CompletionBody)


def test_long_values_are_cut_in_messages() -> None:
    assert len(refusal(temperature="x" * 1000)[1]) < 200


def nested(levels: int) -> dict[str, Any]:
    """A schema of objects inside each other; each level has two JSON objects."""
    schema: dict[str, Any] = {"type": "string"}
    for _ in range(levels):
        schema = {"type": "object", "properties": {"a": schema}}
    return schema


@pytest.mark.parametrize("levels", [100, 5000], ids=["decodable", "beyond the decoder"])
@pytest.mark.parametrize("brackets", ["[]", '{"a":}'])
def test_nesting_is_limited(levels: int, brackets: str) -> None:
    text = brackets[:-1] * levels + "1" + brackets[-1] * levels
    with pytest.raises(RequestError, match=r"is nested too deep: .* 64 levels .* make it flatter"):
        parse(text.encode(), ChatBody)
    with pytest.raises(RequestError, match="nested too deep"):
        parse(f'{{"messages": {text}}}'.encode(), ChatBody)


def test_brackets_that_never_close() -> None:
    with pytest.raises(RequestError, match="The body is nested too deep"):
        parse(b"[" * 200_000, ChatBody)


def test_what_is_nested_too_deep_is_named() -> None:
    assert refusal(tools=tool(parameters=nested(100)))[0] == "tools[0].function.parameters"
    assert refusal(chat_template_kwargs={"a": nested(100)})[0] == "chat_template_kwargs.a.properties.a"
    function = {"name": "f", "arguments": json.dumps(nested(150))}
    message = {"role": "assistant", "tool_calls": [{"id": "1", "function": function}]}
    field = "messages[0].tool_calls[0].function.arguments"
    with pytest.raises(RequestError, match="nested too deep") as caught:
        TEMPLATE.render([message])
    assert caught.value.param == field
    assert caught.value.message.startswith(field)


def test_what_is_nested_too_deep_is_named_by_a_short_path() -> None:
    deep = '{"' + "k" * 1000 + '":' + "[" * 70 + "]" * 70 + "}"
    with pytest.raises(RequestError, match=r"^metadata\.k+\.\.\. is nested too deep") as caught:
        parse(f'{{"metadata": {deep}}}'.encode(), ChatBody)
    assert len(caught.value.message) < 200


def test_the_deepest_that_is_taken_can_be_rendered() -> None:
    deep = (MAX_NESTING - 4) // 2  # the body, the list, the tool and the function are levels too
    fits = tool(parameters=nested(deep - 1))
    chat(tools=fits)
    assert "STRING" in TEMPLATE.render(HI, fits)
    refusal(tools=tool(parameters=nested(deep)))


def test_brackets_in_strings_are_no_levels() -> None:
    text = "[{" * MAX_NESTING
    assert chat(messages=[{"role": "user", "content": text}]).messages[0].content == text


@pytest.mark.parametrize("encoding", ["utf-8-sig", "utf-16", "utf-16-le", "utf-16-be", "utf-32"])
def test_bodies_are_utf_8_without_a_mark(encoding: str) -> None:
    with pytest.raises(
        RequestError, match=r"The body (is in UTF-16|begins with a byte order mark).*: send UTF-8"
    ):
        parse('{"prompt": "a"}'.encode(encoding), CompletionBody)


@pytest.mark.parametrize("half", [r"\ud83d", r"\ude00", r"\ud83d\u0041"])
def test_half_a_character_is_called_so(half: str) -> None:
    with pytest.raises(RequestError, match=r"prompt holds a lone surrogate, \\ud[e8]") as caught:
        parse(f'{{"model": "m", "prompt": ["a{half}b"]}}'.encode(), CompletionBody)
    assert caught.value.param == "prompt"
    assert parse(rb'{"prompt": "\ud83d\ude00"}', CompletionBody).prompt == "\N{GRINNING FACE}"
    with pytest.raises(RequestError, match="not JSON"):
        parse(f'{{"prompt": "{half}'.encode(), CompletionBody)


def test_reserved_template_variables() -> None:
    assert check_reserved({"enable_thinking": True}, frozenset({"messages"})) == {"enable_thinking": True}
    assert check_reserved(None, frozenset({"messages"})) == {}
    with pytest.raises(RequestError, match=r"chat_template_kwargs\.messages is set by the server"):
        check_reserved({"messages": []}, frozenset({"messages"}))


WORDS = ("role", "content", "type", "text", "function", "name", "parameters", "properties", "arguments", "id")
JSON_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-5, 2**70) | st.floats(allow_nan=False) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(WORDS), inner, max_size=4),
    max_leaves=12,
)
BODIES = st.dictionaries(
    st.sampled_from([*ChatBody.__struct_fields__, "n", "logprobs", "foo"]), JSON_VALUES, max_size=6
)


@given(BODIES | JSON_VALUES)
def test_any_body_is_taken_or_refused(body: Any) -> None:
    with suppress(RequestError):
        parse(json.dumps(body).encode(), ChatBody)


@given(st.binary(max_size=40))
def test_any_bytes_are_refused(data: bytes) -> None:
    with pytest.raises(RequestError):
        parse(data, ChatBody)


@given(st.dictionaries(st.sampled_from(WORDS), JSON_VALUES, max_size=4), JSON_VALUES)
def test_any_schema_is_rendered_or_refused(parameters: Any, arguments: Any) -> None:
    """Parameters and arguments are the caller's own JSON; a template may not make sense of them."""
    function = {"name": "f", "description": "d", "parameters": parameters}
    call = {"id": "1", "function": {"name": "f", "arguments": json.dumps(arguments)}}
    messages = [*HI, {"role": "assistant", "tool_calls": [call]}]
    with suppress(RequestError):
        assert TEMPLATE.render(messages, [{"type": "function", "function": function}])
