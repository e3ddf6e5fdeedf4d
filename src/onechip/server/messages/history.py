"""Anthropic's messages and content blocks -> OpenAI's chat messages."""

from __future__ import annotations

from typing import Any

from onechip.errors import RequestError
from onechip.models.chat_template import last_text
from onechip.server.history import call, check_results, content, joined, result, with_one_opening
from onechip.server.messages.body import (
    AssistantMessage,
    CountTokensBody,
    TextBlock,
    ThinkingBlock,
    ToolResultBlock,
    ToolUseBlock,
    UserMessage,
)


def messages_of(body: CountTokensBody) -> list[dict[str, Any]]:
    """The conversation in `system` and `messages`.

    Raises:
        RequestError: a result has no call before it, or the answer is begun with a blank at its end.
    """
    messages: list[dict[str, Any]] = []
    if body.system:
        messages.append({"role": "system", "content": content(body.system)})
    for message in body.messages:
        if isinstance(message, UserMessage):
            messages += _of_user(message)
        elif isinstance(message, AssistantMessage):
            messages.append(_of_assistant(message))
        else:
            messages.append({"role": "system", "content": content(message.content)})
    check_results(messages, "messages")
    if messages[-1]["role"] == "assistant" and last_text(messages[-1])[-1:].isspace():
        raise RequestError(
            "messages: final assistant content cannot end with trailing whitespace, since models begin words "
            "with their blank; take it off.",
            param="messages",
        )
    return with_one_opening(messages)


def _of_user(message: UserMessage) -> list[dict[str, Any]]:
    """Results of tools are messages of their own, before what the user says."""
    if isinstance(message.content, str):
        return [{"role": "user", "content": message.content}]
    results = [_result(block) for block in message.content if isinstance(block, ToolResultBlock)]
    texts = [block for block in message.content if isinstance(block, TextBlock)]
    said = [{"role": "user", "content": content(texts)}] if texts or not results else []
    return results + said


def _result(block: ToolResultBlock) -> dict[str, Any]:
    """A template has no place for `is_error`, so the text says it."""
    said = content(block.content or "")
    if block.is_error:
        said = f"Error: {joined(said)}"
    return result(block.tool_use_id, said)


def _of_assistant(message: AssistantMessage) -> dict[str, Any]:
    if isinstance(message.content, str):
        return {"role": "assistant", "content": message.content}
    turn: dict[str, Any] = {"role": "assistant"}
    texts = [block for block in message.content if isinstance(block, TextBlock)]
    thoughts = [block.thinking for block in message.content if isinstance(block, ThinkingBlock)]
    calls = [
        call(block.id, block.name, block.input)
        for block in message.content
        if isinstance(block, ToolUseBlock)
    ]
    if texts:
        turn["content"] = content(texts)
    if thoughts:
        turn["reasoning"] = "\n".join(thoughts)
    if calls:
        turn["tool_calls"] = calls
    return turn
