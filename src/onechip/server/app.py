"""The ASGI application: which path leads where, who may come in, and how bodies are read."""

from __future__ import annotations

import hmac
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import replace

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import ASGIApp, Receive, Scope, Send

from onechip.errors import AuthenticationError, NotFoundError, OnechipError
from onechip.server import parsing, work
from onechip.server.errors import error_response, json_response, on_bug, on_http_exception, on_known_error
from onechip.server.openapi import document
from onechip.server.origins import AllowedOrigins, reads_as_json
from onechip.server.page import page
from onechip.server.routes import ALIASES, GUARDED, QUESTIONS, REFUSED, VIEWS, Question, View
from onechip.server.service import Service
from onechip.server.streams import ClientGone

MAX_BODY_BYTES = 32 * 2**20
"""Far above any context that fits on one chip: 262,144 token ids take about 2 MB."""


def create_app(service: Service, on_loaded: Callable[[], None]) -> Starlette:
    """The application around `service`, whose model starts to load when the application starts.

    Args:
        on_loaded: called on the loop when the model is ready or could not be loaded.
    """

    @asynccontextmanager
    async def lifespan(_: Starlette) -> AsyncIterator[None]:
        service.start(on_loaded)
        yield

    return Starlette(
        routes=[
            *(_question(service, question) for question in QUESTIONS),
            *(_view(service, view) for view in VIEWS),
            *(_again(service, path, same) for path, same in ALIASES.items()),
            *(_refusal(path, instead) for path, instead in REFUSED.items()),
            Route("/openapi.json", _openapi, methods=["GET"]),
            Route("/", page, methods=["GET"]),
        ],
        middleware=_middleware(service.config.api_key),
        exception_handlers={
            OnechipError: on_known_error,
            HTTPException: on_http_exception,
            Exception: on_bug,
        },
        lifespan=lifespan,
    )


def _middleware(key: str | None) -> list[Middleware]:
    """A browser asks whether it may ask without the key, and is to read what is said of a wrong one."""
    origins = Middleware(AllowedOrigins, keyed=bool(key))
    return [origins, Middleware(_RequireKey, key=key)] if key else [origins]


def _view(service: Service, view: View) -> Route:
    async def endpoint(request: Request) -> Response:
        return view.look(service, request)

    return Route(view.path, endpoint, methods=["GET"])


def _question(service: Service, question: Question) -> Route:
    async def endpoint(request: Request) -> Response:
        service.model()  # while it is not ready, no body is worth reading
        try:
            data = await _read_body(request)
            work.expect(len(data), request.receive)
            body = await work.apart(parsing.parse, data, question.body)
            return await question.answer(service, body, request.receive)
        except (ClientGone, ClientDisconnect):
            return Response(status_code=499)  # nobody reads it; nginx's code for "client closed request"

    return Route(question.path, endpoint, methods=["POST"])


def _again(service: Service, path: str, same: str) -> Route:
    """The route of `path`, which does what the one of `same` does."""
    for question in QUESTIONS:
        if question.path == same:
            return _question(service, replace(question, path=path))
    [view] = [view for view in VIEWS if view.path == same]
    return _view(service, replace(view, path=path))


def _refusal(path: str, instead: str) -> Route:
    async def endpoint(request: Request) -> Response:
        raise NotFoundError(instead, code="unsupported_endpoint")

    return Route(path, endpoint, methods=["GET", "POST", "DELETE"])


async def _openapi(_: Request) -> Response:
    return json_response(document())


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
    if not reads_as_json(request.headers):
        kind = request.headers.get("content-type")
        said = f"it says {kind}" if kind else "it says nothing"
        raise HTTPException(415, f"The body must be JSON: send Content-Type: application/json ({said}).")
    chunks, size = [], 0
    async for chunk in request.stream():
        size += len(chunk)
        if size > MAX_BODY_BYTES:
            raise HTTPException(413, f"The body is larger than {MAX_BODY_BYTES // 2**20} MiB.")
        chunks.append(chunk)
    return b"".join(chunks)


class _RequireKey:
    """Lets a request in only with the right key, where one is needed: bearer token or Anthropic's header."""

    def __init__(self, app: ASGIApp, key: str) -> None:
        self._app = app
        self._key = key.encode()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        path = scope["path"] if scope["type"] == "http" else ""
        guarded = path.startswith(GUARDED) and ALIASES.get(path) != "/health"
        if not guarded or self._has_key(dict(scope["headers"])):
            await self._app(scope, receive, send)
            return
        error = AuthenticationError(
            "The API key is missing or wrong: send Authorization: Bearer KEY.", code="invalid_api_key"
        )
        await error_response(scope["path"], error)(scope, receive, send)

    def _has_key(self, headers: dict[bytes, bytes]) -> bool:
        scheme, _, token = headers.get(b"authorization", b"").partition(b" ")
        sent = [headers.get(b"x-api-key", b"")] + ([token.strip()] if scheme.lower() == b"bearer" else [])
        return any(hmac.compare_digest(key, self._key) for key in sent)
