"""Tools -> a Lark grammar of the answers that call them, in the notation that the model writes.

The inverse of `chat_parser` and `json_calls`: what the grammar allows, they read as calls whose arguments
satisfy the tools' schemas. The dialect is llguidance's; its markers are token ids, which text cannot fake.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any

from onechip.errors import RequestError
from onechip.models.call_notation import Rules, literal
from onechip.models.call_schema import ArgumentRules
from onechip.models.chat_parser import has_call_markers, is_function_name
from onechip.models.json_calls import CLOSE, OPEN
from onechip.models.json_grammar import SchemaError, check_json_schema, json_rule
from onechip.models.tokenizer import Tokenizer

Tool = Mapping[str, Any]

_NO_PARAMETERS = {"type": "object", "properties": {}, "additionalProperties": False}
"""What OpenAI takes a function without `parameters` for."""


def call_grammar(
    tokenizer: Tokenizer, tools: Sequence[Tool], *, required: bool, many: bool, param: str
) -> str:
    """The text of the grammar.

    Args:
        tools: OpenAI's tool definitions, at least one.
        required: the answer is calls and nothing else. Otherwise text is free until a call begins, and a tool
            that is not `strict` may be called with any object.
        many: several calls may come, one after the other.
        param: the field of the request that errors name.

    Raises:
        RequestError: the schema of a tool cannot be held to, or its name cannot be written.
    """
    functions = [tool["function"] for tool in tools]
    if has_call_markers(tokenizer):
        _check_names(functions, param)
    held = [function for function in functions if required or function.get("strict") is True]
    write = _gemma if has_call_markers(tokenizer) else _json
    for function in held:
        try:
            write(tokenizer, [function], [function], required, many)
        except SchemaError as error:
            raise _refusal(function["name"], error, param) from None
    return write(tokenizer, functions, held, required, many)


def _check_names(functions: Sequence[Mapping[str, Any]], param: str) -> None:
    for function in functions:
        if not is_function_name(function["name"]):
            raise RequestError(
                f"{param}: this model cannot write the name {function['name'][:80]!r}: give it at most 200 "
                "characters, without blanks, colons, brackets and quotes.",
                param=param,
            )


def _refusal(name: str, error: SchemaError, param: str) -> RequestError:
    return RequestError(
        f"{param}: calls of {name} cannot be held to its schema: parameters{error.where} {error.reason}. "
        'Change the schema, or ask with tool_choice "auto" and without strict.',
        param=param,
    )


def _schema(function: Mapping[str, Any]) -> Any:
    found = function.get("parameters")
    return _NO_PARAMETERS if found is None else found


def _gemma(
    tokenizer: Tokenizer,
    functions: Sequence[Mapping[str, Any]],
    held: Sequence[Mapping[str, Any]],
    required: bool,
    many: bool,
) -> str:
    """`<|tool_call>call:NAME{...}<tool_call|>`, any number of times."""
    opener, closer, quote = (_id(tokenizer, token) for token in ("<|tool_call>", "<tool_call|>", '<|"|>'))
    rules = Rules(quote)
    calls = []
    for function in functions:
        arguments = (
            ArgumentRules(rules, _schema(function)).arguments() if function in held else rules.any_object()
        )
        calls.append(f"{literal('call:' + function['name'])} {arguments}")
    call = rules.rule(f"<[{opener}]> ({' | '.join(calls)}) <[{closer}]>")
    if required:
        start = f"{call}+" if many else call
    else:
        markers = ",".join(map(str, sorted({opener, *tokenizer.stop_ids})))
        free = rules.rule(f"<[^{markers}]>*")
        start = f"{free} ({call} {free})*" if many else f"{free} {call}?"
    return "\n".join([f"start: {start}", *rules.lines])


def _id(tokenizer: Tokenizer, token: str) -> int:
    id = tokenizer.token_id(token)
    assert id is not None  # has_call_markers
    return id


def _json(
    tokenizer: Tokenizer,
    functions: Sequence[Mapping[str, Any]],
    held: Sequence[Mapping[str, Any]],
    required: bool,
    many: bool,
) -> str:
    """Calls as JSON: the whole answer, or between `<tool_call>` and `</tool_call>`. The model knows which."""
    lines = []
    for index, function in enumerate(functions):
        schema = _schema(function) if function in held else {"type": "object"}
        check_json_schema(schema)
        head = f'\\{{"name": ?{_regex(json.dumps(function["name"]))}, ?"(arguments|parameters)": ?/'
        arguments = f'{json_rule(schema)} "}}"'
        lines += [f"call{index}: / ?{head} {arguments}", f"first{index}: / ?\\[{head} {arguments}"]
    call, first = (
        f"({' | '.join(f'{name}{index}' for index in range(len(functions)))})" for name in ("call", "first")
    )
    lines += [
        f'calls: {call} | {first} (/, ?/ {call})* "]"' if many else f"calls: {call}",
        f"inside: /\\n?/ calls /\\n?/ {literal(CLOSE)}",
    ]
    if required:
        more = f"(/\\n?/ {literal(OPEN)} inside)*" if many else ""
        return "\n".join([f"start: calls | / ?{OPEN}/ inside {more}", *lines])
    # What the reader takes for calls although no marker is there is no text.
    names = "|".join(_regex(json.dumps(function["name"])) for function in functions)
    call_like = f'/\\s*(\\[\\s*)?\\{{(?s:.*)"name"\\s*:\\s*({names})(?s:.*)/'
    lines += [
        f"until_call[lazy]: UNTIL_CALL\nUNTIL_CALL: /(?s:.*){OPEN}/ & ~{call_like}",
        f"TEXT: /(?s:.*)/ & ~/(?s:.*){OPEN}(?s:.*)/ & ~{call_like}",
    ]
    return "\n".join([f"start: calls | (until_call inside){'*' if many else '?'} TEXT", *lines])


def _regex(text: str) -> str:
    """A regex for `text` alone, between slashes."""
    return re.escape(text).replace("/", "\\/")
