"""Every path of the API, what it takes and what it gives, for the application and its OpenAPI document."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import msgspec
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Receive

import onechip
from onechip.errors import RequestError
from onechip.server import llamacpp, messages, ollama, rendered, replies, responses, schemas
from onechip.server.chat import chat_completions
from onechip.server.completions import completions
from onechip.server.conversation import chat_text
from onechip.server.endings import ending_of
from onechip.server.errors import RETRY_AFTER_S, json_response
from onechip.server.sampling import check_ids
from onechip.server.service import Model, Service
from onechip.server.streaming import EVENT_STREAM, NDJSON
from onechip.server.work import apart

Answer = Callable[[Service, Any, Receive], Awaitable[Response]]
Look = Callable[[Service, Request], Response]


@dataclass(frozen=True, slots=True)
class Question:
    """POST of a body.

    Attributes:
        reply: the struct that the whole answer is.
        stream: content type of a streamed answer; None if there is none.
    """

    path: str
    body: type[schemas.Body]
    answer: Answer
    reply: type[msgspec.Struct]
    stream: str | None = None


@dataclass(frozen=True, slots=True)
class View:
    """GET without a body; `reply` is None where it is no JSON."""

    path: str
    look: Look
    reply: type | None


def _models(service: Service, _: Request) -> Response:
    card = _card(service)
    return json_response(replies.ModelList(data=[card], first_id=card.id, last_id=card.id))


def _one_model(service: Service, request: Request) -> Response:
    service.model(request.path_params["name"])
    return json_response(_card(service))


def _card(service: Service) -> replies.ModelCard:
    context, name = service.model().engine.context, service.config.model_id
    return replies.ModelCard(
        id=name,
        created=service.created,
        max_model_len=context,
        root=service.config.model,
        display_name=name,
        created_at=datetime.fromtimestamp(service.created, UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
        max_input_tokens=context,
        max_tokens=context,
    )


def _health(service: Service, _: Request) -> Response:
    """200 while the process can serve or will be able to; 503 calls for a restart."""
    status = 503 if service.state == "failed" else 200
    return json_response(replies.Health(service.state, service.explain()), status)


def _ready(service: Service, _: Request) -> Response:
    """200 when requests are taken."""
    state = service.state
    body = replies.Readiness(
        state, service.config.model_id, service.explain(), service.stage, service.progress
    )
    if state == "ready":
        return json_response(body)
    return json_response(body, 503, {"Retry-After": str(RETRY_AFTER_S)})


def _version(_: Service, __: Request) -> Response:
    return json_response(replies.Version(onechip.__version__))


def _metrics(service: Service, _: Request) -> Response:
    return Response(service.metrics.text(), media_type="text/plain; version=0.0.4; charset=utf-8")


async def _tokenize(service: Service, body: schemas.TokenizeBody, _: Receive) -> Response:
    """POST /tokenize: token ids of a text or of a conversation."""
    model = service.model(body.model)
    if (body.prompt is None) == (body.messages is None):
        raise RequestError("Give either prompt or messages.", param="prompt")
    return await apart(lambda: json_response(_tokens(model, body)))


def _tokens(model: Model, body: schemas.TokenizeBody) -> replies.Tokens:
    if body.messages is None:
        ids = model.tokenizer.encode(body.prompt or "", add_bos=body.add_special_tokens)
    else:
        messages, tools = msgspec.to_builtins((body.messages, body.tools or []))
        text = chat_text(model, messages, tools, body.chat_template_kwargs, ending_of(body))
        ids = model.encode(text)
    strings = [model.tokenizer.token(id) for id in ids] if body.return_token_strs else None
    return replies.Tokens(len(ids), model.engine.context, ids, strings)


async def _detokenize(service: Service, body: schemas.DetokenizeBody, _: Receive) -> Response:
    """POST /detokenize: text of token ids, special ones shown."""
    model = service.model(body.model)
    return await apart(lambda: json_response(_detokenized(model, body.tokens)))


def _detokenized(model: Model, ids: Sequence[int]) -> replies.Detokenized:
    check_ids(ids, "tokens", model.tokenizer.vocab_size)
    text = model.tokenizer.decode(ids, skip_special=False)
    return replies.Detokenized(text, text)


QUESTIONS = (
    Question(
        "/v1/chat/completions", schemas.ChatBody, chat_completions, replies.ChatCompletion, EVENT_STREAM
    ),
    Question(
        "/v1/chat/completions/input_tokens", schemas.ChatBody, rendered.input_tokens, responses.InputTokens
    ),
    Question("/v1/completions", schemas.CompletionBody, completions, replies.TextCompletion, EVENT_STREAM),
    Question(
        "/v1/responses", responses.ResponsesBody, responses.responses, responses.ResponseObject, EVENT_STREAM
    ),
    Question(
        "/v1/responses/input_tokens", responses.ResponsesBody, responses.input_tokens, responses.InputTokens
    ),
    Question("/v1/messages", messages.MessagesBody, messages.messages, messages.MessageReply, EVENT_STREAM),
    Question(
        "/v1/messages/count_tokens", messages.CountTokensBody, messages.count_tokens, messages.InputTokens
    ),
    Question("/api/chat", ollama.ChatBody, ollama.chat, ollama.ChatReply, NDJSON),
    Question("/api/generate", ollama.GenerateBody, ollama.generate, ollama.GenerateReply, NDJSON),
    Question("/api/show", ollama.ShowBody, ollama.show, ollama.Shown),
    Question("/completion", llamacpp.NativeBody, llamacpp.completion, llamacpp.NativeReply, EVENT_STREAM),
    Question("/apply-template", schemas.ChatBody, rendered.apply_template, rendered.Rendered),
    Question("/tokenize", schemas.TokenizeBody, _tokenize, replies.Tokens),
    Question("/detokenize", schemas.DetokenizeBody, _detokenize, replies.Detokenized),
)

VIEWS = (
    View("/v1/models", _models, replies.ModelList),
    View("/v1/models/{name:path}", _one_model, replies.ModelCard),
    View("/api/tags", ollama.tags, ollama.Tags),
    View("/api/ps", ollama.running, ollama.Running),
    View("/api/version", ollama.version, ollama.Version),
    View("/props", llamacpp.props, llamacpp.Props),
    View("/version", _version, replies.Version),
    View("/health", _health, replies.Health),
    View("/ready", _ready, replies.Readiness),
    View("/metrics", _metrics, None),
)

ALIASES = {
    "/chat/completions": "/v1/chat/completions",
    "/completions": "/completion",
    "/models": "/v1/models",
    "/v1/health": "/health",
    "/ping": "/health",
}
"""Further paths that llama.cpp and vLLM have -> the same under the name that it has here."""

GUARDED = ("/v1/", "/api/", "/chat/", "/completion", "/models", "/props", "/apply-template")
"""How paths begin that ask for the key, where there is one."""

_NO_EMBEDDINGS = (
    "There are no embeddings here: this server runs models that write text. Serve an embedding model beside "
    "it, with llama.cpp (llama-server --embeddings), vLLM or text-embeddings-inference."
)
_NOTHING_STORED = "No response is stored here, so there is none to fetch: send the conversation in input."
_ONE_MODEL = "There is one model here, given at the start: for another one run onechip serve MODEL."

REFUSED = {
    "/v1/embeddings": _NO_EMBEDDINGS,
    "/api/embed": _NO_EMBEDDINGS,
    "/api/embeddings": _NO_EMBEDDINGS,
    "/v1/responses/{id:path}": _NOTHING_STORED,
    "/api/pull": _ONE_MODEL,
    "/api/push": _ONE_MODEL,
    "/api/create": _ONE_MODEL,
    "/api/copy": _ONE_MODEL,
    "/api/delete": _ONE_MODEL,
}
"""Paths that others have and we do not -> what to do instead, which is said with status 404."""
