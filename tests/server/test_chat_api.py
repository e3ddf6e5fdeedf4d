"""Chat and plain completions over HTTP with a scripted engine: events, errors, hanging up, draining."""

from __future__ import annotations

import socket
import threading
from typing import Any

import pytest

from tests.server.scripted import CHAT, HI, LARGEST_CONTEXT, TOKENIZER, error_of, wait_until

TEXT = "/v1/completions"
PARAMETERS = {"type": "object", "properties": {"s": {"type": "string"}}}
TOOLS = [{"type": "function", "function": {"name": "f", "parameters": PARAMETERS}}]


def deltas_of(events: list[Any]) -> list[Any]:
    return [event["choices"][0]["delta"] for event in events if event != "[DONE]" and event["choices"]]


def test_a_whole_answer(client, engine) -> None:
    status, reply = client.ask("POST", CHAT, HI | {"seed": 5, "max_completion_tokens": 7})
    assert status == 200
    assert reply["object"] == "chat.completion"
    assert reply["id"].startswith("chatcmpl-")
    assert reply["model"] == "acorn"
    assert reply["choices"] == [
        {
            "index": 0,
            "message": {"role": "assistant", "content": "Hello you", "refusal": None},
            "logprobs": None,
            "finish_reason": "stop",
        }
    ]
    request = engine.requests[0]
    prompt, output = len(request.prompt), sum(map(len, engine.windows))
    assert reply["usage"] == {
        "prompt_tokens": prompt,
        "total_tokens": prompt + output,
        "completion_tokens": output,
        "prompt_tokens_details": {"cached_tokens": 3},
    }
    assert (
        TOKENIZER.decode(request.prompt, skip_special=False) == "<bos><|turn>user\nHi<turn|>\n<|turn>model\n"
    )
    assert (request.sampling.seed, request.sampling.max_tokens) == (5, 7)


def test_a_stream(client) -> None:
    events = client.stream(CHAT, HI)
    assert events.pop() == "[DONE]"
    assert deltas_of(events) == [
        {"role": "assistant", "content": ""},
        {"content": "Hello"},
        {"content": " you"},
        {},
    ]
    reasons = [event["choices"][0]["finish_reason"] for event in events]
    assert reasons == [None, None, None, "stop"]
    assert {event["object"] for event in events} == {"chat.completion.chunk"}
    assert len({event["id"] for event in events}) == 1
    assert all("usage" not in event for event in events)


def test_usage_in_a_stream(client, engine) -> None:
    *events, last, done = client.stream(CHAT, HI | {"stream_options": {"include_usage": True}})
    assert done == "[DONE]"
    assert all(event["usage"] is None for event in events)
    assert last["choices"] == []
    assert last["usage"]["completion_tokens"] == sum(map(len, engine.windows))
    options = {"include_usage": True, "continuous_usage_stats": True}
    *events, last, _ = client.stream(CHAT, HI | {"stream_options": options})
    first = len(engine.windows[0])
    counts = [event["usage"]["completion_tokens"] for event in (*events, last)]
    assert counts == [0, first, *[sum(map(len, engine.windows))] * 3]


def test_every_window_is_an_event_though_it_shows_nothing(client, engine) -> None:
    half, other = (TOKENIZER.token_id(f"<0x{byte:02X}>") for byte in "é".encode())
    engine.windows = [[half], [other], [106]]
    contents = [delta.get("content") for delta in deltas_of(client.stream(CHAT, HI))]
    assert contents == ["", "", "é", "", None]


def test_thoughts_and_calls(client, engine) -> None:
    answer = '<|channel>thought\nHm.\n<channel|>Look.<|tool_call>call:f{s:<|"|>a"b<|"|>}<tool_call|>'
    ids = [*TOKENIZER.encode(answer), 50]
    engine.windows = [ids[:-1], ids[-1:]]
    message = client.ask("POST", CHAT, HI | {"tools": TOOLS})[1]["choices"][0]
    assert message["finish_reason"] == "tool_calls"
    assert (message["message"]["content"], message["message"]["reasoning_content"]) == ("Look.", "Hm.")
    call = message["message"]["tool_calls"][0]
    assert (call["type"], call["function"]) == ("function", {"name": "f", "arguments": '{"s":"a\\"b"}'})

    deltas = deltas_of(client.stream(CHAT, HI | {"tools": TOOLS}))
    assert deltas[1:3] == [{"reasoning": "Hm.", "reasoning_content": "Hm."}, {"content": "Look."}]
    assert deltas[3]["tool_calls"][0]["function"] == {"name": "f", "arguments": '{"s":"a\\"b"}'}
    # Token by token: id, type and name stand exactly once, and first.
    engine.windows = [[id] for id in ids]
    deltas = deltas_of(client.stream(CHAT, HI | {"tools": TOOLS}))
    first, *rest = [call for delta in deltas for call in delta.get("tool_calls", [])]
    assert set(first) == {"index", "id", "type", "function"}
    assert first["function"] == {"name": "f", "arguments": ""}
    assert all(set(call) == {"index", "function"} and set(call["function"]) == {"arguments"} for call in rest)
    assert "".join(call["function"]["arguments"] for call in [first, *rest]) == '{"s":"a\\"b"}'


def test_a_call_alone_has_no_content(client, engine) -> None:
    engine.windows = [[*TOKENIZER.encode("<|tool_call>call:f{}<tool_call|>"), 50]]
    message = client.ask("POST", CHAT, HI | {"tools": TOOLS})[1]["choices"][0]["message"]
    assert message["content"] is None
    # tool_choice "none": the prompt has no tools, and nothing is a call.
    choice = client.ask("POST", CHAT, HI | {"tools": TOOLS, "tool_choice": "none"})[1]["choices"][0]
    assert (choice["finish_reason"], choice["message"]["content"]) == ("stop", "call:f{}")
    prompts = [TOKENIZER.decode(request.prompt, skip_special=False) for request in engine.requests]
    assert "<|tool>" in prompts[0]
    assert "<|tool>" not in prompts[1]


def test_parallel_tool_calls_false_stops_the_engine_after_one(client, engine) -> None:
    calls = TOKENIZER.encode("<|tool_call>call:f{}<tool_call|>")
    engine.windows = [calls, *[[7]] * 1000]
    body = HI | {"tools": TOOLS, "parallel_tool_calls": False}
    choice = client.ask("POST", CHAT, body)[1]["choices"][0]
    assert (len(choice["message"]["tool_calls"]), choice["finish_reason"]) == (1, "tool_calls")
    assert list(engine.cancelled) == [engine.requests[0].id]


def test_a_stop_string_stops_the_engine(client, engine) -> None:
    engine.windows = [TOKENIZER.encode("1 2 3 4"), TOKENIZER.encode(" 5 6 7"), *[[7]] * 1000]
    choice = client.ask("POST", TEXT, {"prompt": "Count", "stop": "4 5"})[1]["choices"][0]
    assert choice == {"index": 0, "text": "1 2 3 ", "logprobs": None, "finish_reason": "stop"}
    assert list(engine.cancelled) == [engine.requests[0].id]


def test_plain_completions(client, engine) -> None:
    status, reply = client.ask("POST", TEXT, {"prompt": "Hi", "max_tokens": 9})
    assert (status, reply["object"]) == (200, "text_completion")
    assert reply["choices"][0]["text"] == "Hello you"
    assert engine.requests[0].prompt == tuple(TOKENIZER.encode("Hi", add_bos=True))
    assert client.ask("POST", TEXT, {"prompt": ["Hi"]})[0] == 200
    assert engine.requests[1].prompt == engine.requests[0].prompt
    assert client.ask("POST", TEXT, {"prompt": [7, 8, 9]})[0] == 200
    assert engine.requests[2].prompt == (7, 8, 9)  # ids are taken as they are
    assert client.ask("POST", TEXT, {"prompt": [[7, 8, 9]]})[0] == 200
    assert engine.requests[3].prompt == (7, 8, 9)
    *events, done = client.stream(TEXT, {"prompt": "Hi"})
    assert done == "[DONE]"
    assert [event["choices"][0]["text"] for event in events] == ["Hello", " you", ""]
    assert [event["choices"][0]["finish_reason"] for event in events] == [None, None, "stop"]


@pytest.mark.parametrize(
    "prompt", [[], ["a", 1], [1, "a"], [1, TOKENIZER.vocab_size], [-1], [[1], 2], [[]], [1, [2]], [[1], [-1]]]
)
def test_prompts_that_are_refused(client, prompt) -> None:
    assert error_of(client.ask("POST", TEXT, {"prompt": prompt}), 400)["param"] == "prompt"


def test_special_tokens_in_the_text(client, engine) -> None:
    engine.windows = [[*TOKENIZER.encode("a<|think|>b<turn|>"), 106]]
    asked = {"prompt": "Hi", "ignore_eos": True}
    assert client.ask("POST", TEXT, asked)[1]["choices"][0]["text"] == "ab"
    asked["skip_special_tokens"] = False
    assert client.ask("POST", TEXT, asked)[1]["choices"][0]["text"] == "a<|think|>b<turn|>"


def test_a_prompt_that_does_not_fit(client, engine) -> None:
    error = error_of(client.ask("POST", TEXT, {"prompt": [7] * engine.context}), 400)
    assert error["code"] == "context_length_exceeded"
    assert "200 tokens" in error["message"]
    assert f"larger --context (this model takes {LARGEST_CONTEXT})" in error["message"]
    assert engine.requests == []


def test_a_full_queue(client, engine) -> None:
    engine.queue_full = True
    for stream in (False, True):
        with client.send("POST", CHAT, HI | {"stream": stream}) as response:
            assert (response.status, response.headers["Retry-After"]) == (429, "7")
        error_of(client.ask("POST", CHAT, HI | {"stream": stream}), 429, "rate_limit_error")


def test_an_engine_that_fails_on_the_way(client, engine) -> None:
    engine.error = "the chip is gone"
    error = error_of(client.ask("POST", CHAT, HI), 503, "server_error")
    assert error["message"] == "the chip is gone"
    *events, last = client.stream(CHAT, HI)
    assert deltas_of(events)[1] == {"content": "Hello"}
    assert last == {"error": error}  # and no [DONE]


@pytest.mark.parametrize("stream", [False, True])
def test_hanging_up_cancels_at_once(client, server, engine, stream) -> None:
    engine.go.clear()
    if stream:
        with client.send("POST", CHAT, HI | {"stream": True}) as response:
            assert b"role" in response.readline()
    else:
        body = b'{"messages": [{"role": "user", "content": "Hi"}]}'
        head = f"POST {CHAT} HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"
        with socket.create_connection(("127.0.0.1", client.port)) as connection:
            connection.sendall(f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body)
            wait_until(lambda: bool(engine.requests))
    wait_until(lambda: bool(engine.cancelled))
    assert list(engine.cancelled) == [engine.requests[0].id]
    service = server[1]
    wait_until(lambda: service.metrics.ended["abort"] == 1)
    assert len(service.streams) == 0


def test_many_at_once_get_their_own(client, engine) -> None:
    engine.windows = [TOKENIZER.encode(f" {n}") for n in range(9)] + [[106]]
    expected = "".join(f" {n}" for n in range(9))
    texts: list[str] = []

    def ask() -> None:
        events = client.stream(CHAT, HI)
        texts.append("".join(delta.get("content", "") for delta in deltas_of(events)))

    threads = [threading.Thread(target=ask) for _ in range(32)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert texts == [expected] * 32
    assert len({request.id for request in engine.requests}) == 32


def test_draining_finishes_what_runs_and_refuses_what_comes(client, server, engine) -> None:
    service = server[1]
    engine.go.clear()
    replies: list[Any] = []
    running = threading.Thread(target=lambda: replies.append(client.ask("POST", CHAT, HI)))
    running.start()
    wait_until(lambda: bool(engine.requests))
    left: list[int] = []
    draining = threading.Thread(target=lambda: left.append(service.drain(60)))
    draining.start()
    wait_until(lambda: service.draining)
    assert client.ask("GET", "/ready")[1]["status"] == "draining"
    assert client.ask("GET", "/health")[0] == 200
    assert "shutting down" in error_of(client.ask("POST", CHAT, HI), 503, "server_error")["message"]
    engine.go.set()
    running.join()
    draining.join()
    assert (replies[0][0], left) == (200, [0])


def test_stopping_ends_running_streams_with_an_error(client, server, engine) -> None:
    engine.go.clear()
    events: list[Any] = []
    running = threading.Thread(target=lambda: events.extend(client.stream(CHAT, HI)))
    running.start()
    wait_until(lambda: bool(engine.requests))
    engine.stop()
    running.join()
    assert "stopped before the answer was complete" in events[-1]["error"]["message"]
