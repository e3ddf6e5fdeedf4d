"""HTTP framing and server-sent events, however the bytes are cut."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from onechip.ladder.wire import Arrival, Tail, WireError, read_response, server_events

HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"


def chunked(*parts: bytes) -> bytes:
    return b"".join(f"{len(part):x}\r\n".encode() + part + b"\r\n" for part in parts) + b"0\r\n\r\n"


def cut(raw: bytes, places: list[int]) -> list[Arrival]:
    """The bytes in arrivals at 1, 2, 3 ... ns, cut at these places."""
    edges = [0, *sorted(place % len(raw) for place in places), len(raw)]
    pieces = [raw[start:stop] for start, stop in pairwise(edges) if stop > start]
    return list(enumerate(pieces, start=1))


STREAM = (
    b'data: {"a":1}\r\n\r\n: ping\r\n\r\ndata: x\r\ndata: y\r\n\r\n'
    b"event: error\r\ndata: \xf0\x9f\x98\x80\r\n\r\ndata: [DONE]\r\n\r\n"
)


@given(st.lists(st.integers(0, 1000), max_size=12), st.sampled_from([b"\r\n", b"\n", b"\r"]))
def test_events_do_not_depend_on_where_the_bytes_are_cut(places: list[int], newline: bytes) -> None:
    stream = STREAM.replace(b"\r\n", newline)
    raw = HEAD + chunked(stream[:7], stream[7:50], stream[50:])
    response = read_response(cut(raw, places))
    assert response.complete
    events = server_events(response)
    assert [(event.name, event.data) for event in events] == [
        ("", b'{"a":1}'),
        ("", b"x\ny"),
        ("error", "😀".encode()),
        ("", b"[DONE]"),
    ]
    assert [event.ns for event in events] == sorted(event.ns for event in events)


@given(st.lists(st.integers(0, 1000), max_size=12))
def test_the_end_is_seen_with_the_last_byte_and_not_before(places: list[int]) -> None:
    """Also where the text itself holds the bytes of an empty chunk."""
    arrivals = cut(HEAD + chunked(b"data: 0\r\n\r\n", b"0\r\n\r\n0\r\n\r\n"), places)
    tail = Tail()
    seen = [tail.ended(arrivals[:count]) for count in range(1, len(arrivals) + 1)]
    assert seen == [False] * (len(arrivals) - 1) + [True]


def test_an_event_is_stamped_when_its_blank_line_arrives() -> None:
    arrivals = [(10, HEAD + b"9\r\ndata: one"), (20, b"\r\n1\r\n\n\r\n"), (30, b"1\r\n\n\r\n0\r\n\r\n")]
    assert [event.ns for event in server_events(read_response(arrivals))] == [30]


def test_a_body_of_stated_length() -> None:
    head = b"HTTP/1.1 400 Bad\r\ncontent-length: 5\r\n\r\n"
    tail = Tail()
    assert not tail.ended([(1, head + b"abc")])
    assert tail.ended([(1, head + b"abc"), (2, b"de")])
    response = read_response([(1, head + b"abc"), (2, b"de")])
    assert (response.head.status, response.body, response.complete) == (400, b"abcde", True)


def test_a_body_of_unstated_length_ends_when_the_connection_closes() -> None:
    raw = [(1, b"HTTP/1.0 200 OK\r\n\r\ndata: a\n\n")]
    assert not read_response(raw).complete
    assert read_response(raw, closed=True).complete


def test_a_stream_cut_off_inside_a_chunk_is_not_complete() -> None:
    response = read_response([(1, HEAD + b"20\r\ndata: one\n\ndata: t")])
    assert not response.complete
    assert response.body == b"data: one\n\ndata: t"


def test_a_last_event_without_its_blank_line_counts() -> None:
    response = read_response([(1, HEAD + chunked(b"data: a\n\ndata: [DONE]\n"))])
    assert [event.data for event in server_events(response)] == [b"a", b"[DONE]"]


def test_a_byte_order_mark_does_not_move_the_stamps() -> None:
    arrivals = [(1, HEAD + b"c\r\n\xef\xbb\xbfdata: a\n\n\r\n"), (2, b"9\r\ndata: b\n\n\r\n0\r\n\r\n")]
    assert [(event.ns, event.data) for event in server_events(read_response(arrivals))] == [
        (1, b"a"),
        (2, b"b"),
    ]


@pytest.mark.parametrize("raw", [b"SSH-2.0-x\r\n\r\n", b"HTTP/1.1 abc\r\n\r\n", HEAD + b"zz\r\n"])
def test_what_is_not_http_is_refused(raw: bytes) -> None:
    with pytest.raises(WireError):
        read_response([(1, raw)])
