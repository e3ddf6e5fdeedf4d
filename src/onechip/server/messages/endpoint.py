"""POST /v1/messages: Anthropic's messages in, the model's content blocks out, whole or as a stream."""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from functools import partial

from msgspec import Raw
from starlette.responses import Response
from starlette.types import Receive

from onechip.errors import OnechipError
from onechip.models.chat_parser import Delta
from onechip.models.chat_template import ChatTemplate
from onechip.server.blocks import Block, Blocks, Grown, Opened, Step
from onechip.server.constraints import CallRule
from onechip.server.conversation import ChatRequest, begin, conversation_prompt, tool_definition
from onechip.server.endings import begun_or_new
from onechip.server.errors import anthropic_error, json_response
from onechip.server.generation import Generation
from onechip.server.messages import replies
from onechip.server.messages.body import (
    AnyChoice,
    CountTokensBody,
    MessagesBody,
    NoChoice,
    ThinkingAdaptive,
    ThinkingDisabled,
    ThinkingEnabled,
    ToolChoice,
)
from onechip.server.messages.history import messages_of
from onechip.server.sampling import Limits
from onechip.server.schemas import Sampling
from onechip.server.service import Model, Service
from onechip.server.streaming import EVENT_STREAM, StreamedAnswer, named_sse
from onechip.server.structure import schema_of
from onechip.server.thinking import Thinking
from onechip.server.work import apart


async def messages(service: Service, body: MessagesBody, receive: Receive) -> Response:
    """Answer one request.

    Raises:
        OnechipError: the request is wrong, or the engine does not take it.
    """
    model = service.model(body.model)
    sampling = Sampling(
        temperature=body.temperature, top_p=body.top_p, top_k=body.top_k, stop=body.stop_sequences
    )
    asks = partial(_asked, model, body, sampling, body.max_tokens)
    group = await begin(service, model, asks, f"msg_{secrets.token_hex(12)}")
    generation = group.only
    if body.stream:
        return StreamedAnswer(group, [MessageEvents(generation, service.config.model_id, body.max_tokens)])
    [deltas] = await group.whole(receive)
    blocks = Blocks.of(deltas)
    content = [_block(block, block.text) for block in blocks]
    return json_response(_message(generation, service.config.model_id, body.max_tokens, content))


async def count_tokens(service: Service, body: CountTokensBody, _: Receive) -> Response:
    """POST /v1/messages/count_tokens: how many tokens the prompt of the same request has."""
    model = service.model(body.model)
    prompt = await apart(lambda: conversation_prompt(model, _asked(model, body, Sampling(), None)))
    return json_response(replies.InputTokens(len(prompt)))


def _asked(model: Model, body: CountTokensBody, sampling: Sampling, limit: int | None) -> ChatRequest:
    form = body.output_config.format if body.output_config else None
    said, ending = begun_or_new(messages_of(body))
    return ChatRequest(
        messages=said,
        ending=ending,
        tools=[
            tool_definition(tool.name, tool.description, tool.input_schema, tool.strict)
            for tool in body.tools or ()
        ],
        calls=_calls(body),
        sampling=sampling,
        limits=Limits(limit, "max_tokens"),
        structure=schema_of(form.schema, "output_config.format.schema") if form else None,
        thinking=_thinking(body, model.template),
    )


def _calls(body: CountTokensBody) -> CallRule:
    choice = body.tool_choice
    if choice is None:
        return CallRule()
    if isinstance(choice, NoChoice):
        return CallRule("none")
    one = choice.disable_parallel_tool_use is True
    if isinstance(choice, ToolChoice):
        return CallRule("named", (choice.name,), one)
    return CallRule("required" if isinstance(choice, AnyChoice) else "auto", one=one)


def _thinking(body: CountTokensBody, template: ChatTemplate | None) -> Thinking:
    """A model that cannot be told to think has nothing to decide where it is to decide by itself."""
    effort = body.output_config.effort if body.output_config else None
    budget = Thinking.of_effort(effort, "output_config.effort").budget
    if body.thinking is None:
        return Thinking(budget=budget)
    if isinstance(body.thinking, ThinkingEnabled):
        return Thinking(True, "thinking", body.thinking.budget_tokens, "thinking.budget_tokens")
    if isinstance(body.thinking, ThinkingAdaptive) and not (template and template.reads_thinking):
        return Thinking(budget=budget)
    return Thinking(not isinstance(body.thinking, ThinkingDisabled), "thinking", budget)


def _message(
    generation: Generation, model_id: str, limit: int, content: list[replies.ReplyBlock]
) -> replies.MessageReply:
    """The message so far, which may have `limit` tokens."""
    ended = generation.answer.finish is not None
    return replies.MessageReply(
        id=generation.request.id,
        model=model_id,
        content=content,
        stop_reason=_stop_reason(generation, limit) if ended else None,
        stop_sequence=generation.answer.stop_string,
        usage=_usage(generation),
    )


def _stop_reason(generation: Generation, limit: int) -> replies.StopReason:
    answer = generation.answer
    if answer.finish == "length":
        room = generation.request.sampling.max_tokens
        return "max_tokens" if room == limit else "model_context_window_exceeded"
    if answer.finish == "tool_calls":
        return "tool_use"
    return "end_turn" if answer.stop_string is None else "stop_sequence"


def _usage(generation: Generation) -> replies.MessagesUsage:
    usage = generation.usage
    cached = usage.prompt_tokens_details.cached_tokens
    return replies.MessagesUsage(
        usage.prompt_tokens - cached,
        usage.completion_tokens,
        replies.OutputDetails(generation.answer.reasoning_tokens),
        cached,
    )


def _block(block: Block, text: str) -> replies.ReplyBlock:
    if block.kind == "call":
        return replies.ToolUseReply(block.call_id, block.name, Raw(text.encode() or b"{}"))
    return replies.TextReply(text) if block.kind == "text" else replies.ThinkingReply(text)


class MessageEvents:
    """The events of a streamed message, under Anthropic's names and in Anthropic's order."""

    content_type = EVENT_STREAM

    def __init__(self, generation: Generation, model_id: str, limit: int) -> None:
        self._generation = generation
        self._model_id = model_id
        self._limit = limit
        self._blocks = Blocks()

    def opening(self) -> bytes:
        return named_sse(replies.MessageStart(_message(self._generation, self._model_id, self._limit, [])))

    def window(self, deltas: Sequence[Delta]) -> bytes:
        return b"".join([_event(step) for step in self._blocks.take(deltas)])

    def closing(self) -> bytes:
        rest = b"".join([_event(step) for step in self._blocks.end()])
        reason = _stop_reason(self._generation, self._limit)
        ending = replies.Ending(reason, self._generation.answer.stop_string)
        delta = replies.MessageDelta(ending, _usage(self._generation))
        return rest + named_sse(delta) + named_sse(replies.MessageStop())

    def failure(self, error: OnechipError) -> bytes:
        return named_sse(anthropic_error(error))


def _event(step: Step) -> bytes:
    index = step.block.index
    if isinstance(step, Opened):
        return named_sse(replies.BlockStart(index, _block(step.block, "")))
    if not isinstance(step, Grown):
        return named_sse(replies.BlockStop(index))
    delta: replies.TextDelta | replies.ThinkingDelta | replies.InputDelta
    if step.block.kind == "call":
        delta = replies.InputDelta(step.piece)
    elif step.block.kind == "text":
        delta = replies.TextDelta(step.piece)
    else:
        delta = replies.ThinkingDelta(step.piece)
    return named_sse(replies.BlockDelta(index, delta))
