"""The same answer in other bytes: cut elsewhere, framed, encoded or compressed otherwise."""

from __future__ import annotations

import json
import zlib
from typing import Any

from tests.ladder.zoo.case import (
    END_MS,
    ENDING,
    HEAD_MS,
    MOMENTS,
    NOTHING,
    ROLE_MS,
    USUAL,
    Case,
    Expected,
    Timed,
    answer,
    failed,
    tokens,
)
from tests.ladder.zoo.engine import Answer, Step
from tests.ladder.zoo.events import DONE, HEAD, LAST_CHUNK, chunk, counts, event, whole

MARK = b"\xef\xbb\xbf"
BODY_HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n"
NOT_ASKED = "the answer is compressed as 'br', though it was asked for as it is."
MESSAGE = {
    "choices": [{"message": {"role": "assistant", "content": "a b c d "}, "finish_reason": "length"}],
    "usage": counts(4),
}
GRIN = "😀".encode()


def halves(first: bytes, second: bytes) -> list[Timed]:
    """The four tokens with one character in two of them; the pieces are JSON as it stands on the wire."""
    return [
        (ms, b'{"choices": [{"text": "%b"}]}' % piece)
        for ms, piece in zip(MOMENTS, (b"a ", first, second, b" d "), strict=True)
    ]


def in_two(*events: Timed) -> Answer:
    """Each event in two packets, the first 4 ms earlier, cut inside a character where there is one."""
    steps: list[Step] = [(HEAD_MS, HEAD)]
    for ms, payload in events:
        data = chunk(event(payload))
        cut = data.find(b"\xa9") if b"\xa9" in data else len(data) // 2
        steps += [(ms - 4 if ms < END_MS else ms, data[:cut]), (ms, data[cut:])]
    return Answer([*steps, (END_MS, LAST_CHUNK)])


def noisy(payload: Any) -> bytes:
    """Comments, pings and fields that clients may ignore, before and inside an event."""
    ping = b": ping\n\nevent: ping\ndata: {}\n\n" if payload is not DONE else b""
    return ping + b"id: 7\nretry: 100\n: still here\n" + event(payload)


def over_lines(payload: Any) -> bytes:
    """The payload's JSON over several data lines."""
    said = payload.decode() if isinstance(payload, bytes) else json.dumps(payload, indent=1)
    return "".join(f"data: {line}\n" for line in said.split("\n")).encode() + b"\n"


def zipped(*events: Timed) -> Answer:
    """Compressed, and flushed after every event."""
    press = zlib.compressobj(wbits=16 + zlib.MAX_WBITS)

    def frame(data: bytes) -> bytes:
        return chunk(press.compress(data) + press.flush(zlib.Z_SYNC_FLUSH))

    made = answer(
        *events, head=HEAD.replace(b"\r\n\r\n", b"\r\ncontent-encoding: gzip\r\n\r\n"), frame=frame, last=b""
    )
    return Answer([*made.steps, (END_MS, chunk(press.flush()) + LAST_CHUNK)])


def plain(data: bytes) -> bytes:
    return data


def odd_chunk(data: bytes) -> bytes:
    """Leading zeros, capitals and an extension."""
    return f"000{len(data):X} ; name=value\r\n".encode() + data + b"\r\n"


SIZED_HEAD = BODY_HEAD + b"Content-Length: %d\r\n\r\n" % sum(len(event(payload)) for _, payload in USUAL)

CASES: dict[str, Case] = {
    "a character split across events": Case(
        answers=[answer(*halves(GRIN[:2], GRIN[2:]), *ENDING)], expected=[Expected(text="a 😀 d ")]
    ),
    "a character split into surrogates": Case(
        answers=[answer(*halves(rb"\ud83d", rb"\ude00"), *ENDING)], expected=[Expected(text="a 😀 d ")]
    ),
    "events split across packets": Case(
        answers=[in_two(*tokens(("é ", "b ", "c ", "d ")), *ENDING)], expected=[Expected(text="é b c d ")]
    ),
    "all events in one packet": Case(
        answers=[
            Answer(
                [(HEAD_MS, HEAD), (110, b"".join(chunk(event(p)) for _, p in USUAL)), (END_MS, LAST_CHUNK)]
            )
        ],
        expected=[Expected(at=(110,) * 4, gaps=(0, 0, 0))],
    ),
    "head and answer in one packet": Case(
        answers=[Answer([(110, HEAD + b"".join(chunk(event(p)) for _, p in USUAL) + LAST_CHUNK)])],
        expected=[Expected(at=(110,) * 4, gaps=(0, 0, 0), end=110)],
    ),
    "CRLF": Case(answers=[answer(*USUAL, encode=lambda p: event(p, b"\r\n"))]),
    "CR": Case(answers=[answer(*USUAL, encode=lambda p: event(p, b"\r"))]),
    "comments and pings": Case(answers=[answer(*USUAL, encode=noisy)]),
    "data over several lines": Case(answers=[answer(*USUAL, encode=over_lines)]),
    "no blank after the colon": Case(
        answers=[answer(*USUAL, encode=lambda p: event(p).replace(b"data: ", b"data:"))]
    ),
    "a byte order mark": Case(
        answers=[answer((ROLE_MS, b""), *USUAL, encode=lambda p: event(p) if p else MARK)]
    ),
    "gzip": Case(answers=[zipped(*USUAL)]),
    "a compression of its own": Case(
        answers=[answer(*USUAL, head=HEAD.replace(b"\r\n\r\n", b"\r\ncontent-encoding: br\r\n\r\n"))],
        expected=[Expected(**NOTHING, error=NOT_ASKED)],
        invalid=failed(NOT_ASKED),
    ),
    "odd chunks": Case(answers=[answer(*USUAL, frame=odd_chunk)]),
    "a length instead of chunks": Case(
        answers=[answer(*USUAL, head=SIZED_HEAD, frame=plain, last=b"")],
    ),
    "a body that ends with the connection": Case(
        answers=[answer(*USUAL, head=BODY_HEAD + b"\r\n", frame=plain, last=b"", end="close")]
    ),
    "no [DONE]": Case(answers=[answer(*USUAL[:-1])]),
    "no blank line after [DONE]": Case(
        answers=[answer(*USUAL, encode=lambda p: event(p) if p is not DONE else b"data: [DONE]\n")]
    ),
    "one piece of JSON": Case(
        answers=[Answer([(110, whole(200, MESSAGE))])],
        expected=[Expected(at=(110,), tokens=(4,), source="usage", gaps=(), end=110)],
    ),
}
