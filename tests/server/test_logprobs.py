"""Log-probabilities over HTTP, in every protocol's form, with a scripted engine that says what they are."""

from __future__ import annotations

import math
import re
from itertools import chain
from typing import Any

import pytest

from onechip.server.metrics import RequestTimer
from tests.server.scripted import CHAT, HI, THINKING_CALL, TOKENIZER, error_of, logprobs_of

TEXT = "/v1/completions"
TOOLS = [{"type": "function", "function": {"name": "f", "parameters": {"type": "object"}}}]
HALVES = [TOKENIZER.token_id(f"<0x{byte:02X}>") for byte in "é".encode()]


def name(id: int) -> str:
    return TOKENIZER.token_bytes(id).decode("utf-8", "backslashreplace")


def told(id: int, most: int) -> dict[str, Any]:
    """What chat says of token `id`, written out from what the engine says."""
    said = logprobs_of(id, most)
    likely = [
        {"token": name(other), "logprob": logprob, "bytes": list(TOKENIZER.token_bytes(other))}
        for other, logprob in said.top
    ]
    chosen = {"token": name(id), "logprob": said.chosen, "bytes": list(TOKENIZER.token_bytes(id))}
    return chosen | {"top_logprobs": likely}


def output(engine: Any) -> list[int]:
    return [id for window in engine.windows for id in window]


def test_tokens_that_came_together_are_timed_together(client, engine, monkeypatch) -> None:
    counts: list[int] = []
    monkeypatch.setattr(RequestTimer, "on_tokens", lambda timer, count: counts.append(count))
    engine.windows = [THINKING_CALL[:3], THINKING_CALL[3:]]
    for asked in ({}, {"logprobs": True}):
        counts.clear()
        client.ask("POST", CHAT, HI | asked)
        assert counts == [len(window) for window in engine.windows]


def test_chat_tells_of_every_token_that_usage_counts(client, engine) -> None:
    engine.windows = [THINKING_CALL[:3], THINKING_CALL[3:]]
    reply = client.ask("POST", CHAT, HI | {"tools": TOOLS, "logprobs": True, "top_logprobs": 3})[1]
    choice = reply["choices"][0]
    assert choice["logprobs"] == {"content": [told(id, 3) for id in THINKING_CALL], "refusal": None}
    assert reply["usage"]["completion_tokens"] == len(THINKING_CALL)
    assert (engine.requests[0].sampling.logprobs, choice["finish_reason"]) == (3, "tool_calls")
    reply = client.ask("POST", CHAT, HI | {"logprobs": True})[1]
    assert all(one["top_logprobs"] == [] for one in reply["choices"][0]["logprobs"]["content"])
    reply = client.ask("POST", CHAT, HI | {"logprobs": False, "top_logprobs": 0})[1]
    assert reply["choices"][0]["logprobs"] is None
    assert engine.requests[-1].sampling.logprobs is None


@pytest.mark.parametrize("size", [1, 2, 100])
def test_a_stream_tells_of_every_token_once_and_where_it_comes(client, engine, size) -> None:
    engine.windows = [THINKING_CALL[at : at + size] for at in range(0, len(THINKING_CALL), size)]
    *events, done = client.stream(CHAT, HI | {"tools": TOOLS, "logprobs": True, "top_logprobs": 2})
    assert done == "[DONE]"
    logprobs = [event["choices"][0]["logprobs"] for event in events]
    assert (logprobs[0], logprobs[-1]) == (None, None)  # the role, and the reason
    # Whatever the windows: each event has the token that it is about.
    assert [part["content"] for part in logprobs if part] == [[told(id, 2)] for id in THINKING_CALL]


def test_a_token_is_named_by_its_text_and_its_bytes(client, engine) -> None:
    blank = TOKENIZER.encode(" you")
    engine.windows = [[*HALVES, *blank, 106]]
    content = client.ask("POST", CHAT, HI | {"logprobs": True})[1]["choices"][0]["logprobs"]["content"]
    assert [(one["token"], bytes(one["bytes"])) for one in content] == [
        ("\\xc3", b"\xc3"),
        ("\\xa9", b"\xa9"),
        *[(name(id), TOKENIZER.token_bytes(id)) for id in blank],
        ("<turn|>", b"<turn|>"),
    ]
    assert name(blank[0]).startswith(" ")
    body = HI | {"logprobs": True, "top_logprobs": 1, "return_tokens_as_token_ids": True}
    content = client.ask("POST", CHAT, body)[1]["choices"][0]["logprobs"]["content"]
    assert [one["token"] for one in content] == [f"token_id:{id}" for id in output(engine)]
    assert content[0]["top_logprobs"][0]["token"] == f"token_id:{HALVES[0]}"
    assert content[0]["bytes"] == [0xC3]


def test_tokens_behind_a_stop_string_are_not_told_of(client, engine) -> None:
    ids = TOKENIZER.encode("1 2 3 4 5 6 7")
    engine.windows = [ids, *[[7]] * 1000]
    body = {"prompt": "Count", "stop": "4 5", "logprobs": 0}
    reply = client.ask("POST", TEXT, body)[1]
    choice = reply["choices"][0]
    assert choice["text"] == "1 2 3 "
    count = reply["usage"]["completion_tokens"]
    assert choice["logprobs"]["tokens"] == [name(id) for id in ids[:count]]
    assert TOKENIZER.decode(ids[:count]).endswith("5")
    shown = client.ask("POST", TEXT, body | {"include_stop_str_in_output": True})[1]["choices"][0]
    assert (shown["text"], shown["finish_reason"]) == ("1 2 3 4 5", "stop")
    *events, _ = client.stream(TEXT, body | {"include_stop_str_in_output": True})
    assert "".join(event["choices"][0]["text"] for event in events) == "1 2 3 4 5"
    tokens = [
        one for event in events for one in (event["choices"][0]["logprobs"] or {"tokens": []})["tokens"]
    ]
    assert tokens == choice["logprobs"]["tokens"]


def test_the_stop_token_is_shown_if_that_is_asked_for(client, engine) -> None:
    stop = TOKENIZER.encode("!")
    engine.windows = [[*TOKENIZER.encode("Hello"), *stop]]
    body = {"prompt": "a", "stop_token_ids": stop}
    assert client.ask("POST", TEXT, body)[1]["choices"][0]["text"] == "Hello"
    body["include_stop_str_in_output"] = True
    assert client.ask("POST", TEXT, body)[1]["choices"][0]["text"] == "Hello!"


def test_the_older_form(client, engine) -> None:
    engine.windows = [[*TOKENIZER.encode("Hello"), *HALVES, *TOKENIZER.encode(" you"), 106]]
    choice = client.ask("POST", TEXT, {"prompt": "a", "logprobs": 2})[1]["choices"][0]
    ids, logprobs = output(engine), choice["logprobs"]
    assert choice["text"] == "Helloé you"
    assert logprobs["tokens"] == [name(id) for id in ids]
    assert logprobs["token_logprobs"] == [logprobs_of(id, 0).chosen for id in ids]
    for id, top in zip(ids, logprobs["top_logprobs"], strict=True):
        said = dict(reversed([(name(other), logprob) for other, logprob in logprobs_of(id, 2).top]))
        assert top == said | {name(id): logprobs_of(id, 2).chosen}
    ends = [len(TOKENIZER.decode(ids[:count]).removesuffix("\ufffd")) for count in range(len(ids))]
    assert logprobs["text_offset"] == ends
    # No likeliest ones: still the token itself.
    choice = client.ask("POST", TEXT, {"prompt": "a", "logprobs": 0})[1]["choices"][0]
    assert [set(top) for top in choice["logprobs"]["top_logprobs"]] == [{name(id)} for id in ids]
    *events, _ = client.stream(TEXT, {"prompt": "a", "logprobs": 2})
    parts = [event["choices"][0]["logprobs"] for event in events]
    assert {
        field: [*chain.from_iterable(part[field] for part in parts if part)] for field in logprobs
    } == logprobs


@pytest.mark.parametrize("prompt", ["Hi, all <|think|>", [5, 9, 105, HALVES[0], HALVES[1], 7]])
def test_echo_with_logprobs(client, engine, prompt) -> None:
    body = {"prompt": prompt, "echo": True, "logprobs": 1, "max_tokens": 9}
    reply = client.ask("POST", TEXT, body)[1]
    choice, own = reply["choices"][0], output(engine)
    text = isinstance(prompt, str)
    ids = TOKENIZER.encode(prompt, add_bos=True) if text else prompt
    shown = prompt if text else TOKENIZER.decode(ids)
    assert choice["text"] == shown + "Hello you"
    logprobs = choice["logprobs"]
    assert logprobs["tokens"] == [name(id) for id in (*ids, *own)]
    assert logprobs["token_logprobs"] == [None, *(logprobs_of(id, 0).chosen for id in (*ids[1:], *own))]
    assert logprobs["top_logprobs"][0] is None
    assert logprobs["top_logprobs"][1] == {name(ids[1]): logprobs_of(ids[1], 0).chosen}
    for id, place in zip((*ids, *own), logprobs["text_offset"], strict=True):
        if id not in TOKENIZER.special_ids and id not in HALVES:
            assert choice["text"][place:].startswith(name(id))
    assert logprobs["text_offset"] == sorted(logprobs["text_offset"])
    assert (reply["usage"]["prompt_tokens"], reply["usage"]["completion_tokens"]) == (len(ids), len(own))
    # The prompt was scored by itself: nothing of what shapes the answer shapes it.
    answer, scored = engine.requests
    assert answer.prompt == scored.prompt == tuple(ids)
    assert (answer.scored, scored.scored, scored.guides) == (False, True, ())


def test_scored_prompts_are_no_answers_to_the_metrics(client) -> None:
    client.ask("POST", TEXT, {"prompt": [[5, 6], [7, 8, 9]], "echo": True, "logprobs": 0, "n": 2})
    with client.send("GET", "/metrics") as response:
        lines = response.read().decode().splitlines()
    counts = [line.split()[-1] for line in lines if re.match(r"vllm:(request_|time_to_)\w+_count", line)]
    assert counts == ["4.0"] * 3  # tokens of prompts and of answers, and times to the first token
    stopped = next(
        line for line in lines if "vllm:request_success" in line and 'finished_reason="stop"' in line
    )
    assert stopped.endswith(" 4.0")


def test_what_lm_evaluation_harness_sends(client, engine) -> None:
    prompts = [TOKENIZER.encode("1 2 3"), TOKENIZER.encode("a b"), [7]]
    body = {"prompt": prompts, "echo": True, "logprobs": 1, "max_tokens": 0, "temperature": 0, "seed": 1234}
    reply = client.ask("POST", TEXT, body)[1]
    for index, ids in enumerate(prompts):
        choice = reply["choices"][index]
        assert (choice["index"], choice["text"], choice["finish_reason"]) == (
            index,
            TOKENIZER.decode(ids),
            "length",
        )
        assert choice["logprobs"]["token_logprobs"] == [None, *(logprobs_of(id, 0).chosen for id in ids[1:])]
    assert reply["usage"]["completion_tokens"] == 0
    assert reply["usage"]["prompt_tokens"] == sum(map(len, prompts))
    assert len(engine.requests) == 2  # of a single token nothing is to be known
    alone = client.ask("POST", TEXT, {"prompt": "Hi", "echo": True, "max_tokens": 0, "n": 2})[1]
    assert [choice["text"] for choice in alone["choices"]] == ["Hi", "Hi"]
    assert len(engine.requests) == 2


def test_echo_alone_also_in_a_stream(client, engine) -> None:
    body = {"prompt": ["Hi", "Oh"], "echo": True}
    texts = [choice["text"] for choice in client.ask("POST", TEXT, body)[1]["choices"]]
    assert texts == ["HiHello you", "OhHello you"]
    *events, _ = client.stream(TEXT, body)
    streamed = ["", ""]
    for event in events:
        streamed[event["choices"][0]["index"]] += event["choices"][0]["text"]
    assert streamed == texts


def test_prompt_logprobs_in_vllms_form(client, engine) -> None:
    reply = client.ask("POST", CHAT, HI | {"prompt_logprobs": 2, "n": 2})[1]
    prompt = engine.requests[0].prompt
    found = reply["prompt_logprobs"]
    assert (found[0], len(found), len(engine.requests)) == (None, len(prompt), 3)
    for id, place in zip(prompt[1:], found[1:], strict=True):
        assert list(place) == [str(id), str(id + 1)]
        assert place[str(id)] == {"logprob": logprobs_of(id, 0).chosen, "rank": 1, "decoded_token": name(id)}
        assert place[str(id + 1)]["logprob"] == pytest.approx(place[str(id)]["logprob"] - math.log(2))
    assert reply["usage"]["prompt_tokens"] == len(prompt)
    # None of the likeliest: the token itself.
    reply = client.ask("POST", TEXT, {"prompt": [5, 6], "prompt_logprobs": 0})[1]
    expected = {"logprob": logprobs_of(6, 0).chosen, "rank": 1, "decoded_token": name(6)}
    assert reply["choices"][0]["prompt_logprobs"] == [None, {"6": expected}]
    # Beside echo, each has its own number of likeliest tokens.
    body = {"prompt": [5, 6], "prompt_logprobs": 3, "echo": True, "logprobs": 1}
    choice = client.ask("POST", TEXT, body)[1]["choices"][0]
    assert [len(choice["prompt_logprobs"][1]), len(choice["logprobs"]["top_logprobs"][1])] == [3, 1]


def test_a_prompt_that_cannot_be_scored(client, engine) -> None:
    engine.error, engine.failing = "the chip is gone", {0}  # of the request that scores; others have a seed
    body = {"prompt": [5, 6], "prompt_logprobs": 1, "seed": 9}
    engine.windows = [[7], [7], [106]]
    assert client.ask("POST", TEXT, body | {"prompt": [5] * 9})[0] == 503


def test_token_ids(client, engine) -> None:
    ids = output(engine)
    reply = client.ask("POST", CHAT, HI | {"return_token_ids": True})[1]
    assert (reply["prompt_token_ids"], reply["choices"][0]["token_ids"]) == (
        list(engine.requests[0].prompt),
        ids,
    )
    *events, _ = client.stream(CHAT, HI | {"return_token_ids": True})
    assert [event["choices"][0].get("token_ids", []) for event in events] == [[], *engine.windows, []]
    assert [event.get("prompt_token_ids") for event in events] == [
        reply["prompt_token_ids"],
        None,
        None,
        None,
    ]
    choice = client.ask("POST", TEXT, {"prompt": [7, 8], "return_token_ids": True})[1]["choices"][0]
    assert (choice["prompt_token_ids"], choice["token_ids"]) == ([7, 8], ids)
    *events, _ = client.stream(TEXT, {"prompt": [7, 8], "return_token_ids": True})
    assert events[0]["choices"][0]["prompt_token_ids"] == [7, 8]
    assert [*chain.from_iterable(event["choices"][0].get("token_ids", []) for event in events)] == ids
    assert "token_ids" not in client.ask("POST", CHAT, HI)[1]["choices"][0]


@pytest.mark.parametrize(
    ("path", "fields", "param"),
    [
        (CHAT, {"top_logprobs": 2}, "top_logprobs"),
        (CHAT, {"logprobs": True, "top_logprobs": 21}, "top_logprobs"),
        (CHAT, {"logprobs": 2}, "logprobs"),
        (CHAT, {"echo": True}, "echo"),
        (CHAT, {"prompt_logprobs": 1, "stream": True}, "prompt_logprobs"),
        (TEXT, {"logprobs": True}, "logprobs"),
        (TEXT, {"logprobs": 21}, "logprobs"),
        (TEXT, {"prompt_logprobs": 0, "stream": True}, "prompt_logprobs"),
        (TEXT, {"echo": True, "logprobs": 1, "stream": True}, "echo"),
        (TEXT, {"echo": True, "max_tokens": 0, "stream": True}, "max_tokens"),
        (TEXT, {"max_tokens": 0}, "max_tokens"),
        (TEXT, {"suffix": "b"}, "suffix"),
    ],
)
def test_what_does_not_go_together_is_refused_by_name(client, engine, path, fields, param) -> None:
    start = HI if path == CHAT else {"prompt": "a"}
    assert error_of(client.ask("POST", path, start | fields), 400)["param"] == param
    assert engine.requests == []


@pytest.mark.parametrize("size", [1, 3])
def test_responses_tell_of_the_tokens_of_each_text(client, engine, size) -> None:
    word, rest = TOKENIZER.encode("Hello"), [*HALVES, *TOKENIZER.encode(" you")]
    thought = TOKENIZER.encode("<|channel>thought\nHm.\n<channel|>")
    parts = [thought, word, rest]
    engine.windows = [part[at : at + size] for part in parts for at in range(0, len(part), size)] + [[106]]
    body = {"input": "Hi", "include": ["message.output_text.logprobs"], "top_logprobs": 2}
    reply = client.ask("POST", "/v1/responses", body)[1]
    expected = [told(id, 2) for id in (*word, *rest)]
    assert reply["top_logprobs"] == 2
    message = next(item for item in reply["output"] if item["type"] == "message")
    assert message["content"][0]["logprobs"] == expected
    events = client.events("/v1/responses", body)
    deltas = [event for event in events if event["type"] == "response.output_text.delta"]
    assert [*chain.from_iterable(event["logprobs"] for event in deltas)] == expected
    [done] = [event for event in events if event["type"] == "response.output_text.done"]
    assert done["logprobs"] == expected
    message = next(item for item in events[-1]["response"]["output"] if item["type"] == "message")
    assert message["content"][0]["logprobs"] == expected
    plain = client.ask("POST", "/v1/responses", {"input": "Hi"})[1]
    assert plain["output"][-1]["content"][0]["logprobs"] == []


def test_ollama_tells_of_every_token_once(client, engine) -> None:
    engine.windows = [[id] for id in THINKING_CALL]
    body = {"model": "acorn", "messages": [{"role": "user", "content": "Hi"}], "tools": TOOLS}
    expected = [told(id, 2) for id in THINKING_CALL]
    lines = client.lines("/api/chat", body | {"logprobs": True, "top_logprobs": 2})
    assert [*chain.from_iterable(line.get("logprobs", []) for line in lines)] == expected
    reply = client.ask("POST", "/api/chat", body | {"logprobs": True, "top_logprobs": 2, "stream": False})[1]
    assert reply["logprobs"] == expected
    assert "logprobs" not in client.ask("POST", "/api/chat", body | {"stream": False})[1]
    asked = {"model": "acorn", "prompt": "Hi", "raw": True, "logprobs": True, "stream": False}
    assert len(client.ask("POST", "/api/generate", asked)[1]["logprobs"]) == len(THINKING_CALL)
