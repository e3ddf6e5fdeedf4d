"""Earlier turns in another protocol's form -> OpenAI's messages, which chat templates take."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from onechip.errors import RequestError

_OPENING = ("system", "developer")


def content(texts: Sequence[str]) -> str | list[dict[str, str]]:
    """The content of a message: one text as it is, several as parts."""
    if len(texts) == 1:
        return texts[0]
    return [{"type": "text", "text": text} for text in texts]


def with_one_opening(messages: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """`messages` with all instructions at the beginning in one: templates have a place for one."""
    count = next((n for n, message in enumerate(messages) if message["role"] not in _OPENING), len(messages))
    if count < 2:
        return list(messages)
    joined = "\n\n".join(_text(message["content"]) for message in messages[:count])
    return [{"role": "system", "content": joined}, *messages[count:]]


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


def _text(parts: str | Sequence[dict[str, str]]) -> str:
    return parts if isinstance(parts, str) else "\n".join(part["text"] for part in parts)
