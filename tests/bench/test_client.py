"""The benchmark of the client: each client that is installed sees the whole flood."""

from __future__ import annotations

import importlib.util

import pytest
from bench.client import Figure, measure, table
from bench.client_flood import STAMP, event
from bench.client_rivals import NAMES, OURS, read_kept

NEEDS = {
    "httpx, lines and json": "httpx",
    "aiohttp, lines and json": "aiohttp",
    "aiohttp, bytes kept": "aiohttp",
}


@pytest.mark.parametrize("name", NAMES)
def test_a_client_sees_every_event(name: str) -> None:
    """`measure` fails if one is missing."""
    if importlib.util.find_spec(NEEDS.get(name, "openai")) is None:
        pytest.skip(f"{NEEDS[name]} is not installed (extra bench)")
    found = measure(name, 4, seconds=0.2)
    assert found.during > 0
    assert 0 < found.late_p50 <= found.late_p99


def test_bytes_that_were_kept() -> None:
    data = event({"content": "word "}).replace(STAMP, b"17")
    assert [(ns, payload["created"]) for ns, payload in read_kept([(5, data + data), (6, data)])] == [
        (5, 17),
        (5, 17),
        (6, 17),
    ]


def test_the_table() -> None:
    lines = list(table({(OURS, 1): Figure(12, 3, 40, 90), (OURS, 8): Figure(10.04, 2, 1500, 9000)}, [1, 8]))
    assert lines == [
        "| client | 1 stream | 8 streams | read afterwards, 8 | stamp late, 8: median | p99 |",
        "|---|---:|---:|---:|---:|---:|",
        "| onechip ladder | 12.0 | 10.0 | 2.0 | 1.50 ms | 9.00 ms |",
    ]
