"""Items of the Responses API -> OpenAI's chat messages."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from onechip.server.history import check_results, content, with_one_opening
from onechip.server.responses.body import (
    FunctionCall,
    FunctionCallOutput,
    InputMessage,
    InputText,
    Item,
    OutputText,
    ReasoningItem,
    ResponsesBody,
)


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
            text = _content(item.output)
            messages.append({"role": "tool", "tool_call_id": item.call_id, "content": text})
            turn = None
        elif isinstance(item, InputMessage) and item.role != "assistant":
            messages.append({"role": item.role, "content": _content(item.content)})
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
        function = {"name": item.name, "arguments": item.arguments}
        call = {"id": item.call_id, "type": "function", "function": function}
        turn.setdefault("tool_calls", []).append(call)
    elif isinstance(item, ReasoningItem):
        turn["reasoning"] = "".join(part.text for part in item.content or item.summary)
    elif isinstance(item, InputMessage):
        turn["content"] = _content(item.content)


def _content(parts: str | list[InputText] | list[InputText | OutputText]) -> str | list[dict[str, str]]:
    return parts if isinstance(parts, str) else content([part.text for part in parts])
