"""Bytes as they arrived, with their stamps -> one HTTP/1.1 response and its server-sent events.

Pure, and run after a cell is over: nothing here is on the path that is measured, except `Tail`, which says
when a response has ended.
"""

from __future__ import annotations

import re
import zlib
from bisect import bisect_right
from dataclasses import dataclass, field, replace
from itertools import accumulate

Arrival = tuple[int, bytes]
"""`perf_counter_ns` when the bytes arrived, and the bytes."""

_HEAD_END = b"\r\n\r\n"
_LAST_CHUNK = b"0\r\n\r\n"
_HEXADECIMAL = re.compile(rb"[0-9a-fA-F]+")
_LINE_END = re.compile(rb"\r\n|\n|\r")
_ZLIB_OR_GZIP = 32 + zlib.MAX_WBITS


class WireError(ValueError):
    """The bytes are not an HTTP/1.1 response; the message says where they stop being one."""


class NoHeadError(WireError):
    """The bytes end before the head does; why they end is known to the connection, not to us."""


@dataclass(slots=True)
class Exchange:
    """One request as the client saw it.

    Attributes:
        sent_ns: its first byte was sent.
        arrivals: everything that came back.
        end_ns: its last byte arrived, or the client gave up.
        freed_ns: when the slot that sent it became free; 0 for a slot's first request.
        error: one sentence if the connection failed or a deadline passed.
    """

    sent_ns: int = 0
    arrivals: list[Arrival] = field(default_factory=list)
    end_ns: int = 0
    freed_ns: int = 0
    error: str | None = None


@dataclass(frozen=True, slots=True)
class Head:
    """Status line and headers; `size` is how many bytes they took."""

    status: int
    headers: dict[str, str]
    size: int

    @property
    def chunked(self) -> bool:
        return "chunked" in self.headers.get("transfer-encoding", "").lower()

    @property
    def length(self) -> int | None:
        """Bytes of the body, None where the head does not say."""
        if self.chunked or "content-length" not in self.headers:
            return None
        return int(self.headers["content-length"])  # read_head has seen that it is a number

    @property
    def closes(self) -> bool:
        """Whether the connection cannot be used again."""
        return "close" in self.headers.get("connection", "").lower()


@dataclass(frozen=True, slots=True)
class Response:
    """One response with its framing removed.

    Attributes:
        pieces: body bytes with the stamps of their arrival.
        complete: the framing says that the whole body came.
    """

    head: Head
    pieces: tuple[Arrival, ...]
    complete: bool

    @property
    def body(self) -> bytes:
        return b"".join(data for _, data in self.pieces)


@dataclass(frozen=True, slots=True)
class ServerEvent:
    """A server-sent event; `ns` is when the blank line that ends it arrived."""

    ns: int
    name: str
    data: bytes


def read_head(data: bytes) -> Head | None:
    """Status line and headers from the first bytes of a response; None while they are not all there."""
    end = data.find(_HEAD_END)
    if end < 0:
        return None
    status_line, *lines = data[:end].split(b"\r\n")
    parts = status_line.split(b" ", 2)
    if len(parts) < 2 or not parts[0].startswith(b"HTTP/") or not parts[1].isdigit():
        raise WireError(f"the answer does not start with an HTTP status line but with {status_line[:40]!r}")
    headers: dict[str, str] = {}
    for line in lines:
        name, _, value = line.partition(b":")
        headers[name.decode("latin-1").strip().lower()] = value.decode("latin-1").strip()
    if not headers.get("content-length", "0").isdecimal():
        raise WireError(f"its content-length is {headers['content-length'][:20]!r}, which is no number")
    return Head(int(parts[1]), headers, end + len(_HEAD_END))


class Tail:
    """Sees when a response has ended, at the cost of one comparison for each arrival.

    A chunked body can end only where the last bytes are those of the empty chunk (we send no TE header, so no
    trailers follow); because text may hold the same bytes, the framing is read through once when they are
    seen.
    """

    __slots__ = ("_chunked", "_got", "_last", "_wanted", "head")

    def __init__(self) -> None:
        self.head: Head | None = None
        self._chunked = False
        self._wanted: int | None = None
        self._got = 0
        self._last = b""

    def ended(self, arrivals: list[Arrival]) -> bool:
        """Call once after each arrival; whether the newest one ended the response."""
        data = arrivals[-1][1]
        if self._chunked:
            self._last = data if len(data) >= len(_LAST_CHUNK) else (self._last + data)[-len(_LAST_CHUNK) :]
            return self._ends_chunked(arrivals)
        self._got += len(data)
        if self.head is None and not self._begun(arrivals):
            return False
        if self._chunked:
            return self._ends_chunked(arrivals)
        return self._wanted is not None and self._got >= self._wanted

    def _ends_chunked(self, arrivals: list[Arrival]) -> bool:
        if not self._last.endswith(_LAST_CHUNK):
            return False
        assert self.head is not None
        return _chunk_spans(b"".join(piece for _, piece in arrivals), self.head.size)[1]

    def _begun(self, arrivals: list[Arrival]) -> bool:
        """Whether the head is there now; if so, it says what the end will look like."""
        raw = b"".join(piece for _, piece in arrivals)
        self.head = head = read_head(raw)
        if head is None:
            return False
        self._chunked, self._last = head.chunked, raw
        length = 0 if head.status in (204, 304) else head.length
        self._wanted = None if length is None else head.size + length
        return True


def read_response(arrivals: list[Arrival], *, closed: bool = False) -> Response:
    """Removes head, framing and compression.

    Args:
        arrivals: everything that one request got back.
        closed: the server closed the connection after it, which ends a body of unstated length.

    Raises:
        WireError: the bytes are not an HTTP/1.1 response, or cannot be decompressed.
    """
    response = _unframed(arrivals, closed=closed)
    encoding = response.head.headers.get("content-encoding", "identity").lower()
    if encoding in ("gzip", "x-gzip", "deflate"):
        return replace(response, pieces=_inflated(response.pieces, encoding))
    if encoding != "identity":
        raise WireError(f"the answer is compressed as {encoding[:20]!r}, though it was asked for as it is")
    return response


def _unframed(arrivals: list[Arrival], *, closed: bool = False) -> Response:
    raw = b"".join(data for _, data in arrivals)
    head = read_head(raw)
    if head is None:
        raise NoHeadError(f"the answer ended inside its head, after {len(raw)} bytes")
    if head.chunked:
        spans, complete = _chunk_spans(raw, head.size)
    else:
        end = len(raw) if head.length is None else min(len(raw), head.size + head.length)
        spans = [(head.size, end)]
        complete = closed if head.length is None else end == head.size + head.length
    ends = list(accumulate(len(data) for _, data in arrivals))
    pieces = tuple(piece for span in spans for piece in _stamped(raw, span, ends, arrivals))
    return Response(head, pieces, complete)


def _inflated(pieces: tuple[Arrival, ...], encoding: str) -> tuple[Arrival, ...]:
    """What could be read of a compressed body when each of its pieces had come: servers flush every event."""
    inflater = zlib.decompressobj(_ZLIB_OR_GZIP)
    try:
        return tuple((ns, inflater.decompress(data)) for ns, data in pieces)
    except zlib.error as error:
        raise WireError(f"the answer says that it is {encoding}, and is not: {error}") from None


def _chunk_spans(raw: bytes, position: int) -> tuple[list[tuple[int, int]], bool]:
    """Byte ranges of the chunks' data, and whether the empty chunk that ends the body was seen."""
    spans: list[tuple[int, int]] = []
    while (line_end := raw.find(b"\r\n", position)) >= 0:
        size_text = raw[position:line_end].partition(b";")[0].strip()
        if not _HEXADECIMAL.fullmatch(size_text):
            raise WireError(f"a chunk's size is {size_text[:20]!r}, which is not a hexadecimal number")
        size = int(size_text, 16)
        start = line_end + 2
        if size == 0:
            return spans, raw[start : start + 2] == b"\r\n"
        spans.append((start, min(start + size, len(raw))))
        position = start + size + 2
    return spans, False


def _stamped(raw: bytes, span: tuple[int, int], ends: list[int], arrivals: list[Arrival]) -> list[Arrival]:
    """Cuts one byte range where one arrival ended and the next began."""
    pieces: list[Arrival] = []
    start, stop = span
    while start < stop:
        arrival = bisect_right(ends, start)
        cut = min(stop, ends[arrival])
        pieces.append((arrivals[arrival][0], raw[start:cut]))
        start = cut
    return pieces


def server_events(response: Response) -> list[ServerEvent]:
    """The events of a `text/event-stream` body: LF, CRLF or CR, comments and unknown fields skipped.

    An event whose blank line never came is still given if its data line was complete, since some servers
    leave out the blank line after `[DONE]`.
    """
    body = response.body.removeprefix(b"\xef\xbb\xbf")
    skipped = len(response.body) - len(body)
    ends = list(accumulate(len(data) for _, data in response.pieces))
    events: list[ServerEvent] = []
    name = ""
    data: list[bytes] = []
    start = 0
    for match in _LINE_END.finditer(body):
        line, start = body[start : match.start()], match.end()
        if line:
            name = _read_line(line, name, data)
        elif data:
            ns = response.pieces[bisect_right(ends, match.start() + skipped)][0]
            events.append(ServerEvent(ns, name, b"\n".join(data)))
        if not line:
            name, data = "", []
    if data:
        events.append(ServerEvent(response.pieces[-1][0], name, b"\n".join(data)))
    return events


def _read_line(line: bytes, name: str, data: list[bytes]) -> str:
    """Adds a `data` line to `data`; returns the event's name, changed by an `event` line."""
    key, _, value = line.partition(b":")
    value = value.removeprefix(b" ")
    if key == b"data":
        data.append(value)
    elif key == b"event":
        return value.decode("utf-8", "replace")
    return name
