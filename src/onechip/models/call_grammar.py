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
from onechip.models.json_grammar import check_json_schema, json_rule
from onechip.models.schema_limits import SchemaError, check_divisors
from onechip.models.schema_merge import Conflict, merged
from onechip.models.tokenizer import Tokenizer

Tool = Mapping[str, Any]

_ANY_OBJECT = {"type": "object"}
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
    calls: _GemmaCalls | _JsonCalls = _JsonCalls()
    if has_call_markers(tokenizer):
        _check_names(functions, param)
        calls = _GemmaCalls(tokenizer)
    schemas = []
    for function in functions:
        held = required or function.get("strict") is True
        schemas.append(_schema(function) if held else _ANY_OBJECT)
        try:
            calls.add(function["name"], schemas[-1])
        except SchemaError as error:
            raise _refusal(function["name"], error, param) from None
    try:
        check_divisors(schemas)
    except SchemaError as error:
        raise RequestError(f"{param}: {error}. Leave some tools out.", param=param) from None
    return calls.grammar(required, many)


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


class _GemmaCalls:
    """`<|tool_call>call:NAME{...}<tool_call|>`, any number of times."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._opener, self._closer, quote = (
            _id(tokenizer, token) for token in ("<|tool_call>", "<tool_call|>", '<|"|>')
        )
        self._stop_ids = tokenizer.stop_ids
        self._rules = Rules(quote)
        self._calls: list[str] = []

    def add(self, name: str, schema: Any) -> None:
        """A function may be called. Raises SchemaError if its schema cannot be held to."""
        arguments = ArgumentRules(self._rules, schema).arguments()
        self._calls.append(f"{literal('call:' + name)} {arguments}")

    def grammar(self, required: bool, many: bool) -> str:
        """The text of the grammar."""
        call = self._rules.rule(f"<[{self._opener}]> ({' | '.join(self._calls)}) <[{self._closer}]>")
        if required:
            start = f"{call}+" if many else call
        else:
            markers = ",".join(map(str, sorted({self._opener, *self._stop_ids})))
            free = self._rules.rule(f"<[^{markers}]>*")
            start = f"{free} ({call} {free})*" if many else f"{free} {call}?"
        return "\n".join([f"start: {start}", *self._rules.lines])


def _id(tokenizer: Tokenizer, token: str) -> int:
    id = tokenizer.token_id(token)
    assert id is not None  # has_call_markers
    return id


class _JsonCalls:
    """Calls as JSON: the whole answer, or between `<tool_call>` and `</tool_call>`. The model knows which."""

    def __init__(self) -> None:
        self._names: list[str] = []
        self._lines: list[str] = []

    def add(self, name: str, schema: Any) -> None:
        """A function may be called. Raises SchemaError if its schema cannot be held to."""
        try:
            schema = merged(_ANY_OBJECT, schema)
        except Conflict as error:
            raise SchemaError("", str(error)) from None
        check_json_schema(schema)
        # JSON may spell what is not ASCII either way, and the reader takes both.
        spelled = {_regex(json.dumps(name, ensure_ascii=ascii)) for ascii in (True, False)}
        index, name = len(self._names), f"({'|'.join(sorted(spelled))})"
        head = f'\\{{"name": ?{name}, ?"(arguments|parameters)": ?/'
        arguments = f'{json_rule(schema)} "}}"'
        self._names.append(name)
        self._lines += [f"call{index}: / ?{head} {arguments}", f"first{index}: / ?\\[{head} {arguments}"]

    def grammar(self, required: bool, many: bool) -> str:
        """The text of the grammar."""
        call, first = (
            f"({' | '.join(f'{rule}{index}' for index in range(len(self._names)))})"
            for rule in ("call", "first")
        )
        lines = [
            *self._lines,
            f'calls: {call} | {first} (/, ?/ {call})* "]"' if many else f"calls: {call}",
            f"inside: /\\n?/ calls /\\n?/ {literal(CLOSE)}",
        ]
        if required:
            more = f"(/\\n?/ {literal(OPEN)} inside)*" if many else ""
            return "\n".join([f"start: calls | / ?{OPEN}/ inside {more}", *lines])
        # What the reader takes for calls although no marker is there is no text.
        names = "|".join(self._names)
        call_like = f'/\\s*(\\[\\s*)?\\{{(?s:.*)"name"\\s*:\\s*({names})(?s:.*)/'
        lines += [
            f"until_call[lazy]: UNTIL_CALL\nUNTIL_CALL: /(?s:.*){OPEN}/ & ~{call_like}",
            f"TEXT: /(?s:.*)/ & ~/(?s:.*){OPEN}(?s:.*)/ & ~{call_like}",
        ]
        return "\n".join([f"start: calls | (until_call inside){'*' if many else '?'} TEXT", *lines])


def _regex(text: str) -> str:
    """A regex for `text` alone, between slashes."""
    return re.escape(text).replace("/", "\\/")
