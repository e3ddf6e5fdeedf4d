"""POST /v1/chat/completions: messages in, the model's message out, whole or as a stream of deltas."""

from __future__ import annotations

import secrets
import time
from collections.abc import Sequence
from typing import Any

import msgspec
from msgspec import UNSET, UnsetType
from starlette.responses import Response
from starlette.types import Receive

from onechip.engine.types import Request
from onechip.errors import RequestError
from onechip.models.chat_parser import (
    CallArguments,
    CallOpen,
    ChatParser,
    Delta,
    Reasoning,
    Text,
    has_call_markers,
)
from onechip.models.chat_template import RESERVED_VARIABLES
from onechip.models.json_calls import JsonCallParser
from onechip.models.tokenizer import Tokenizer
from onechip.server.answer import Answer, FinishReason, Reader
from onechip.server.errors import json_response
from onechip.server.generation import Generation
from onechip.server.parsing import check_reserved
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
from onechip.server.sampling import output_limit, sampling_params, stop_strings
from onechip.server.schemas import ChatBody, Message
from onechip.server.service import Model, Service
from onechip.server.sse import EventStream


async def chat_completions(service: Service, body: ChatBody, receive: Receive) -> Response:
    """Answer one chat request.

    With `tool_choice: "none"` the prompt does not speak of the tools, so the model does not call them.

    Raises:
        OnechipError: the request is wrong, or the engine does not take it.
    """
    model = service.model(body.model)
    tools = msgspec.to_builtins(body.tools or []) if body.tool_choice != "none" else []
    prompt = await chat_prompt(model, body.messages, tools, body.chat_template_kwargs)
    field = "max_tokens" if body.max_completion_tokens is None else "max_completion_tokens"
    limit = output_limit(
        getattr(body, field), field, len(prompt), model.engine.context, model.largest_context
    )
    params = sampling_params(body, model.defaults, limit, model.tokenizer.vocab_size)
    request = Request(f"chatcmpl-{secrets.token_hex(16)}", tuple(prompt), params)
    answer = Answer(
        _reader(model.tokenizer, tools, prompt, body.skip_special_tokens is not False),
        stops=stop_strings(body),
        min_tokens=params.min_tokens,
        one_call=body.parallel_tool_calls is False,
    )
    generation = Generation(service, model, request, answer)
    if body.stream:
        return EventStream(
            generation, ChatChunks(request.id, service.config.model_id, int(time.time())), body.stream_options
        )
    return await _whole(generation, service.config.model_id, receive)


async def chat_prompt(
    model: Model,
    messages: Sequence[Message],
    tools: Sequence[dict[str, Any]],
    kwargs: dict[str, Any] | None,
    add_generation_prompt: bool = True,
) -> list[int]:
    """Token ids of a conversation, through the checkpoint's template.

    Raises:
        RequestError: there is no template, it has no place for tools, or it refuses the messages.
    """
    if model.template is None:
        raise RequestError(
            "This model has no chat template: ask /v1/completions, or start the server with the model's own "
            "chat_template.jinja in its folder.",
            param="messages",
        )
    if tools and not model.template.reads_tools:
        raise RequestError(
            "tools: the chat template of this model has no place for them; leave them out, or set "
            'tool_choice to "none".',
            param="tools",
        )
    variables = check_reserved(kwargs, RESERVED_VARIABLES)
    text = model.template.render(msgspec.to_builtins(messages), tools, add_generation_prompt, **variables)
    return await model.encode(text, add_bos=True)


def _reader(
    tokenizer: Tokenizer, tools: Sequence[dict[str, Any]], prompt: Sequence[int], skip_special: bool
) -> Reader:
    """What reads the answer: a model without Gemma 4's markers writes its calls as JSON."""
    if tools and not has_call_markers(tokenizer):
        return JsonCallParser(tokenizer, tools, skip_special)
    return ChatParser(tokenizer, tools, prompt, skip_special)


async def _whole(generation: Generation, model_id: str, receive: Receive) -> Response:
    """The answer in one piece."""
    created = int(time.time())
    deltas: list[Delta] = []
    with generation.watched(receive):
        while generation.answer.finish is None:
            deltas += await generation.step()
    choice = ChatChoice(message=_message(deltas), finish_reason=generation.answer.finish)
    return json_response(ChatCompletion(generation.request.id, created, model_id, [choice], generation.usage))


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
