"""A request to change to WebSocket in; a plain refusal, and the connection's end, out."""

from __future__ import annotations

import asyncio
from http import HTTPStatus
from typing import Any, cast

import msgspec

from onechip.server.errors import ErrorBody, ErrorDetail

_BODY = msgspec.json.encode(
    ErrorBody(
        ErrorDetail(
            "There is no WebSocket here; answers are streamed as server-sent events.", "invalid_request_error"
        )
    )
)
_STATUS = HTTPStatus.BAD_REQUEST
_REFUSAL = (
    f"HTTP/1.1 {_STATUS.value} {_STATUS.phrase}\r\nContent-Type: application/json\r\n"
    f"Content-Length: {len(_BODY)}\r\nConnection: close\r\n\r\n"
).encode() + _BODY


class RefusedUpgrade(asyncio.Protocol):
    """What uvicorn hands a connection to when a client asks for WebSocket on it.

    Without one uvicorn logs, for each such request, that a library should be installed.
    """

    def __init__(self, config: Any, server_state: Any, app_state: Any) -> None:
        """Take what uvicorn gives its protocols; a refusal needs none of it."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        cast(asyncio.WriteTransport, transport).write(_REFUSAL)  # uvloop's transports are none by class
        transport.close()
