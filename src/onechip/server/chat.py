"""POST /v1/chat/completions: messages in, the model's message out, whole or as a stream of deltas."""

from __future__ import annotations

import secrets
import time
from collections.abc import Sequence

import msgspec
from msgspec import UNSET, UnsetType
from starlette.responses import Response
from starlette.types import Receive

from onechip.models.chat_parser import CallArguments, CallOpen, Delta, Reasoning, Text
from onechip.server.answer import FinishReason
from onechip.server.conversation import ChatRequest, Limits, begin
from onechip.server.errors import json_response
from onechip.server.replies import (
    ChatChoice,
    ChatChunk,
    ChatChunkChoice,
    ChatCompletion,
    ChatDelta,
    ChatMessage,
    FunctionCall,
    ToolCall,
    Usage,
)
from onechip.server.sampling import check_stream_options
from onechip.server.schemas import ChatBody
from onechip.server.service import Service
from onechip.server.sse import ChunkEvents
from onechip.server.streaming import StreamedAnswer


async def chat_completions(service: Service, body: ChatBody, receive: Receive) -> Response:
    """Answer one chat request.

    With `tool_choice: "none"` the prompt does not speak of the tools, so the model does not call them.

    Raises:
        OnechipError: the request is wrong, or the engine does not take it.
    """
    check_stream_options(body)
    model = service.model(body.model)
    request_id, created = f"chatcmpl-{secrets.token_hex(16)}", int(time.time())
    generation = await begin(service, model, _asked(body), request_id)
    model_id = service.config.model_id
    if body.stream:
        chunks = ChatChunks(request_id, model_id, created)
        return StreamedAnswer(generation, ChunkEvents(generation, chunks, body.stream_options))
    message = _message(await generation.whole(receive))
    assert generation.answer.finish is not None
    choice = ChatChoice(message=message, finish_reason=generation.answer.finish)
    return json_response(ChatCompletion(request_id, created, model_id, [choice], generation.usage))


def _asked(body: ChatBody) -> ChatRequest:
    field = "max_tokens" if body.max_completion_tokens is None else "max_completion_tokens"
    effort = body.reasoning_effort
    return ChatRequest(
        messages=msgspec.to_builtins(body.messages),
        tools=msgspec.to_builtins(body.tools or []) if body.tool_choice != "none" else [],
        sampling=body,
        limits=Limits(getattr(body, field), field),
        thinking=None if effort is None else effort != "none",
        thinking_field="reasoning_effort",
        variables=body.chat_template_kwargs or {},
        one_call=body.parallel_tool_calls is False,
    )


def _message(deltas: Sequence[Delta]) -> ChatMessage:
    text = "".join(delta.text for delta in deltas if isinstance(delta, Text))
    reasoning = "".join(delta.text for delta in deltas if isinstance(delta, Reasoning))
    calls = [
        ToolCall(id=delta.id, type="function", function=FunctionCall(name=delta.name, arguments=""))
        for delta in deltas
        if isinstance(delta, CallOpen)
    ]
    for delta in deltas:
        if isinstance(delta, CallArguments):
            calls[delta.index].function.arguments += delta.fragment
    return ChatMessage(text if text or not calls else None, reasoning or UNSET, calls or UNSET)


class ChatChunks:
    """The events of a streamed chat answer. Text, thoughts and calls never share an event."""

    def __init__(self, id: str, model_id: str, created: int) -> None:
        self._id, self._model_id, self._created = id, model_id, created

    def opening(self) -> list[ChatChunkChoice]:
        return [ChatChunkChoice(delta=ChatDelta(role="assistant", content=""))]

    def window(self, deltas: Sequence[Delta]) -> list[ChatChunkChoice]:
        events: list[ChatDelta] = []
        for delta in deltas:
            if isinstance(delta, Text):
                events.append(ChatDelta(content=delta.text))
            elif isinstance(delta, Reasoning):
                events.append(ChatDelta(reasoning_content=delta.text))
            elif isinstance(delta, CallOpen | CallArguments):
                _add_call(delta, events)
        return [ChatChunkChoice(delta=event) for event in events or [ChatDelta(content="")]]

    def closing(self, finish: FinishReason) -> ChatChunkChoice:
        return ChatChunkChoice(delta=ChatDelta(), finish_reason=finish)

    def body(self, choices: list[ChatChunkChoice], usage: Usage | UnsetType | None) -> ChatChunk:
        return ChatChunk(self._id, self._created, self._model_id, choices, usage)


def _add_call(delta: CallOpen | CallArguments, events: list[ChatDelta]) -> None:
    """Put a call's beginning or more of its arguments into the last event if that is about calls too."""
    calls = events[-1].tool_calls if events else UNSET
    if calls is UNSET:
        calls = []
        events.append(ChatDelta(tool_calls=calls))
    if isinstance(delta, CallOpen):
        function = FunctionCall(name=delta.name, arguments="")
        calls.append(ToolCall(index=delta.index, id=delta.id, type="function", function=function))
    elif calls and calls[-1].index == delta.index:
        calls[-1].function.arguments += delta.fragment
    else:
        calls.append(ToolCall(index=delta.index, function=FunctionCall(arguments=delta.fragment)))
