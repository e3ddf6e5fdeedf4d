"""Answers that break off, and engines that are not the same twice."""

from __future__ import annotations

from typing import Any

from tests.ladder.zoo.case import (
    ENDING,
    NOTHING,
    USUAL,
    Case,
    Expected,
    Timed,
    after,
    answer,
    failed,
    tokens,
)
from tests.ladder.zoo.engine import Answer
from tests.ladder.zoo.events import DONE, HEAD, event, text, usage, whole

BREAK_MS = 80
HOUR_MS = 3_600_000
ERROR = b'event: error\ndata: {"message": "out of memory"}\n\n'
NO_SIZE = "a chunk's size is b'zz', which is not a hexadecimal number."
CLOSING = HEAD.replace(b"\r\n\r\n", b"\r\nconnection: close\r\n\r\n")


def broken(error: str, *events: Timed, end_ms: float = BREAK_MS, **how: Any) -> Case:
    """Two tokens, then what ends the request."""
    two = Expected(
        at=(50, 60),
        tokens=(1, 1),
        gaps=(10,),
        prompt=None,
        output=None,
        finish=None,
        text="a b ",
        error=error,
        end=end_ms,
    )
    made = answer(*tokens()[:2], *events, end_ms=BREAK_MS, **how)
    return Case(answers=[made], expected=[two], invalid=failed(error))


def refused(error: str, reply: bytes, **how: Any) -> Case:
    """An answer without a stream."""
    nothing = Expected(**NOTHING, error=error, end=5)
    return Case(answers=[Answer([(5, reply)], **how)], expected=[nothing], invalid=failed(error))


def cached(output: int, tokens: int) -> dict[str, Any]:
    """Final usage that says how much of the prompt came from a cache."""
    return usage(output, prompt_tokens_details={"cached_tokens": tokens})


CASES: dict[str, Case] = {
    "an error after status 200": broken(
        "the engine sent an error inside the stream: out of memory",
        (80, {"error": {"message": "out of memory", "code": 500}}),
        (80, text("c ", "length")),
    ),
    "an error event": broken(
        "the engine sent an error inside the stream: out of memory",
        (80, ERROR),
        encode=lambda payload: payload if payload is ERROR else event(payload),
    ),
    "a page of HTML in the stream": broken("an event is not JSON: b'<html>'.", (80, b"<html>")),
    "choices of another shape": broken(
        "an event has another shape than OpenAI's: its choices: Expected `str | null`, got `int` - at"
        " `$[0].text`.",
        (80, {"choices": [{"text": 5}]}),
    ),
    "an early end": broken("the stream ended early: 2 content events and no finish_reason.", (80, DONE)),
    "a connection that closes inside a chunk": broken(
        "the server closed the connection inside an answer.", last=b"2f\r\ndata: {", end="close"
    ),
    "a connection that is reset": broken(
        "the connection was lost: [Errno 104] Connection reset by peer.", last=b"2f\r\ndata: {", end="reset"
    ),
    "a stall": broken(
        "stalled: no byte for 60 s.", last=b": wait\n\n", end="hang", end_ms=BREAK_MS + HOUR_MS
    ),
    "a refusal": refused("HTTP 400: too long now", whole(400, {"error": {"message": "too long now"}})),
    "a refusal in plain text": refused("HTTP 502: Bad Gateway", whole(502, b"Bad Gateway")),
    "a list of faults": refused("HTTP 422: [{'msg': 'no'}]", whole(422, {"detail": [{"msg": "no"}]})),
    "a chunk without a size": Case(
        answers=[answer(*tokens(), last=b"zz\r\n", end="close")],
        expected=[Expected(**NOTHING, error=NO_SIZE)],
        invalid=failed(NO_SIZE),
    ),
    "another protocol": refused(
        "the answer does not start with an HTTP status line but with b'SSH-2.0-x'.", b"SSH-2.0-x\r\n\r\n"
    ),
    "no answer": refused("the connection was lost: closed by the server, no answer.", b"", end="close"),
    "a prefix cache": Case(
        answers=[
            answer(*tokens(), *after(text("", "length"), cached(4, 0))),
            answer(*tokens(moments=(5, 15, 35, 65)), *after(text("", "length"), cached(4, 16))),
        ],
        expected=[Expected(cached=0), Expected(at=(5, 15, 35, 65), cached=16)],
        invalid=["1 of 2 requests hit the engine's prefix cache: 16 prompt tokens came from the cache."],
    ),
    "a program that is compiled in the middle": Case(
        answers=[answer(*tokens(moments=(50, 60, 460, 490)), *((495, e) for _, e in ENDING), end_ms=495)],
        expected=[Expected(at=(50, 60, 460, 490), gaps=(10, 400, 30), end=495)],
        invalid=["The engine stood still, as when it compiles: for 0.40 s no token came on any stream"],
    ),
    "another text each time": Case(
        answers=[answer(*USUAL), answer(*tokens(("a ", "b ", "x ", "d ")), *ENDING)],
        expected=[Expected(), Expected(text="a b x d ")],
    ),
    "a connection for each request": Case(
        answers=[answer(*USUAL, head=CLOSING, end="close")] * 2, expected=[Expected()] * 2, reconnects=1
    ),
    "a connection that closes when it is idle": Case(
        answers=[answer(*USUAL, end="close"), answer(*USUAL)], expected=[Expected()] * 2, reconnects=1
    ),
    "a connection that is reset at the next request": Case(
        answers=[answer(*USUAL), Answer([], end="reset"), answer(*USUAL)],
        expected=[Expected()] * 2,
        reconnects=1,
    ),
}
