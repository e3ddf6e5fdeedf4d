"""Pieces of answers as engines send them: payloads, server-sent events, chunks, heads."""

from __future__ import annotations

import json
from typing import Any

HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"
LAST_CHUNK = b"0\r\n\r\n"
DONE = b"[DONE]"


def chunk(data: bytes) -> bytes:
    """One chunk of a chunked body."""
    return f"{len(data):x}\r\n".encode() + data + b"\r\n"


def event(payload: Any, newline: bytes = b"\n") -> bytes:
    """One server-sent event of a payload, or of bytes as they are."""
    data = payload if isinstance(payload, bytes) else json.dumps(payload, ensure_ascii=False).encode()
    return b"data: " + data + newline * 2


def text(piece: str | None, finish: str | None = None, **more: Any) -> dict[str, Any]:
    """An event of /v1/completions."""
    return {"choices": [{"index": 0, "text": piece, "finish_reason": finish, **more}]}


def delta(usage: dict[str, Any] | None = None, finish: str | None = None, **fields: Any) -> dict[str, Any]:
    """An event of /v1/chat/completions."""
    payload: dict[str, Any] = {"choices": [{"index": 0, "delta": fields, "finish_reason": finish}]}
    return payload | ({"usage": usage} if usage is not None else {})


def counts(output: int, prompt: int = 7, **more: Any) -> dict[str, Any]:
    """The value of a `usage` field."""
    return {"prompt_tokens": prompt, "completion_tokens": output, **more}


def usage(output: int, prompt: int = 7, **more: Any) -> dict[str, Any]:
    """The event of its own that has the final usage."""
    return {"choices": [], "usage": counts(output, prompt, **more)}


ROLE = delta(role="assistant", content="")


def whole(status: int, payload: Any) -> bytes:
    """An answer in one piece: JSON, or bytes as plain text."""
    kind = "text/plain" if isinstance(payload, bytes) else "application/json"
    body = payload if isinstance(payload, bytes) else json.dumps(payload).encode()
    head = f"HTTP/1.1 {status} X\r\ncontent-type: {kind}\r\ncontent-length: {len(body)}\r\n\r\n"
    return head.encode() + body
