"""Ollama's messages -> OpenAI's chat messages, whose calls and results have ids."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from onechip.errors import RequestError
from onechip.server.history import call, check_results, result
from onechip.server.ollama.body import Message


def messages_of(messages: Sequence[Message]) -> list[dict[str, Any]]:
    """The conversation; calls without an id get one.

    Raises:
        RequestError: a result has no call before it.
    """
    history: list[dict[str, Any]] = []
    waiting: list[tuple[str, str]] = []  # id and name of calls without a result
    for index, message in enumerate(messages):
        if message.role == "tool":
            history.append(result(_called(message, waiting, index), message.content or ""))
            continue
        turn: dict[str, Any] = {"role": message.role, "content": message.content or ""}
        if message.thinking:
            turn["reasoning"] = message.thinking
        if message.tool_calls:
            turn["tool_calls"] = [
                call(made.id or f"call_{index}_{position}", made.function.name, made.function.arguments)
                for position, made in enumerate(message.tool_calls)
            ]
            waiting = [(made["id"], made["function"]["name"]) for made in turn["tool_calls"]]
        history.append(turn)
    check_results(history, "messages")
    return history


def _called(said: Message, waiting: list[tuple[str, str]], index: int) -> str:
    """The id of the call that `said` answers, which is taken out of `waiting`."""
    if said.tool_call_id is not None:
        return said.tool_call_id
    for position, (id, name) in enumerate(waiting):
        if said.tool_name in (None, name):
            del waiting[position]
            return id
    of = f" of {said.tool_name!r}" if said.tool_name else ""
    raise RequestError(
        f"messages[{index}] has a tool's result, but no call{of} before it is without one: send the message "
        "with the call too.",
        param=f"messages[{index}]",
    )
