"""Items of the Responses API -> OpenAI's chat messages."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from onechip.server.history import call, check_results, content, result, with_one_opening
from onechip.server.responses.body import (
    FunctionCall,
    FunctionCallOutput,
    InputMessage,
    Item,
    ReasoningItem,
    ResponsesBody,
)
from onechip.server.responses.tools import told_name


def messages_of(body: ResponsesBody) -> list[dict[str, Any]]:
    """The conversation that `body` has in `instructions` and `input`.

    Raises:
        RequestError: a call's output has no call before it.
    """
    messages: list[dict[str, Any]] = []
    if body.instructions:
        messages.append({"role": "system", "content": body.instructions})
    if isinstance(body.input, str):
        messages.append({"role": "user", "content": body.input})
    else:
        messages += _from_items(body.input)
    check_results(messages, "input")
    return with_one_opening(messages)


def _from_items(items: Sequence[Item]) -> list[dict[str, Any]]:
    """One message for each item; what an assistant thought, said and called in a row is one message."""
    messages: list[dict[str, Any]] = []
    turn: dict[str, Any] | None = None  # of the assistant, still open
    for item in items:
        if isinstance(item, FunctionCallOutput):
            messages.append(result(item.call_id, content(item.output)))
            turn = None
        elif isinstance(item, InputMessage) and item.role != "assistant":
            messages.append({"role": item.role, "content": content(item.content)})
            turn = None
        else:
            if turn is None or not _continues(turn, item):
                turn = {"role": "assistant"}
                messages.append(turn)
            _extend(turn, item)
    return messages


def _continues(turn: dict[str, Any], item: Item) -> bool:
    """Whether `item` belongs to the same answer: thoughts come first, then text, then calls."""
    if isinstance(item, FunctionCall):
        return True
    return (
        turn.keys() <= {"role"} if isinstance(item, ReasoningItem) else turn.keys() <= {"role", "reasoning"}
    )


def _extend(turn: dict[str, Any], item: Item) -> None:
    if isinstance(item, FunctionCall):
        made = call(item.call_id, told_name(item.namespace, item.name), item.arguments)
        turn.setdefault("tool_calls", []).append(made)
    elif isinstance(item, ReasoningItem):
        turn["reasoning"] = "".join(part.text for part in item.content or item.summary)
    elif isinstance(item, InputMessage):
        turn["content"] = content(item.content)
