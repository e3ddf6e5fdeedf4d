"""The ASGI application: which path leads where, who may come in, and how bodies are read."""

from __future__ import annotations

import hmac
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import msgspec
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import ASGIApp, Receive, Scope, Send

from onechip.errors import AuthenticationError, OnechipError, RequestError
from onechip.server import parsing
from onechip.server.chat import chat_completions, chat_prompt
from onechip.server.completions import completions
from onechip.server.errors import (
    RETRY_AFTER_S,
    error_response,
    json_response,
    on_bug,
    on_http_exception,
    on_known_error,
)
from onechip.server.replies import Detokenized, ModelCard, ModelList, Readiness, Tokens
from onechip.server.schemas import ChatBody, CompletionBody, DetokenizeBody, TokenizeBody
from onechip.server.service import Service
from onechip.server.streams import ClientGone

MAX_BODY_BYTES = 32 * 2**20
"""Far above any context that fits on one chip: 262,144 token ids take about 2 MB."""

Answer = Callable[[Service, Any, Receive], Awaitable[Response]]


def create_app(service: Service, on_loaded: Callable[[], None]) -> Starlette:
    """The application around `service`, whose model starts to load when the application starts.

    Args:
        on_loaded: called on the loop when the model is ready or could not be loaded.
    """

    @asynccontextmanager
    async def lifespan(_: Starlette) -> AsyncIterator[None]:
        service.start(on_loaded)
        yield

    started = int(time.time())
    return Starlette(
        routes=[
            _post("/v1/chat/completions", service, ChatBody, chat_completions),
            _post("/v1/completions", service, CompletionBody, completions),
            _post("/tokenize", service, TokenizeBody, _tokenize),
            _post("/detokenize", service, DetokenizeBody, _detokenize),
            _get("/v1/models", lambda _: json_response(ModelList([_card(service, started)]))),
            _get("/v1/models/{name:path}", lambda r: _one_model(service, r.path_params["name"], started)),
            _get("/health", lambda _: _health(service)),
            _get("/ready", lambda _: _ready(service)),
            _get("/metrics", lambda _: _metrics(service)),
        ],
        middleware=[Middleware(_RequireKey, key=service.config.api_key)] if service.config.api_key else [],
        exception_handlers={
            OnechipError: on_known_error,
            HTTPException: on_http_exception,
            Exception: on_bug,
        },
        lifespan=lifespan,
    )


def _get(path: str, respond: Callable[[Request], Response]) -> Route:
    async def endpoint(request: Request) -> Response:
        return respond(request)

    return Route(path, endpoint, methods=["GET"])


def _post(path: str, service: Service, body_type: type[msgspec.Struct], answer: Answer) -> Route:
    async def endpoint(request: Request) -> Response:
        service.model()  # while it is not ready, no body is worth reading
        try:
            body = parsing.parse(await _read_body(request), body_type)
            return await answer(service, body, request.receive)
        except (ClientGone, ClientDisconnect):
            return Response(status_code=499)  # nobody reads it; nginx's code for "client closed request"

    return Route(path, endpoint, methods=["POST"])


async def _read_body(request: Request) -> bytes:
    """The body, if it is JSON and not too large.

    Raises:
        HTTPException: 415 for another content type or a compressed body, 413 for too many bytes.
    """
    encoding = request.headers.get("content-encoding", "identity").strip().lower()
    if encoding != "identity":
        raise HTTPException(
            415, f"The body has Content-Encoding: {encoding}: send it as it is, without Content-Encoding."
        )
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind != "application/json" and not kind.endswith("+json"):
        said = f"it says {kind}" if kind else "it says nothing"
        raise HTTPException(415, f"The body must be JSON: send Content-Type: application/json ({said}).")
    chunks, size = [], 0
    async for chunk in request.stream():
        size += len(chunk)
        if size > MAX_BODY_BYTES:
            raise HTTPException(413, f"The body is larger than {MAX_BODY_BYTES // 2**20} MiB.")
        chunks.append(chunk)
    return b"".join(chunks)


def _card(service: Service, started: int) -> ModelCard:
    model = service.model()
    return ModelCard(service.config.model_id, started, model.engine.context, service.config.model)


def _one_model(service: Service, name: str, started: int) -> Response:
    service.model(name)
    return json_response(_card(service, started))


def _health(service: Service) -> Response:
    """200 while the process can serve or will be able to; 503 calls for a restart."""
    status = 503 if service.state == "failed" else 200
    return json_response({"status": service.state, "message": service.explain()}, status)


def _ready(service: Service) -> Response:
    """200 when requests are taken."""
    state = service.state
    body = Readiness(state, service.config.model_id, service.explain(), service.stage, service.progress)
    if state == "ready":
        return json_response(body)
    return json_response(body, 503, {"Retry-After": str(RETRY_AFTER_S)})


def _metrics(service: Service) -> Response:
    return Response(service.metrics.text(), media_type="text/plain; version=0.0.4; charset=utf-8")


async def _tokenize(service: Service, body: TokenizeBody, _: Receive) -> Response:
    """POST /tokenize: token ids of a text or of a conversation."""
    model = service.model(body.model)
    if (body.prompt is None) == (body.messages is None):
        raise RequestError("Give either prompt or messages.", param="prompt")
    if body.messages is None:
        ids = await model.encode(body.prompt or "", add_bos=body.add_special_tokens)
    else:
        tools = msgspec.to_builtins(body.tools or [])
        kwargs = body.chat_template_kwargs
        ids = await chat_prompt(model, body.messages, tools, kwargs, body.add_generation_prompt)
    strings = [model.tokenizer.token(id) for id in ids] if body.return_token_strs else None
    return json_response(Tokens(len(ids), model.engine.context, ids, strings))


async def _detokenize(service: Service, body: DetokenizeBody, _: Receive) -> Response:
    """POST /detokenize: text of token ids, special ones shown."""
    model = service.model(body.model)
    return json_response(Detokenized(model.tokenizer.decode(body.tokens, skip_special=False)))


class _RequireKey:
    """Lets a request to /v1/* in only with the right bearer token."""

    def __init__(self, app: ASGIApp, key: str) -> None:
        self._app = app
        self._key = key.encode()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or not scope["path"].startswith("/v1/") or self._has_key(scope):
            await self._app(scope, receive, send)
            return
        error = AuthenticationError(
            "The API key is missing or wrong: send Authorization: Bearer KEY.", code="invalid_api_key"
        )
        await error_response(error)(scope, receive, send)

    def _has_key(self, scope: Scope) -> bool:
        sent = dict(scope["headers"]).get(b"authorization", b"")
        scheme, _, token = sent.partition(b" ")
        return scheme.lower() == b"bearer" and hmac.compare_digest(token.strip(), self._key)
