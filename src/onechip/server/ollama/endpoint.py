"""POST /api/chat and /api/generate: Ollama's requests in, its replies out, as lines unless told otherwise."""

from __future__ import annotations

import secrets
import time
from collections.abc import Sequence
from functools import partial
from typing import Any, Protocol

import msgspec
from msgspec import UNSET, Raw, Struct
from starlette.responses import Response
from starlette.types import Receive

from onechip.errors import OnechipError, RequestError
from onechip.models.chat_parser import Delta
from onechip.server.blocks import Block, Blocks, Closed, Grown
from onechip.server.chat import call_rule
from onechip.server.conversation import ChatRequest, begin, begin_text
from onechip.server.endings import begun_or_new
from onechip.server.errors import OllamaError, json_response
from onechip.server.generation import Generation
from onechip.server.group import Group
from onechip.server.llama_options import limits_of, sampling_of
from onechip.server.logprobs import TokenLogprob, TokenNames, Untold, likeliest, token_logprobs
from onechip.server.ollama.body import ChatBody, Format, GenerateBody, Options, Think
from onechip.server.ollama.history import messages_of
from onechip.server.ollama.replies import (
    CalledFunction,
    ChatReply,
    DoneReason,
    GenerateReply,
    ReplyMessage,
    ToolCall,
    timestamp,
)
from onechip.server.orders import Choices
from onechip.server.sampling import Limits
from onechip.server.schemas import Sampling, Tool
from onechip.server.service import Model, Service
from onechip.server.streaming import NDJSON, StreamedAnswer, json_line
from onechip.server.structure import Structure, schema_of
from onechip.server.thinking import Thinking
from onechip.server.work import apart

_NS = 1_000_000_000


async def chat(service: Service, body: ChatBody, receive: Receive) -> Response:
    """POST /api/chat.

    Raises:
        OnechipError: the request is wrong, or the engine does not take it.
    """
    model = named_model(service, body.model)
    if not body.messages:
        return json_response(ChatForm(body.model).reply("", "", (), done=True, done_reason="load"))
    said, tools = body.messages, body.tools or ()
    group = await begin(service, model, lambda: _asked(body, messages_of(said), tools), _request_id())
    return await _answered(model, body, group, ChatForm(body.model), receive)


async def generate(service: Service, body: GenerateBody, receive: Receive) -> Response:
    """POST /api/generate.

    Raises:
        OnechipError: the request is wrong, or the engine does not take it.
    """
    model = named_model(service, body.model)
    if not body.prompt:
        return json_response(GenerateForm(body.model).reply("", "", (), done=True, done_reason="load"))
    options = body.options or Options()
    if body.raw:
        if body.system or body.think:
            field = "system" if body.system else "think"
            raise RequestError(f"{field} has no place in a raw prompt; leave it out.", param=field)
        sampling, limits = _sampling(options), _limits(options)
        with service.preparing():
            prompt = await apart(model.encode, body.prompt)
            group = await begin_text(
                service,
                model,
                [prompt],
                sampling,
                limits,
                _request_id(),
                structure=_structure(body.format),
                choices=_choices(body),
            )
    else:
        system = [{"role": "system", "content": body.system}] if body.system else []
        messages = [*system, {"role": "user", "content": body.prompt}]
        group = await begin(service, model, partial(_asked, body, messages, ()), _request_id())
    return await _answered(model, body, group, GenerateForm(body.model), receive)


def named_model(service: Service, name: str) -> Model:
    """The model, whose name may end in Ollama's tag `:latest`. Raises as `Service.model`."""
    return service.model(name.removesuffix(":latest"))


def _request_id() -> str:
    return f"ollama-{secrets.token_hex(16)}"


def _asked(
    body: ChatBody | GenerateBody, messages: Sequence[dict[str, Any]], tools: Sequence[Tool]
) -> ChatRequest:
    options = body.options or Options()
    said, ending = begun_or_new(messages)
    return ChatRequest(
        messages=said,
        ending=ending,
        tools=msgspec.to_builtins(tools),
        calls=call_rule(body.tool_choice if isinstance(body, ChatBody) else None),
        sampling=_sampling(options),
        limits=_limits(options),
        structure=_structure(body.format),
        thinking=_thinking(body.think),
        choices=_choices(body),
    )


def _choices(body: ChatBody | GenerateBody) -> Choices:
    return Choices(logprobs=likeliest(body.logprobs, body.top_logprobs))


def _structure(form: Format | None) -> Structure | None:
    if form is None or form == "":
        return None
    return Structure("json_object", None, "format") if form == "json" else schema_of(form, "format")


def _thinking(think: Think | None) -> Thinking:
    if isinstance(think, str):
        return Thinking.of_effort(think, "think")
    return Thinking(think, "think")


def _sampling(options: Options) -> Sampling:
    return sampling_of(options, prefix="options.")


def _limits(options: Options) -> Limits:
    return limits_of(options.num_predict, "options.num_predict", options.num_ctx)


class _Form(Protocol):
    """How a reply holds its text."""

    def reply(
        self, text: str, thinking: str, calls: Sequence[Block], *, done: bool, **figures: Any
    ) -> Struct: ...


class ChatForm:
    """Replies of /api/chat."""

    def __init__(self, model: str) -> None:
        self._model = model
        self._calls = 0

    def reply(
        self, text: str, thinking: str, calls: Sequence[Block], *, done: bool, **figures: Any
    ) -> ChatReply:
        made = [self._call(block) for block in calls]
        message = ReplyMessage(
            role="assistant", content=text, thinking=thinking or UNSET, tool_calls=made or UNSET
        )
        return ChatReply(
            model=self._model, created_at=timestamp(time.time()), message=message, done=done, **figures
        )

    def _call(self, block: Block) -> ToolCall:
        index, self._calls = self._calls, self._calls + 1
        arguments = Raw(block.text.encode() or b"{}")
        return ToolCall(block.call_id, CalledFunction(index, block.name, arguments))


class GenerateForm:
    """Replies of /api/generate, which knows no tools."""

    def __init__(self, model: str) -> None:
        self._model = model

    def reply(
        self, text: str, thinking: str, calls: Sequence[Block], *, done: bool, **figures: Any
    ) -> GenerateReply:
        return GenerateReply(
            model=self._model,
            created_at=timestamp(time.time()),
            response=text,
            thinking=thinking or UNSET,
            done=done,
            **figures,
        )


class Tokens:
    """What replies tell of the tokens of an answer, of each token once."""

    def __init__(self, generation: Generation, names: TokenNames, wanted: bool) -> None:
        self._untold = Untold(generation.answer)
        self._names = names
        self._wanted = wanted

    def tell(self) -> dict[str, list[TokenLogprob]]:
        """A field of the next reply about the tokens that came since the last one; or none."""
        found = token_logprobs(self._names, *self._untold.take()) if self._wanted else []
        return {"logprobs": found} if found else {}


async def _answered(
    model: Model, body: ChatBody | GenerateBody, group: Group, form: _Form, receive: Receive
) -> Response:
    """Streamed unless the client says no."""
    tokens = Tokens(group.only, TokenNames(model.tokenizer), body.logprobs is True)
    if body.stream is not False:
        return StreamedAnswer(group, [Lines(group.only, form, tokens)])
    [deltas] = await group.whole(receive)
    blocks = Blocks.of(deltas)
    text, thinking = (
        "".join(block.text for block in blocks if block.kind == kind) for kind in ("text", "reasoning")
    )
    calls = [block for block in blocks if block.kind == "call"]
    return json_response(
        form.reply(text, thinking, calls, done=True, **tokens.tell(), **_figures(group.only))
    )


class Lines:
    """The lines of a streamed answer. A call is sent whole, when it is complete."""

    content_type = NDJSON

    def __init__(self, generation: Generation, form: _Form, tokens: Tokens) -> None:
        self._generation = generation
        self._form = form
        self._tokens = tokens
        self._blocks = Blocks()

    def opening(self) -> bytes:
        return b""

    def window(self, deltas: Sequence[Delta]) -> bytes:
        lines = []
        for step in self._blocks.take(deltas):
            block = step.block
            if isinstance(step, Grown) and block.kind == "text":
                lines.append(self._line(step.piece))
            elif isinstance(step, Grown) and block.kind == "reasoning":
                lines.append(self._line("", step.piece))
            elif isinstance(step, Closed) and block.kind == "call":
                lines.append(self._line("", "", [block]))
        return b"".join(lines)

    def closing(self) -> bytes:
        return self._line("", done=True, **_figures(self._generation))

    def failure(self, error: OnechipError) -> bytes:
        return json_line(OllamaError(error.message))

    def _line(
        self, text: str, thinking: str = "", calls: Sequence[Block] = (), done: bool = False, **figures: Any
    ) -> bytes:
        return json_line(self._form.reply(text, thinking, calls, done=done, **self._tokens.tell(), **figures))


def _figures(generation: Generation) -> dict[str, Any]:
    """Why the answer ended, how many tokens there were and how long they took."""
    reason: DoneReason = "length" if generation.answer.finish == "length" else "stop"
    timer, usage = generation.timer, generation.usage
    first = timer.arrived if timer.first is None else timer.first
    last = first if timer.last is None else timer.last
    return {
        "done_reason": reason,
        "total_duration": round((last - timer.arrived) * _NS),
        "load_duration": 0,
        "prompt_eval_count": usage.prompt_tokens,
        "prompt_eval_duration": round((first - timer.arrived) * _NS),
        "eval_count": usage.completion_tokens,
        "eval_duration": round((last - first) * _NS),
    }
