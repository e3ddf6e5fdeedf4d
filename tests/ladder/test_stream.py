"""What engines stream, each oddity with the exact record that must come of it."""

from __future__ import annotations

import json
from typing import Any

import pytest

from onechip.ladder.records import RequestRecord
from onechip.ladder.stream import mend, read_exchange, spread
from onechip.ladder.wire import Exchange

HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"


def chunk(payload: Any) -> bytes:
    text = payload if isinstance(payload, bytes) else json.dumps(payload).encode()
    event = b"data: " + text + b"\n\n"
    return f"{len(event):x}\r\n".encode() + event + b"\r\n"


def read(*payloads: Any, ended: bool = True, **asked: Any) -> RequestRecord:
    """Events at 10, 20, 30 ... ns after a send at 0."""
    arrivals = [(0, HEAD)] + [(10 * n, chunk(payload)) for n, payload in enumerate(payloads, start=1)]
    if ended:
        arrivals.append((10 * len(payloads), b"0\r\n\r\n"))
    error = None if ended else "the server closed the connection inside an answer."
    return read_exchange(
        Exchange(0, arrivals, 10 * len(payloads), error=error), RequestRecord(0, "", **asked)
    )


def delta(usage: dict[str, Any] | None = None, finish: str | None = None, **fields: Any) -> dict[str, Any]:
    payload: dict[str, Any] = {"choices": [{"index": 0, "delta": fields, "finish_reason": finish}]}
    return payload | ({"usage": usage} if usage is not None else {})


def text(piece: str, finish: str | None = None, **more: Any) -> dict[str, Any]:
    return {"choices": [{"index": 0, "text": piece, "finish_reason": finish, **more}]}


def usage(output: int, prompt: int = 7, **more: Any) -> dict[str, Any]:
    return {"choices": [], "usage": {"prompt_tokens": prompt, "completion_tokens": output, **more}}


ROLE = delta(role="assistant", content="")
DONE = b"[DONE]"


def test_a_plain_chat_stream() -> None:
    record = read(ROLE, delta(content="Hi"), delta(content=" you"), delta(finish="stop"), usage(2), DONE)
    assert (record.text, record.finish, record.error) == ("Hi you", "stop", None)
    assert (record.event_ns, record.event_tokens) == ([20, 30], [1, 1])
    assert (record.prompt_tokens, record.output_tokens, record.end_ns) == (7, 2, 60)
    assert record.extra["tokens_from"] == "one each"


def test_a_role_with_text_is_content() -> None:
    record = read(delta(role="assistant", content="Hi"), delta(content="!"), delta(finish="stop"), usage(2))
    assert record.event_ns == [10, 20]


def test_an_empty_text_without_role_or_finish_is_a_token() -> None:
    record = read(
        ROLE, delta(content=""), delta(content="é"), delta(content=None), delta(finish="length"), usage(2)
    )
    assert record.event_ns == [20, 30]
    assert read(text(""), text("a"), text("", "length"), usage(2)).event_ns == [10, 20]


def test_the_stop_token_has_no_event() -> None:
    record = read(text("a"), text("b"), text("", "stop"), usage(3))
    assert (record.event_tokens, record.extra["tokens_from"]) == ([1, 1], "one each")


def test_several_tokens_in_an_event_by_usage_in_every_event() -> None:
    events = [delta({"completion_tokens": n}, content="abcd"[: n % 5]) for n in (1, 4, 8)]
    record = read(
        delta({"completion_tokens": 0}, role="assistant"), *events, delta(finish="length"), usage(8), DONE
    )
    assert (record.event_tokens, record.extra["tokens_from"]) == ([1, 3, 4], "usage")
    assert "count_mismatch" not in record.extra


def test_usage_in_every_event_counts_tokens_without_text() -> None:
    events = [delta({"completion_tokens": n}, content=piece) for n, piece in ((1, "a"), (2, ""))]
    record = read(*events, delta({"completion_tokens": 3}, finish="length"), usage(3))
    assert (record.event_ns, record.event_tokens) == ([10, 20, 30], [1, 1, 1])


def test_counts_that_contradict_each_other_are_named() -> None:
    events = [delta({"completion_tokens": n}, content="x") for n in (1, 2)]
    record = read(*events, delta(finish="length"), usage(9))
    assert record.extra["count_mismatch"] == "its events carried 2 tokens, its final usage says 9."


def test_final_usage_with_the_last_choice_is_no_count_of_that_event() -> None:
    record = read(
        ROLE, delta(content="a"), delta(content="b"), delta({"completion_tokens": 2}, finish="length")
    )
    assert (record.event_ns, record.event_tokens, record.output_tokens) == ([20, 30], [1, 1], 2)


def test_token_ids_in_events() -> None:
    record = read(text("ab", token_ids=[1, 2]), text("c", token_ids=[3]), text("", "length"), usage(3))
    assert (record.event_tokens, record.extra["tokens_from"]) == ([2, 1], "token ids")


def test_without_any_count_tokens_are_shared_out_by_length() -> None:
    record = read(text("aaaa"), text("bb"), text("cc"), text("", "length"), usage(8))
    assert (record.event_tokens, record.extra["tokens_from"]) == ([4, 2, 2], "text")


def test_usage_of_zero_or_none_is_unknown() -> None:
    for last in (usage(0, 0), {"choices": [], "usage": None}, DONE):
        record = read(text("a"), text("b", "length"), last)
        assert (record.output_tokens, record.prompt_tokens, record.event_tokens) == (None, None, [1, 1])


def test_cached_tokens() -> None:
    record = read(text("a", "stop"), usage(1, prompt_tokens_details={"cached_tokens": 16}))
    assert record.cached_tokens == 16


@pytest.mark.parametrize("field", ["reasoning_content", "reasoning"])
def test_reasoning_is_content(field: str) -> None:
    record = read(ROLE, delta(**{field: "hm"}), delta(content="yes"), delta(finish="stop"), usage(2))
    assert (record.event_ns, record.text, record.extra["reasoning"]) == ([20, 30], "yes", "hm")


def test_a_tool_call_in_fragments() -> None:
    first = {"index": 0, "id": "c", "function": {"name": "add", "arguments": ""}}
    rest = [{"index": 0, "function": {"arguments": part}} for part in ('{"a":', "1}")]
    calls = [delta(tool_calls=[call]) for call in (first, *rest)]
    record = read(ROLE, *calls, delta(finish="tool_calls"), usage(3))
    assert record.extra["tool_calls"] == [{"name": "add", "arguments": '{"a":1}'}]
    assert record.event_ns == [20, 30, 40]


def test_a_character_split_across_events() -> None:
    halves = [
        b'{"choices":[{"text":"\xf0\x9f"}]}',
        b'{"choices":[{"text":"\x98\x80","finish_reason":"stop"}]}',
    ]
    assert read(*halves).text == "😀"
    surrogates = [
        rb'{"choices":[{"text":"\ud83d"}]}',
        rb'{"choices":[{"text":"\ude00","finish_reason":"stop"}]}',
    ]
    assert read(*surrogates).text == "😀"


def test_halves_without_a_partner_are_replaced() -> None:
    assert mend("a\ud83d") == "a\ufffd"
    assert mend("é\udcff") == "é\ufffd"


def test_an_error_after_status_200() -> None:
    record = read(text("a"), {"error": {"message": "out of memory", "code": 500}}, text("b"))
    assert record.error == "the engine sent an error inside the stream: out of memory"
    assert record.text == "a"


def test_a_stream_that_ends_early() -> None:
    assert read(text("a"), DONE).error == "the stream ended early: 1 content events and no finish_reason."
    assert read(text("a"), ended=False).error == "the server closed the connection inside an answer."


def test_an_event_that_is_not_json() -> None:
    assert read(b"<html>").error == "an event is not JSON: b'<html>'."


@pytest.mark.parametrize(
    "choices",
    ["x", [None], {"a": 1}, [{"delta": {"content": 5}}], [{"delta": "x"}], [{"delta": {"tool_calls": [7]}}]],
)
def test_an_event_of_another_shape(choices: Any) -> None:
    record = read(delta(content="Hi"), {"choices": choices}, delta(finish="stop"), DONE)
    assert record.error is not None
    assert record.error.startswith("an event has another shape than OpenAI's: its choices: Expected")


@pytest.mark.parametrize("said", ["many", {"completion_tokens": "x", "prompt_tokens_details": [1]}])
def test_usage_of_another_shape_counts_as_none(said: Any) -> None:
    record = read(delta(content="Hi"), delta(finish="stop", usage=said), DONE)
    assert (record.error, record.output_tokens, record.cached_tokens) == (None, None, None)


def test_a_refusal_gives_the_engine_s_own_sentence() -> None:
    raw = b'HTTP/1.1 400 x\r\ncontent-length: 38\r\n\r\n{"error": {"message": "too long now"}}'
    record = read_exchange(Exchange(0, [(5, raw)], 5), RequestRecord(0, ""))
    assert record.error == "HTTP 400: too long now"


def test_an_answer_in_one_piece_of_json_is_one_event() -> None:
    body = json.dumps(
        {
            "choices": [{"message": {"role": "assistant", "content": "Hi"}, "finish_reason": "stop"}],
            "usage": {"completion_tokens": 3, "prompt_tokens": 2},
        }
    ).encode()
    head = f"HTTP/1.1 200 x\r\ncontent-type: application/json\r\ncontent-length: {len(body)}\r\n\r\n".encode()
    record = read_exchange(Exchange(0, [(5, head), (9, body)], 9), RequestRecord(0, ""))
    assert (record.text, record.event_ns, record.event_tokens) == ("Hi", [9], [3])


def test_our_own_count_of_text_and_reasoning() -> None:
    arrivals = [
        (1, HEAD + chunk(delta(reasoning="a b", content="c")) + chunk(delta(finish="stop")) + b"0\r\n\r\n")
    ]
    record = read_exchange(Exchange(0, arrivals, 1), RequestRecord(0, ""), lambda text: len(text.split()))
    assert record.counted_tokens == 2


def test_shares_add_up() -> None:
    assert spread(10, [1, 1, 1]) == [3, 4, 3]
    assert sum(spread(7, [0, 5, 100, 3])) == 7
