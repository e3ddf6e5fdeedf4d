"""What only llama.cpp's server has: POST /completion with its own words, and GET /props."""

from __future__ import annotations

import secrets
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Literal

from msgspec import Struct
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Receive

import onechip
from onechip.errors import OnechipError, RequestError
from onechip.models.chat_parser import Delta, text_of
from onechip.server.completions import one_prompt
from onechip.server.conversation import begin_text
from onechip.server.errors import json_response, openai_error
from onechip.server.generation import Generation
from onechip.server.llama_options import LlamaOptions, OutputCount, limits_of, sampling_of
from onechip.server.neutral import LLAMA_CPP
from onechip.server.orders import Choices
from onechip.server.schemas import SchemaOrText
from onechip.server.service import Service
from onechip.server.streaming import EVENT_STREAM, StreamedAnswer, sse
from onechip.server.structure import Structure, schema_of
from onechip.server.work import apart


class NativeBody(LlamaOptions, kw_only=True, forbid_unknown_fields=True):
    """POST /completion."""

    NEUTRAL: ClassVar[Mapping[str, tuple[Any, ...]]] = {
        **LLAMA_CPP,
        "logit_bias": ([], {}),
        "n_cmpl": (1, 1.0),
    }
    INSTEAD: ClassVar[Mapping[str, str]] = {
        "logit_bias": "ask /v1/completions",
        "n_probs": "ask /v1/completions with logprobs",
    }
    OTHER_NAMES: ClassVar[Mapping[str, str]] = {"max_tokens": "n_predict"}

    prompt: str | list[int]
    model: str | None = None
    n_predict: OutputCount | None = None
    stream: bool | None = None
    ignore_eos: bool | None = None
    grammar: str | None = None
    json_schema: SchemaOrText | None = None


class NativePart(Struct):
    """An event of a stream. `tokens_evaluated` are those of the prompt."""

    content: str
    tokens_predicted: int
    tokens_evaluated: int
    index: int = 0
    stop: bool = False
    tokens: list[int] = []


class Timings(Struct):
    """Milliseconds; those of the prompt go to the first token, waiting for a slot included."""

    cache_n: int
    prompt_n: int
    prompt_ms: float
    prompt_per_second: float | None
    predicted_n: int
    predicted_ms: float
    predicted_per_second: float | None


class NativeReply(Struct, kw_only=True):
    """The whole answer, and the last event of a stream, whose content is empty."""

    content: str
    model: str
    prompt: str
    stop_type: Literal["eos", "limit", "word"]
    stopping_word: str
    tokens_predicted: int
    tokens_evaluated: int
    tokens_cached: int
    timings: Timings
    index: int = 0
    stop: bool = True
    tokens: list[int] = []
    truncated: bool = False


async def completion(service: Service, body: NativeBody, receive: Receive) -> Response:
    """Continue one prompt.

    Raises:
        OnechipError: the request is wrong, or the engine does not take it.
    """
    model = service.model(body.model)
    sampling, structure = sampling_of(body, body.ignore_eos), _structure(body)
    limits = limits_of(body.n_predict, "n_predict", exact=bool(body.ignore_eos))
    with service.preparing():
        prompt = await apart(one_prompt, body.prompt, model)
        request_id = f"cmpl-{secrets.token_hex(16)}"
        group = await begin_text(
            service, model, [prompt.ids], sampling, limits, request_id, structure, Choices()
        )
    events = NativeEvents(group.only, service.config.model_id, prompt.shown(model.tokenizer, False))
    if body.stream:
        return StreamedAnswer(group, [events])
    [deltas] = await group.whole(receive)
    return json_response(events.reply(text_of(deltas)))


def _structure(body: NativeBody) -> Structure | None:
    if body.grammar and body.json_schema is not None:
        raise RequestError("grammar and json_schema: an answer has one form; leave one out.", param="grammar")
    if body.json_schema is not None:
        return schema_of(body.json_schema, "json_schema")
    return Structure("ebnf", body.grammar, "grammar") if body.grammar else None


class NativeEvents:
    """The events of a streamed completion."""

    content_type = EVENT_STREAM

    def __init__(self, generation: Generation, model_id: str, prompt: str) -> None:
        self._generation = generation
        self._model_id = model_id
        self._prompt = prompt

    def opening(self) -> bytes:
        return b""

    def window(self, deltas: Sequence[Delta]) -> bytes:
        usage = self._generation.usage
        return sse(NativePart(text_of(deltas), usage.completion_tokens, usage.prompt_tokens))

    def closing(self) -> bytes:
        return sse(self.reply(""))

    def failure(self, error: OnechipError) -> bytes:
        return sse(openai_error(error))

    def reply(self, content: str) -> NativeReply:
        """The whole answer, or its end."""
        answer, usage = self._generation.answer, self._generation.usage
        word = answer.stop_string or ""
        return NativeReply(
            content=content,
            model=self._model_id,
            prompt=self._prompt,
            stop_type="limit" if answer.finish == "length" else "word" if word else "eos",
            stopping_word=word,
            tokens_predicted=usage.completion_tokens,
            tokens_evaluated=usage.prompt_tokens,
            tokens_cached=usage.total_tokens,
            timings=self._timings(),
        )

    def _timings(self) -> Timings:
        timer, usage = self._generation.timer, self._generation.usage
        first = timer.arrived if timer.first is None else timer.first
        last = first if timer.last is None else timer.last
        cached = usage.prompt_tokens_details.cached_tokens
        prompt_s, answer_s = first - timer.arrived, last - first
        computed, made = usage.prompt_tokens - cached, usage.completion_tokens
        return Timings(
            cache_n=cached,
            prompt_n=computed,
            prompt_ms=prompt_s * 1e3,
            prompt_per_second=computed / prompt_s if prompt_s else None,
            predicted_n=made,
            predicted_ms=answer_s * 1e3,
            predicted_per_second=made / answer_s if answer_s else None,
        )


class Settings(Struct):
    n_ctx: int


class Modalities(Struct):
    vision: bool = False
    audio: bool = False


class Props(Struct):
    """GET /props."""

    default_generation_settings: Settings
    total_slots: int
    model_alias: str
    model_path: str
    chat_template: str
    build_info: str
    modalities: Modalities


def props(service: Service, _: Request) -> Response:
    """GET /props: the template and the context."""
    model, config = service.model(), service.config
    return json_response(
        Props(
            Settings(model.engine.context),
            model.engine.max_requests,
            config.model_id,
            config.model,
            model.template.source if model.template else "",
            f"onechip {onechip.__version__}",
            Modalities(),
        )
    )
