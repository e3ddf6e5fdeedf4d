"""Earlier turns in another protocol's form -> OpenAI's messages, which chat templates take."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

from onechip.errors import RequestError

_OPENING = ("system", "developer")


class Part(Protocol):
    """A text that a protocol lets stand beside others."""

    @property
    def text(self) -> str: ...


def content(parts: str | Sequence[Part]) -> str | list[dict[str, str]]:
    """The content of a message: one text as it is, several as parts."""
    if isinstance(parts, str):
        return parts
    if len(parts) == 1:
        return parts[0].text
    return [{"type": "text", "text": part.text} for part in parts]


def joined(content: str | Sequence[dict[str, str]]) -> str:
    """The content of a message in one text."""
    return content if isinstance(content, str) else "\n".join(part["text"] for part in content)


def call(id: str, name: str, arguments: str | dict[str, Any]) -> dict[str, Any]:
    """One of a message's `tool_calls`; `arguments` may be JSON text or an object."""
    return {"id": id, "type": "function", "function": {"name": name, "arguments": arguments}}


def result(call_id: str, content: str | list[dict[str, str]]) -> dict[str, Any]:
    """The message that says what a call gave."""
    return {"role": "tool", "tool_call_id": call_id, "content": content}


def with_one_opening(messages: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """`messages` with all instructions at the beginning in one: templates have a place for one."""
    count = next((n for n, message in enumerate(messages) if message["role"] not in _OPENING), len(messages))
    if count < 2:
        return list(messages)
    opening = "\n\n".join(joined(message["content"]) for message in messages[:count])
    return [{"role": "system", "content": opening}, *messages[count:]]


def check_results(messages: Sequence[dict[str, Any]], field: str) -> None:
    """Raises RequestError if a tool's result has no call before it: templates would drop it without a word.

    Args:
        field: where the messages come from.
    """
    called: set[str] = set()
    for message in messages:
        called.update(call["id"] for call in message.get("tool_calls", ()))
        if message["role"] == "tool" and message["tool_call_id"] not in called:
            raise RequestError(
                f"{field} has a result for the call {message['tool_call_id']!r}, but no such call before it: "
                "send the message with the call too.",
                param=field,
            )
