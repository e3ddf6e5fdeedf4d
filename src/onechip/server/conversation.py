"""What every chat protocol asks for, in one form -> a generation that reads text, thoughts and calls.

A protocol's file turns its own body into a `ChatRequest`, hands it to `begin`, and gives the deltas that come
back its own form.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import msgspec

from onechip.engine.types import Request
from onechip.errors import RequestError
from onechip.models.chat_parser import ChatParser, has_call_markers
from onechip.models.chat_template import RESERVED_VARIABLES, Message
from onechip.models.json_calls import JsonCallParser
from onechip.models.tokenizer import Tokenizer
from onechip.server.answer import Answer, Reader, TextReader
from onechip.server.generation import Generation
from onechip.server.parsing import check_reserved
from onechip.server.sampling import output_limit, sampling_params, stop_strings
from onechip.server.schemas import Function, Sampling, Tool
from onechip.server.service import Model, Service

ToolDefinition = Mapping[str, Any]
"""One function in OpenAI's form: type, and function with name, description and parameters."""


def tool_definition(name: str, description: str | None, parameters: dict[str, Any] | None) -> ToolDefinition:
    """A tool that a protocol describes in another form; what is None is left out."""
    tool: ToolDefinition = msgspec.to_builtins(Tool(function=Function(name, description, parameters)))
    return tool


@dataclass(frozen=True, slots=True)
class Limits:
    """How long an answer may become.

    Attributes:
        tokens: of the answer; None: the rest of the context.
        field: what the client calls `tokens`.
        context: tokens of prompt and answer together, if fewer than the engine's.
    """

    tokens: int | None
    field: str
    context: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ChatRequest:
    """One turn of a conversation to be continued.

    Attributes:
        messages: in OpenAI's form, see models.chat_template.Message.
        tools: what may be called; none at all: the prompt does not speak of tools, so none is called.
        sampling: how tokens are chosen.
        limits: how long the answer may become.
        thinking: whether to think before the answer; None leaves it to the template.
        thinking_field: what the client calls `thinking`.
        variables: further variables of the chat template; what they say of thinking comes first.
        one_call: end behind the first call.
    """

    messages: Sequence[Message]
    tools: Sequence[ToolDefinition] = ()
    sampling: Sampling
    limits: Limits
    thinking: bool | None = None
    thinking_field: str = ""
    variables: Mapping[str, Any] = field(default_factory=dict)
    one_call: bool = False


async def begin(service: Service, model: Model, asked: ChatRequest, request_id: str) -> Generation:
    """Hand the conversation to the engine.

    Raises:
        OnechipError: the request is wrong, or the engine does not take it.
    """
    prompt = await conversation_prompt(model, asked)
    skip_special = asked.sampling.skip_special_tokens is not False
    reader = _reader(model.tokenizer, asked.tools, prompt, skip_special)
    return _submit(service, model, request_id, prompt, reader, asked.sampling, asked.limits, asked.one_call)


def begin_text(
    service: Service,
    model: Model,
    prompt: Sequence[int],
    sampling: Sampling,
    limits: Limits,
    request_id: str,
) -> Generation:
    """Let the engine continue `prompt` (token ids) as it stands, without a chat.

    Raises:
        OnechipError: the request is wrong, or the engine does not take it.
    """
    skip_special = sampling.skip_special_tokens is not False
    reader = TextReader(model.tokenizer.stream(skip_special, continued=True))
    return _submit(service, model, request_id, prompt, reader, sampling, limits)


def _submit(
    service: Service,
    model: Model,
    request_id: str,
    prompt: Sequence[int],
    reader: Reader,
    sampling: Sampling,
    limits: Limits,
    one_call: bool = False,
) -> Generation:
    context = min(limits.context or model.engine.context, model.engine.context)
    limit = output_limit(limits.tokens, limits.field, len(prompt), context, model.largest_context)
    params = sampling_params(sampling, model.defaults, limit, model.tokenizer.vocab_size)
    stops, least = stop_strings(sampling), params.min_tokens
    answer = Answer(reader, stops=stops, min_tokens=least, one_call=one_call)
    return Generation(service, model, Request(request_id, tuple(prompt), params), answer)


async def conversation_prompt(model: Model, asked: ChatRequest) -> list[int]:
    """Token ids of `asked`, the model's turn opened. Raises RequestError as `chat_prompt`."""
    variables = dict(asked.variables)
    if asked.thinking is not None and model.template is not None:
        if model.template.reads_thinking:
            variables.setdefault("enable_thinking", asked.thinking)
        elif asked.thinking:
            raise RequestError(
                f"{asked.thinking_field}: the chat template of this model knows nothing of thinking; "
                "leave it out.",
                param=asked.thinking_field,
            )
    return await chat_prompt(model, asked.messages, asked.tools, variables)


async def chat_prompt(
    model: Model,
    messages: Sequence[Message],
    tools: Sequence[ToolDefinition],
    variables: Mapping[str, Any] | None,
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
    checked = check_reserved(variables, RESERVED_VARIABLES)
    text = model.template.render(messages, tools, add_generation_prompt, **checked)
    return await model.encode(text, add_bos=True)


def _reader(
    tokenizer: Tokenizer, tools: Sequence[ToolDefinition], prompt: Sequence[int], skip_special: bool
) -> Reader:
    """What reads the answer: a model without Gemma 4's markers writes its calls as JSON."""
    if tools and not has_call_markers(tokenizer):
        return JsonCallParser(tokenizer, tools, skip_special)
    return ChatParser(tokenizer, tools, prompt, skip_special)
