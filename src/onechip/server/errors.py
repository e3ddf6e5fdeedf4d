"""Whatever went wrong with a request -> its status, headers, and the error body of the protocol spoken.

Which protocol that is, the path says: /v1/messages is Anthropic's, /api Ollama's, everything else OpenAI's.
"""

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


class AnthropicErrorDetail(msgspec.Struct):
    """`details` tells the client's own code what it may do about it."""

    type: str
    message: str
    details: dict[str, Any] | msgspec.UnsetType = msgspec.UNSET


class AnthropicError(msgspec.Struct, tag_field="type", tag="error"):
    """Anthropic's error body, also as an event of a stream."""

    error: AnthropicErrorDetail


class OllamaError(msgspec.Struct):
    """Ollama's error body, also as the last line of a stream."""

    error: str


def openai_error(error: OnechipError) -> ErrorBody:
    """What a client of OpenAI's API reads about `error`."""
    param, code = (error.param, error.code) if isinstance(error, RequestError) else (None, None)
    return ErrorBody(ErrorDetail(error.message, error.kind, param, code))


def anthropic_error(error: OnechipError) -> AnthropicError:
    """What a client of Anthropic's API reads about `error`."""
    kind = "api_error" if error.kind == "server_error" else error.kind
    details: dict[str, Any] | msgspec.UnsetType = msgspec.UNSET
    if isinstance(error, RequestError) and error.param == "thread":
        # The client's tool loop tries a thread first, and goes on without one when it reads this.
        details = {"error_code": "thread_unsupported_request", "unsupported": ["thread"]}
    return AnthropicError(AnthropicErrorDetail(kind, error.message, details))


def error_body(path: str, error: OnechipError) -> Any:
    """What a client that asked for `path` reads about `error`."""
    if path.startswith("/v1/messages"):
        return anthropic_error(error)
    if path.startswith("/api/"):
        return OllamaError(error.message)
    return openai_error(error)


def json_response(
    content: Any, status: int = HTTPStatus.OK, headers: dict[str, str] | None = None
) -> Response:
    """A response with `content` (structs or builtins) as JSON."""
    return Response(msgspec.json.encode(content), status, headers, media_type="application/json")


def error_response(path: str, error: OnechipError) -> Response:
    """The response for an error that we know."""
    headers = {}
    if isinstance(error, QueueFullError):
        headers["Retry-After"] = str(error.retry_after_s)
    elif isinstance(error, EngineError):
        headers["Retry-After"] = str(RETRY_AFTER_S)
    elif error.http_status == HTTPStatus.UNAUTHORIZED:
        headers["WWW-Authenticate"] = "Bearer"
    return json_response(error_body(path, error), error.http_status, headers)


async def on_known_error(request: Request, error: Exception) -> Response:
    """Handler for OnechipError."""
    assert isinstance(error, OnechipError)
    return error_response(request.url.path, error)


async def on_http_exception(request: Request, error: Exception) -> Response:
    """Handler for what Starlette and `read_body` raise: unknown paths, wrong methods, unusable bodies."""
    assert isinstance(error, HTTPException)
    path = request.url.path
    message = {
        HTTPStatus.NOT_FOUND: f"There is nothing at {path}.",
        HTTPStatus.METHOD_NOT_ALLOWED: f"{path} does not take {request.method}.",
    }.get(HTTPStatus(error.status_code), error.detail)
    known = RequestError(message)
    known.kind = "not_found_error" if error.status_code == HTTPStatus.NOT_FOUND else known.kind
    return json_response(error_body(path, known), error.status_code, dict(error.headers or {}))


async def on_bug(request: Request, error: Exception) -> Response:
    """Handler for everything else; the log has the traceback. uvicorn then closes the connection."""
    body = error_body(request.url.path, OnechipError("The server made a mistake; its log says more."))
    return json_response(body, HTTPStatus.INTERNAL_SERVER_ERROR, {"Connection": "close"})
