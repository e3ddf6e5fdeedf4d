"""How a chat template wants the calls of earlier turns: arguments as objects or as JSON text, which ids, and
what content where there is none.

Nothing in a checkpoint says so; it is found by rendering a conversation with a call. Most templates print
objects. DeepSeek's join the arguments to a string, so objects fail; Mistral's refuse ids that are not nine
letters and digits, while those of clients are OpenAI's, or any.
"""

from __future__ import annotations

import hashlib
import itertools
import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import msgspec

from onechip.errors import RequestError
from onechip.models.json_text import decode_json

_ID_LENGTH = 9
_ARGUMENTS = {"Xylem": "Yucca"}

PROBE_NAME = "xylem"
"""Of the function that is called in PROBE."""

PROBE: tuple[dict[str, Any], ...] = (
    {"role": "user", "content": "Xylem"},
    {
        "role": "assistant",
        "tool_calls": [
            {
                "id": "call_xylem",
                "type": "function",
                "function": {"name": PROBE_NAME, "arguments": _ARGUMENTS},
            }
        ],
    },
    {"role": "tool", "tool_call_id": "call_xylem", "name": PROBE_NAME, "content": "Xylem"},
)
"""A conversation with a call and its result, by which templates are told apart."""


class CallForm(msgspec.Struct, frozen=True):
    """What `told` makes of calls.

    Attributes:
        as_text: arguments are JSON text, not objects.
        short_ids: ids are nine letters and digits.
        content: of messages that call and say nothing.
    """

    as_text: bool = False
    short_ids: bool = False
    content: str | None = None

    def told(self, message: Mapping[str, Any], index: int) -> Mapping[str, Any]:
        """`message`, number `index` of a conversation, with its calls, or the one it answers, in this form.

        Raises:
            RequestError: arguments are no JSON object.
        """
        changed: dict[str, Any] = {}
        if calls := message.get("tool_calls"):
            changed["tool_calls"] = [
                self._call(call, f"messages[{index}].tool_calls[{position}].function.arguments")
                for position, call in enumerate(calls)
            ]
            if message.get("content") is None:
                changed["content"] = self.content
        if self.short_ids and message.get("tool_call_id"):
            changed["tool_call_id"] = _short(message["tool_call_id"])
        return {**message, **changed} if changed else message

    def _call(self, call: Mapping[str, Any], field: str) -> dict[str, Any]:
        given = call["function"].get("arguments")
        arguments: Any = _decoded(given, field)
        if self.as_text:
            as_given = arguments and isinstance(given, str)
            arguments = given if as_given else json.dumps(arguments, ensure_ascii=False)
        told = {**call, "function": {**call["function"], "arguments": arguments}}
        return {**told, "id": _short(call["id"])} if self.short_ids and call.get("id") else told


def find_call_form(render: Callable[[Sequence[Mapping[str, Any]]], str | None]) -> CallForm:
    """The first form in which a template prints a call, and nothing of it as Python would; else the usual.

    Args:
        render: messages -> the prompt; None if the template fails on them.
    """
    as_python = repr(_ARGUMENTS)
    for content, as_text, short_ids in itertools.product((None, ""), (False, True), (False, True)):
        form = CallForm(as_text, short_ids, content)
        prompt = render([form.told(message, index) for index, message in enumerate(PROBE)]) or ""
        printed_none = content is None and "None" in prompt
        if _ARGUMENTS["Xylem"] in prompt and as_python not in prompt and not printed_none:
            return form
    return CallForm()


def _short(call_id: str) -> str:
    """Nine letters and digits, the same for the same id, so that the next turn's prompt begins as this."""
    if len(call_id) == _ID_LENGTH and call_id.isascii() and call_id.isalnum():
        return call_id
    return hashlib.sha256(call_id.encode("utf-8", "surrogatepass")).hexdigest()[:_ID_LENGTH]


def _decoded(arguments: Any, field: str) -> dict[str, Any]:
    value = decode_json(arguments or "{}", field, field) if isinstance(arguments, str) else arguments
    if value is None:
        return {}
    if not isinstance(value, dict):
        raise RequestError(f"{field} must be a JSON object, not {json.dumps(value)[:80]}.", param=field)
    return value
