"""The client against an engine that misbehaves, and its stamps against scripted times."""

from __future__ import annotations

import asyncio
import socket
import statistics
import time
from typing import cast

import pytest

from onechip.ladder import timing
from onechip.ladder.client import Connection, Deadlines, Load, fetch, run_load
from onechip.ladder.engines.port import free_port
from onechip.ladder.records import RequestRecord
from onechip.ladder.stream import read_exchange
from onechip.ladder.target import Target
from tests.ladder.mock_engine import Behaviour, MockEngine, running

SOON = Deadlines(stall_s=1.2, request_s=20, load_s=30)


def load(engine: MockEngine, requests: int, level: int, tokens: int = 6, deadlines: Deadlines = SOON) -> Load:
    target = Target("127.0.0.1", engine.port)
    options = {"include_usage": True, "continuous_usage_stats": True}
    body = {"model": "mock", "max_tokens": tokens, "stream": True, "stream_options": options}
    payloads = [target.request("/v1/completions", body | {"prompt": [n, n]}) for n in range(requests)]
    return run_load(target, payloads, level, deadlines)


def records(load: Load) -> list[RequestRecord]:
    return [read_exchange(exchange, RequestRecord(n, "")) for n, exchange in enumerate(load.exchanges)]


def test_scripted_times_come_back() -> None:
    """Within 2 ms in the median, since other tests may have the cores; the engine spins to its moments."""
    with running(Behaviour(ttft_s=0.05, gap_s=0.01, per_event=2, usage="each")) as engine:
        found = records(load(engine, 5, 1, tokens=8))
    assert [record.event_tokens for record in found] == [[2, 2, 2, 2]] * 5
    assert statistics.median(timing.ttft_ms(record) or 0 for record in found) == pytest.approx(50, abs=2)
    gaps = [gap for record in found for gap in timing.inter_token_ms(record)]
    assert statistics.median(gaps) == pytest.approx(5, abs=1)


def test_all_slots_are_used_and_each_is_refilled_at_once() -> None:
    with running(Behaviour(ttft_s=0.05)) as engine:
        found = load(engine, 12, 4)
    sent = sorted(exchange.sent_ns for exchange in found.exchanges)
    assert [exchange.freed_ns > 0 for exchange in found.exchanges] == [False] * 4 + [True] * 8
    assert (sent[3] - sent[0]) / 1e9 < 0.04 < (sent[4] - sent[3]) / 1e9
    assert found.client["worst_send_ms"] < 50
    assert all(record.error is None for record in records(found))


def test_a_stalled_stream_costs_one_request() -> None:
    with running(Behaviour(fault="stall", faulty=(1,))) as engine:
        found = records(load(engine, 6, 2))
    assert [record.error for record in found].count(None) == 5
    assert [record.error for record in found if record.error] == ["stalled: no byte for 1.2 s."]


@pytest.mark.parametrize(
    ("fault", "error"),
    [
        ("error", "the engine sent an error inside the stream: out of memory"),
        ("early", "the stream ended early: 2 content events and no finish_reason."),
        ("reset", "the server closed the connection inside an answer."),
        ("refuse", "HTTP 500: the engine is unwell"),
    ],
)
def test_a_fault_costs_one_request(fault: str, error: str) -> None:
    with running(Behaviour(fault=fault, faulty=(2,))) as engine:
        found = records(load(engine, 5, 1))
    assert [record.error for record in found] == [None, None, error, None, None]


def test_a_slow_stream_ends_at_its_deadline() -> None:
    with running(Behaviour(gap_s=0.3)) as engine:
        began = time.monotonic()
        found = records(load(engine, 1, 1, tokens=99, deadlines=Deadlines(1.2, 1.5, 30)))
    assert found[0].error == "not finished within 1.5 s."
    assert time.monotonic() - began < 5


def test_what_is_left_at_the_end_of_a_load_is_not_sent() -> None:
    with running(Behaviour(ttft_s=0.4)) as engine:
        found = records(load(engine, 6, 1, tokens=1, deadlines=Deadlines(9, 9, 1.0)))
        asked = len(engine.behaviour.requests)
    errors = [record.error for record in found]
    assert errors[:2] == [None, None]
    assert errors[2] == "the cell's deadline passed."
    assert set(errors[3:]) == {"not sent: the cell's deadline passed."}
    assert asked == 3


def test_nobody_listens() -> None:
    target = Target("127.0.0.1", free_port())
    found = records(run_load(target, [target.request("/v1/completions", {})], 1, SOON))
    assert found[0].error is not None
    assert found[0].error.startswith(f"cannot connect to http://127.0.0.1:{target.port}: ")
    with pytest.raises(OSError, match="refused"):
        fetch(target, "/health")


class ClosedTransport:
    """As uvloop's is between the server's end and connection_lost: it says that it is open, and is not."""

    def __init__(self, closing: bool) -> None:
        self.closing = closing

    def is_closing(self) -> bool:
        return self.closing

    def write(self, data: bytes) -> None:
        raise RuntimeError("unable to perform operation on <TCPTransport closed=True>; the handler is closed")

    def abort(self) -> None:
        self.closing = True


@pytest.mark.parametrize("closing", [False, True])
def test_a_connection_that_closes_under_a_request_is_a_failed_request(closing: bool) -> None:
    connection = Connection()
    connection.connection_made(cast(asyncio.BaseTransport, ClosedTransport(closing)))
    exchange = asyncio.run(connection.send(b"GET / HTTP/1.1"))
    assert exchange.error == "the connection was lost: closed by the server before the request was sent."
    assert connection.stale


def test_no_answer_in_time() -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        target = Target("127.0.0.1", silent.getsockname()[1])
        with pytest.raises(OSError, match=r"gave no whole answer within 0\.2 s"):
            fetch(target, "/health", timeout_s=0.2)


def test_the_client_s_cost_is_told() -> None:
    with running(Behaviour(ttft_s=0.2)) as engine:
        client = load(engine, 2, 1).client
    assert {"loop_lag_p99_ms", "cpu_share", "late_sends", "worst_send_ms"} < set(client)
    assert 0 < client["cpu_share"] < 2
    assert client["loop_lag_p99_ms"] > 0


@pytest.mark.parametrize("url", ["http://h:1/v1", "http://h:1/v1/", "http://h:1"])
def test_a_target_s_url(url: str) -> None:
    target = Target.parse(url, "key")
    assert (target.host, target.port, target.prefix) == ("h", 1, "")
    assert b"Authorization: Bearer key\r\n" in target.request("/v1/models")
