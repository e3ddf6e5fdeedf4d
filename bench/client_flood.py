"""A server that only streams: streams, events and rounds a second in, the same events to every client out.

    python -m bench.client_flood STREAMS EVENTS HZ

It waits until STREAMS requests have come, then sends one event to each of them HZ times a second, each in a
packet of its own, as an engine sends a token of every running request after each step. `created` is when the
event was written, in nanoseconds of a clock that all processes of a Linux machine share. Then it waits for
the next STREAMS requests. It prints its port.
"""

from __future__ import annotations

import contextlib
import json
import select
import socket
import sys
import time

HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"
STAMP = b"@STAMP@"
WORD = "word "
PATH = "/v1/chat/completions"


def chunk(data: bytes) -> bytes:
    return f"{len(data):x}\r\n".encode() + data + b"\r\n"


def event(delta: dict[str, str], finish: str | None = None, **more: object) -> bytes:
    """An event as vLLM writes it, with STAMP where the time belongs."""
    choice = {"index": 0, "delta": delta, "logprobs": None, "finish_reason": finish, "token_ids": None}
    payload = {
        "id": "chatcmpl-8f2b4c6d1e0a4f7c9b3d5e7f90a1b2c3",
        "object": "chat.completion.chunk",
        "created": STAMP.decode(),
        "model": "flood",
        "choices": [choice],
        **more,
    }
    said = json.dumps(payload, separators=(",", ":")).encode()
    return b"data: " + said.replace(b'"' + STAMP + b'"', STAMP) + b"\n\n"


class Flood:
    """The server's listening socket and its connections."""

    def __init__(self, streams: int, events: int, hz: float) -> None:
        self.streams, self.events, self.hz = streams, events, hz
        self.listener = socket.create_server(("127.0.0.1", 0), backlog=streams)
        self.connections: dict[int, socket.socket] = {}
        self.before, self.after = event({"content": WORD}).split(STAMP)

    @property
    def port(self) -> int:
        return int(self.listener.getsockname()[1])

    def serve(self) -> None:
        while True:
            self._flood(self._requests())

    def _requests(self) -> list[socket.socket]:
        """Connections with a whole request on them, once there are enough."""
        waiting: list[socket.socket] = []
        while len(waiting) < self.streams:
            readable, _, _ = select.select([self.listener, *self.connections.values()], [], [])
            for ready in readable:
                if ready is self.listener:
                    connection, _ = self.listener.accept()
                    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                    self.connections[connection.fileno()] = connection
                elif self._request(ready):
                    waiting.append(ready)
        return waiting

    def _request(self, connection: socket.socket) -> bool:
        """Reads one request; whether there was one and not the connection's end."""
        raw = b""
        while (end := raw.find(b"\r\n\r\n")) < 0 or len(raw) < end + 4 + _length(raw[:end]):
            piece = connection.recv(65536)
            if not piece:
                del self.connections[connection.fileno()]
                connection.close()
                return False
            raw += piece
        return True

    def _flood(self, waiting: list[socket.socket]) -> None:
        role, last = (self._stamped(e) for e in (event({"role": "assistant", "content": ""}), self._final()))
        for connection in waiting:
            connection.sendall(HEAD + role)
        began = time.perf_counter()
        for number in range(1, self.events + 1):
            wait = began + number / self.hz - time.perf_counter()
            if wait > 0:
                time.sleep(wait)
            for connection in waiting:
                connection.sendall(chunk(b"%b%d%b" % (self.before, time.perf_counter_ns(), self.after)))
        for connection in waiting:
            connection.sendall(last + chunk(b"data: [DONE]\n\n") + b"0\r\n\r\n")

    def _final(self) -> bytes:
        usage = {
            "prompt_tokens": 1,
            "completion_tokens": self.events,
            "total_tokens": self.events + 1,
        }
        return event({}, "stop", usage=usage)

    @staticmethod
    def _stamped(data: bytes) -> bytes:
        return chunk(data.replace(STAMP, b"%d" % time.perf_counter_ns()))


def _length(head: bytes) -> int:
    for line in head.split(b"\r\n"):
        name, _, value = line.partition(b":")
        if name.lower() == b"content-length":
            return int(value)
    return 0


if __name__ == "__main__":
    flood = Flood(int(sys.argv[1]), int(sys.argv[2]), float(sys.argv[3]))
    print(flood.port, flush=True)
    with contextlib.suppress(ConnectionError):  # a client that was stopped
        flood.serve()
