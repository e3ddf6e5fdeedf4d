"""Whatever went wrong with a request -> OpenAI's error body, with its status and headers."""

from __future__ import annotations

from http import HTTPStatus
from typing import Any

import msgspec
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response

from onechip.errors import EngineError, OnechipError, QueueFullError, RequestError

RETRY_AFTER_S = 5
"""When to try again if the engine is not ready."""


class ErrorDetail(msgspec.Struct):
    """OpenAI's error object."""

    message: str
    type: str
    param: str | None = None
    code: str | None = None


class ErrorBody(msgspec.Struct):
    error: ErrorDetail


def error_body(error: OnechipError) -> ErrorBody:
    """What a client reads about `error`."""
    param, code = (error.param, error.code) if isinstance(error, RequestError) else (None, None)
    return ErrorBody(ErrorDetail(error.message, error.kind, param, code))


def json_response(
    content: Any, status: int = HTTPStatus.OK, headers: dict[str, str] | None = None
) -> Response:
    """A response with `content` (structs or builtins) as JSON."""
    return Response(msgspec.json.encode(content), status, headers, media_type="application/json")


def error_response(error: OnechipError) -> Response:
    """The response for an error that we know."""
    headers = {}
    if isinstance(error, QueueFullError):
        headers["Retry-After"] = str(error.retry_after_s)
    elif isinstance(error, EngineError):
        headers["Retry-After"] = str(RETRY_AFTER_S)
    elif error.http_status == HTTPStatus.UNAUTHORIZED:
        headers["WWW-Authenticate"] = "Bearer"
    return json_response(error_body(error), error.http_status, headers)


async def on_known_error(request: Request, error: Exception) -> Response:
    """Handler for OnechipError."""
    assert isinstance(error, OnechipError)
    return error_response(error)


async def on_http_exception(request: Request, error: Exception) -> Response:
    """Handler for what Starlette and `read_body` raise: unknown paths, wrong methods, unusable bodies."""
    assert isinstance(error, HTTPException)
    path = request.url.path
    message = {
        HTTPStatus.NOT_FOUND: f"There is nothing at {path}.",
        HTTPStatus.METHOD_NOT_ALLOWED: f"{path} does not take {request.method}.",
    }.get(HTTPStatus(error.status_code), error.detail)
    kind = "not_found_error" if error.status_code == HTTPStatus.NOT_FOUND else "invalid_request_error"
    body = ErrorBody(ErrorDetail(message, kind))
    return json_response(body, error.status_code, dict(error.headers or {}))


async def on_bug(request: Request, error: Exception) -> Response:
    """Handler for everything else; the log has the traceback. uvicorn then closes the connection."""
    detail = ErrorDetail("The server made a mistake; its log says more.", "server_error")
    return json_response(ErrorBody(detail), HTTPStatus.INTERNAL_SERVER_ERROR, {"Connection": "close"})
