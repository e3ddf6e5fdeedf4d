"""Ollama's messages -> OpenAI's chat messages, whose calls and results have ids."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from onechip.errors import RequestError
from onechip.server.history import check_results
from onechip.server.ollama.body import Message, ToolCall


def messages_of(messages: Sequence[Message]) -> list[dict[str, Any]]:
    """The conversation; calls without an id get one.

    Raises:
        RequestError: a result has no call before it.
    """
    history: list[dict[str, Any]] = []
    waiting: list[tuple[str, str]] = []  # id and name of calls without a result
    for index, message in enumerate(messages):
        if message.role == "tool":
            called = _called(message, waiting, index)
            history.append({"role": "tool", "tool_call_id": called, "content": message.content or ""})
            continue
        turn: dict[str, Any] = {"role": message.role, "content": message.content or ""}
        if message.thinking:
            turn["reasoning"] = message.thinking
        if message.tool_calls:
            turn["tool_calls"] = [
                _call(call, f"call_{index}_{position}") for position, call in enumerate(message.tool_calls)
            ]
            waiting = [(call["id"], call["function"]["name"]) for call in turn["tool_calls"]]
        history.append(turn)
    check_results(history, "messages")
    return history


def _call(call: ToolCall, id: str) -> dict[str, Any]:
    function = {"name": call.function.name, "arguments": call.function.arguments}
    return {"id": call.id or id, "type": "function", "function": function}


def _called(result: Message, waiting: list[tuple[str, str]], index: int) -> str:
    """The id of the call that `result` answers, which is taken out of `waiting`."""
    if result.tool_call_id is not None:
        return result.tool_call_id
    for position, (id, name) in enumerate(waiting):
        if result.tool_name in (None, name):
            del waiting[position]
            return id
    of = f" of {result.tool_name!r}" if result.tool_name else ""
    raise RequestError(
        f"messages[{index}] has a tool's result, but no call{of} before it is without one: send the message "
        "with the call too.",
        param=f"messages[{index}]",
    )
