"""POST /v1/chat/completions: messages in, the model's message out, whole or as a stream of deltas."""

from __future__ import annotations

import secrets
import time
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import msgspec
from msgspec import UNSET, UnsetType
from starlette.responses import Response
from starlette.types import Receive

from onechip.errors import OnechipError, RequestError
from onechip.models.chat_parser import CallArguments, CallOpen, Delta, Reasoning, Text, text_of
from onechip.server.answer import Answer, FinishReason
from onechip.server.constraints import CallRule
from onechip.server.conversation import ChatRequest, begin
from onechip.server.endings import ending_of
from onechip.server.errors import json_response
from onechip.server.logprobs import (
    ChatLogprobs,
    TokenNames,
    Untold,
    likeliest,
    prompt_logprobs,
    token_logprobs,
)
from onechip.server.orders import Choices
from onechip.server.replies import (
    ChatChoice,
    ChatChunk,
    ChatChunkChoice,
    ChatCompletion,
    ChatDelta,
    ChatMessage,
    ChoiceEnd,
    FunctionCall,
    ToolCall,
    Usage,
    choice_failure,
)
from onechip.server.sampling import Limits, check_stream
from onechip.server.schemas import AllowedToolChoice, ChatBody, NamedTool, ToolChoice
from onechip.server.service import Service
from onechip.server.sse import chunk_stream
from onechip.server.structure import structure_of
from onechip.server.thinking import Thinking


async def chat_completions(service: Service, body: ChatBody, receive: Receive) -> Response:
    """Answer one chat request.

    With `tool_choice: "none"` the prompt does not speak of the tools, so the model does not call them.

    Raises:
        OnechipError: the request is wrong, or the engine does not take it.
    """
    check_stream(body)
    _check_hidden(body)
    logprobs = likeliest(body.logprobs, body.top_logprobs)
    model = service.model(body.model)
    request_id, created = f"chatcmpl-{secrets.token_hex(16)}", int(time.time())
    group = await begin(service, model, partial(chat_request, body, logprobs), request_id)
    shown_id = f"chatcmpl-{body.request_id}" if body.request_id else request_id
    names = TokenNames(model.tokenizer, bool(body.return_tokens_as_token_ids))
    tokens = [ChatTokens(body, generation.answer, names) for generation in group.choices]
    prompt_ids = list(group.prompts[0]) if body.return_token_ids else UNSET
    reply = ChatCompletion(shown_id, created, service.config.model_id, [], group.usage)
    if body.stream:
        chunks = [ChatChunks(body, reply, place, told, prompt_ids) for place, told in enumerate(tokens)]
        return chunk_stream(group, chunks, body.stream_options)
    for place, deltas in enumerate(await group.whole(receive)):
        generation = group.choices[place]
        finish = _finish(body, generation.answer.finish or "error")
        choice = ChatChoice(index=place, message=_message(_shown(body, deltas)), finish_reason=finish)
        tokens[place].tell(choice)
        choice.error = choice_failure(generation.failure)
        reply.choices.append(choice)
    reply.usage, reply.prompt_token_ids = group.usage, prompt_ids
    if body.prompt_logprobs is not None:
        [scored] = group.scored
        reply.prompt_logprobs = prompt_logprobs(
            names, body.prompt_logprobs, scored.answer if scored else None
        )
    return json_response(reply)


def chat_request(body: ChatBody, logprobs: int | None = None) -> ChatRequest:
    """What `body` asks for, with so many of the likeliest tokens told. Raises RequestError if it is wrong."""
    field = "max_tokens" if body.max_completion_tokens is None else "max_completion_tokens"
    return ChatRequest(
        messages=msgspec.to_builtins(body.messages),
        tools=msgspec.to_builtins(body.tools or []),
        calls=call_rule(body.tool_choice, body.parallel_tool_calls),
        sampling=body,
        limits=Limits(getattr(body, field), field, exact=bool(body.ignore_eos)),
        structure=structure_of(body),
        thinking=_thinking(body),
        variables=body.chat_template_kwargs or {},
        choices=Choices(body.n or 1, logprobs, body.prompt_logprobs),
        ending=ending_of(body),
    )


def call_rule(choice: ToolChoice | None, parallel: bool | None = None) -> CallRule:
    """What `tool_choice` and `parallel_tool_calls` ask for."""
    one = parallel is False
    if isinstance(choice, NamedTool):
        return CallRule("named", (choice.function.name,), one)
    if isinstance(choice, AllowedToolChoice):
        allowed = choice.allowed_tools
        return CallRule(allowed.mode, tuple(tool.function.name for tool in allowed.tools), one)
    return CallRule(choice or "auto", one=one)


def _thinking(body: ChatBody) -> Thinking:
    """A number comes before what an effort sets. Raises RequestError if there are two numbers."""
    thinking = Thinking.of_effort(body.reasoning_effort, "reasoning_effort")
    fields = ("thinking_token_budget", "thinking_budget_tokens", "reasoning_budget_tokens")
    given = [(field, budget) for field in fields if (budget := getattr(body, field)) is not None]
    if len({budget for _, budget in given}) > 1:
        said = " and ".join(f"{field} is {budget}" for field, budget in given)
        raise RequestError(f"{said}: they are two names of one thing; leave one out.", param=given[1][0])
    for field, budget in given[:1]:
        return replace(thinking, budget=None if budget < 0 else budget, budget_field=field)
    return thinking


def _finish(body: ChatBody, finish: ChoiceEnd) -> ChoiceEnd:
    """OpenAI says that an answer stops where the request has named the function to call."""
    return "stop" if finish == "tool_calls" and isinstance(body.tool_choice, NamedTool) else finish


class ChatTokens:
    """What is told of the tokens of one choice, of each token once."""

    def __init__(self, body: ChatBody, answer: Answer, names: TokenNames) -> None:
        self._untold = Untold(answer)
        self._names = names
        self._logprobs, self._ids = bool(body.logprobs), bool(body.return_token_ids)

    def tell(self, choice: ChatChoice | ChatChunkChoice) -> None:
        """Tell `choice` of the tokens that came since the last call."""
        if not (self._logprobs or self._ids):
            return
        ids, told = self._untold.take()
        if self._logprobs:
            choice.logprobs = ChatLogprobs(token_logprobs(self._names, ids, told))
        if self._ids:
            choice.token_ids = ids


def _check_hidden(body: ChatBody) -> None:
    """Raises RequestError if thoughts are to be hidden, but their tokens to be told of."""
    for field in ("logprobs", "return_token_ids"):
        if body.include_reasoning is False and getattr(body, field):
            raise RequestError(
                f"include_reasoning is false, but {field} tells of every token, those of thoughts too; leave "
                "one out.",
                param="include_reasoning",
            )


def _shown(body: ChatBody, deltas: Sequence[Delta]) -> Sequence[Delta]:
    """Those of `deltas` that the client wants to see."""
    if body.include_reasoning is not False:
        return deltas
    return [delta for delta in deltas if not isinstance(delta, Reasoning)]


def _message(deltas: Sequence[Delta]) -> ChatMessage:
    text = text_of(deltas)
    reasoning = "".join(delta.text for delta in deltas if isinstance(delta, Reasoning))
    calls = [
        ToolCall(id=delta.id, type="function", function=FunctionCall(name=delta.name, arguments=""))
        for delta in deltas
        if isinstance(delta, CallOpen)
    ]
    for delta in deltas:
        if isinstance(delta, CallArguments):
            calls[delta.index].function.arguments += delta.fragment
    thoughts = reasoning or UNSET
    return ChatMessage(text if text or not calls else None, thoughts, thoughts, calls or UNSET)


class ChatChunks:
    """The events of a streamed choice. Text, thoughts and calls never share an event.

    What is told of the tokens of a window stands in the first event of the window.
    """

    def __init__(
        self,
        body: ChatBody,
        reply: ChatCompletion,
        place: int,
        tokens: ChatTokens,
        prompt_ids: list[int] | UnsetType,
    ) -> None:
        """Nothing is sent yet.

        Args:
            reply: has what is the same in all events.
            place: of the choice among the others.
            prompt_ids: what the first event is to say of the prompt.
        """
        self._body = body
        self._reply = reply
        self._place = place
        self._tokens = tokens
        self._prompt_ids = prompt_ids if place == 0 else UNSET

    def opening(self) -> list[ChatChunkChoice]:
        return [self._choice(ChatDelta(role="assistant", content=""))]

    def window(self, deltas: Sequence[Delta]) -> list[ChatChunkChoice]:
        events: list[ChatDelta] = []
        for delta in _shown(self._body, deltas):
            if isinstance(delta, Text):
                events.append(ChatDelta(content=delta.text))
            elif isinstance(delta, Reasoning):
                events.append(ChatDelta(reasoning=delta.text, reasoning_content=delta.text))
            elif isinstance(delta, CallOpen | CallArguments):
                _add_call(delta, events)
        place = self._place
        choices = [ChatChunkChoice(index=place, delta=event) for event in events or [ChatDelta(content="")]]
        self._tokens.tell(choices[0])
        return choices

    def closing(self, finish: FinishReason) -> ChatChunkChoice:
        return self._choice(ChatDelta(), finish_reason=_finish(self._body, finish))

    def failure(self, error: OnechipError) -> ChatChunkChoice:
        return self._choice(ChatDelta(), finish_reason="error", error=choice_failure(error))

    def body(self, choices: list[ChatChunkChoice], usage: Usage | UnsetType | None) -> ChatChunk:
        reply, prompt_ids = self._reply, self._prompt_ids
        self._prompt_ids = UNSET
        return ChatChunk(reply.id, reply.created, reply.model, choices, usage, prompt_ids)

    def _choice(self, delta: ChatDelta, **ending: Any) -> ChatChunkChoice:
        return ChatChunkChoice(index=self._place, delta=delta, **ending)


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
