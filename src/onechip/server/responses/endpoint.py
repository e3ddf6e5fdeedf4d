"""POST /v1/responses: items in, the model's items out, whole or as a stream of events."""

from __future__ import annotations

import secrets
import time
from collections.abc import Sequence
from functools import partial
from typing import Any

from msgspec import UNSET, Struct, structs
from starlette.responses import Response
from starlette.types import Receive

from onechip.errors import OnechipError, RequestError
from onechip.models.chat_parser import Delta
from onechip.server.blocks import Block, Blocks, Grown, Kind, Opened, Step
from onechip.server.constraints import CallRule
from onechip.server.conversation import ChatRequest, begin, conversation_prompt
from onechip.server.errors import json_response
from onechip.server.generation import Generation
from onechip.server.logprobs import TokenLogprob, TokenNames
from onechip.server.orders import Choices
from onechip.server.responses import replies
from onechip.server.responses.body import (
    AllowedToolChoice,
    JsonSchemaFormat,
    NamedTool,
    ReasoningConfig,
    ReasoningText,
    ResponsesBody,
    Status,
    TextConfig,
)
from onechip.server.responses.history import messages_of
from onechip.server.responses.tokens import BlockTokens
from onechip.server.responses.tools import Tools, called, definitions
from onechip.server.sampling import Limits
from onechip.server.schemas import JsonObjectFormat, TextFormat
from onechip.server.service import Service
from onechip.server.streaming import EVENT_STREAM, StreamedAnswer, named_sse
from onechip.server.structure import Structure, json_object_of, schema_of
from onechip.server.thinking import Thinking
from onechip.server.work import apart

_PREFIX = {"text": "msg", "reasoning": "rs", "call": "fc"}


async def responses(service: Service, body: ResponsesBody, receive: Receive) -> Response:
    """Answer one request; nothing of it is kept.

    Raises:
        OnechipError: the request is wrong, or the engine does not take it.
    """
    model = service.model(body.model)
    request_id = f"resp_{secrets.token_hex(24)}"
    group = await begin(service, model, partial(_asked, body), request_id)
    generation = group.only
    response = _response(body, generation, service.config.model_id)
    tokens = BlockTokens(generation.answer, TokenNames(model.tokenizer), _wants_logprobs(body))
    if body.stream:
        return StreamedAnswer(group, [ResponseEvents(generation, response, tokens)])
    blocks = Blocks()
    await group.whole(receive, lambda deltas: tokens.take(blocks.take(deltas)))
    blocks.end()
    ids = [_item_id(block) for block in blocks.all]
    return json_response(_ended(response, generation, blocks.all, ids, tokens))


async def input_tokens(service: Service, body: ResponsesBody, _: Receive) -> Response:
    """POST /v1/responses/input_tokens: how many tokens the prompt of the same request has."""
    model = service.model(body.model)
    prompt = await apart(lambda: conversation_prompt(model, _asked(body)))
    return json_response(replies.InputTokens(len(prompt)))


def _asked(body: ResponsesBody) -> ChatRequest:
    effort = body.reasoning.effort if body.reasoning else None
    return ChatRequest(
        messages=messages_of(body),
        tools=definitions(body.tools or ()),
        calls=_calls(body),
        sampling=body,
        limits=Limits(body.max_output_tokens, "max_output_tokens", exact=bool(body.ignore_eos)),
        structure=_structure(body),
        thinking=Thinking.of_effort(effort, "reasoning.effort"),
        variables=body.chat_template_kwargs or {},
        choices=Choices(logprobs=(body.top_logprobs or 0) if _wants_logprobs(body) else None),
    )


def _wants_logprobs(body: ResponsesBody) -> bool:
    return bool(body.top_logprobs) or "message.output_text.logprobs" in (body.include or ())


def _calls(body: ResponsesBody) -> CallRule:
    choice, one = body.tool_choice, body.parallel_tool_calls is False
    if isinstance(choice, NamedTool):
        return CallRule("named", (choice.name,), one)
    if isinstance(choice, AllowedToolChoice):
        return CallRule(choice.mode, tuple(tool.name for tool in choice.tools), one)
    return CallRule(choice or "auto", one=one)


def _structure(body: ResponsesBody) -> Structure | None:
    form = body.text.format if body.text else None
    if isinstance(form, JsonSchemaFormat):
        return schema_of(form.schema, "text.format.schema")
    return json_object_of(form, "text.format") if isinstance(form, JsonObjectFormat) else None


def _response(body: ResponsesBody, generation: Generation, model_id: str) -> replies.ResponseObject:
    """The response before anything is generated."""
    params = generation.request.sampling
    return replies.ResponseObject(
        id=generation.request.id,
        created_at=int(time.time()),
        status="in_progress",
        model=model_id,
        output=[],
        instructions=body.instructions,
        max_output_tokens=body.max_output_tokens,
        metadata=body.metadata or {},
        parallel_tool_calls=body.parallel_tool_calls is not False,
        reasoning=body.reasoning or ReasoningConfig(),
        temperature=params.temperature,
        text=TextConfig(format=(body.text.format if body.text else None) or TextFormat()),
        tool_choice=body.tool_choice or "auto",
        tools=body.tools or [],
        top_p=params.top_p,
        top_logprobs=body.top_logprobs or 0,
        user=body.user,
    )


def _ended(
    response: replies.ResponseObject,
    generation: Generation,
    blocks: Sequence[Block],
    ids: Sequence[str],
    tokens: BlockTokens,
) -> replies.ResponseObject:
    """`response` with its output, why it ended, and its usage."""
    cut_off = generation.answer.finish == "length"
    output = [
        _item(
            block,
            id,
            _status(generation, last=block is blocks[-1]),
            block.text,
            response.tools,
            tokens.of(block),
        )
        for block, id in zip(blocks, ids, strict=True)
    ]
    usage = generation.usage
    return structs.replace(
        response,
        status="incomplete" if cut_off else "completed",
        incomplete_details=replies.IncompleteDetails() if cut_off else None,
        output=output,
        usage=replies.ResponsesUsage(
            usage.prompt_tokens,
            replies.InputDetails(usage.prompt_tokens_details.cached_tokens),
            usage.completion_tokens,
            replies.OutputDetails(generation.answer.reasoning_tokens),
            usage.total_tokens,
        ),
    )


def _status(generation: Generation, last: bool) -> Status:
    """Of a block that is closed: incomplete is the one in which there was no more room."""
    return "incomplete" if last and generation.answer.finish == "length" else "completed"


def _item_id(block: Block) -> str:
    return f"{_PREFIX[block.kind]}_{secrets.token_hex(24)}"


def _item(
    block: Block,
    id: str,
    status: Status,
    text: str | None,
    tools: Tools,
    logprobs: Sequence[TokenLogprob] = (),
) -> replies.OutputItem:
    """The item of `block` with `text`, None as long as there is no place for any."""
    if block.kind == "call":
        namespace, name = called(block.name, tools)
        return replies.CallItem(id, status, block.call_id, name, text or "", namespace or UNSET)
    if block.kind == "reasoning":
        return replies.ReasoningReply(id, status, [] if text is None else [ReasoningText(text)])
    return replies.MessageItem(id, status, [] if text is None else [_text_part(text, logprobs)])


def _failure(error: OnechipError) -> replies.Failure:
    return replies.Failure(
        error.message, "invalid_prompt" if isinstance(error, RequestError) else "server_error"
    )


class ResponseEvents:
    """The events of a streamed response, under OpenAI's names and in OpenAI's order."""

    content_type = EVENT_STREAM

    def __init__(self, generation: Generation, response: replies.ResponseObject, tokens: BlockTokens) -> None:
        self._generation = generation
        self._response = response
        self._tokens = tokens
        self._tools = response.tools
        self._blocks = Blocks()
        self._ids: list[str] = []
        self._fresh: list[TokenLogprob] = []  # of a text that grows, and not sent yet
        self._sent = 0

    def opening(self) -> bytes:
        created = self._event(replies.Created, response=self._response)
        return created + self._event(replies.InProgress, response=self._response)

    def window(self, deltas: Sequence[Delta]) -> bytes:
        steps = self._blocks.take(deltas)
        self._fresh = self._tokens.take(steps)
        return b"".join([self._step(step) for step in steps])

    def closing(self) -> bytes:
        rest = b"".join([self._step(step) for step in self._blocks.end()])
        response = _ended(self._response, self._generation, self._blocks.all, self._ids, self._tokens)
        last = replies.Completed if response.status == "completed" else replies.Incomplete
        return rest + self._event(last, response=response)

    def failure(self, error: OnechipError) -> bytes:
        response = structs.replace(self._response, status="failed", error=_failure(error))
        return self._event(replies.Failed, response=response)

    def _event(self, type: type[Struct], **fields: Any) -> bytes:
        event = type(sequence_number=self._sent, **fields)
        self._sent += 1
        return named_sse(event)

    def _step(self, step: Step) -> bytes:
        block = step.block
        if isinstance(step, Opened):
            self._ids.append(_item_id(block))
            return self._opened(block)
        if isinstance(step, Grown):
            return self._grown(block, step.piece)
        return self._closed(block)

    def _place(self, block: Block) -> dict[str, Any]:
        return {"item_id": self._ids[block.index], "output_index": block.index}

    def _opened(self, block: Block) -> bytes:
        empty = _item(block, self._ids[block.index], "in_progress", None, self._tools)
        added = self._event(replies.ItemAdded, output_index=block.index, item=empty)
        if block.kind == "call":
            return added
        return added + self._event(replies.PartAdded, **self._place(block), part=_part(block, ""))

    def _grown(self, block: Block, piece: str) -> bytes:
        place = self._place(block)
        if block.kind != "text":
            return self._event(_DELTAS[block.kind], **place, delta=piece)
        logprobs, self._fresh = self._fresh, []
        return self._event(replies.TextDelta, **place, delta=piece, logprobs=logprobs)

    def _closed(self, block: Block) -> bytes:
        place = self._place(block)
        if block.kind == "call":
            _, name = called(block.name, self._tools)
            done = self._event(replies.ArgumentsDone, **place, name=name, arguments=block.text)
        else:
            part = _part(block, block.text, self._tokens.of(block))
            done = self._text_done(place, part) + self._event(replies.PartDone, **place, part=part)
        status = _status(self._generation, last=block is self._blocks.all[-1])
        logprobs = self._tokens.of(block)
        item = _item(block, self._ids[block.index], status, block.text, self._tools, logprobs)
        return done + self._event(replies.ItemDone, output_index=block.index, item=item)

    def _text_done(self, place: dict[str, Any], part: replies.Part) -> bytes:
        if isinstance(part, ReasoningText):
            return self._event(replies.ReasoningDone, **place, text=part.text)
        return self._event(replies.TextDone, **place, text=part.text, logprobs=part.logprobs)


_DELTAS: dict[Kind, type[Struct]] = {
    "reasoning": replies.ReasoningDelta,
    "call": replies.ArgumentsDelta,
}


def _part(block: Block, text: str, logprobs: Sequence[TokenLogprob] = ()) -> replies.Part:
    return _text_part(text, logprobs) if block.kind == "text" else ReasoningText(text)


def _text_part(text: str, logprobs: Sequence[TokenLogprob]) -> replies.TextPart:
    return replies.TextPart(text, logprobs=list(logprobs))
