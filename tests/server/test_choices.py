"""Several answers to one request: n, best_of, several prompts; their seeds, failures and usage."""

from __future__ import annotations

import http.client
import json
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from onechip.engine.types import Event
from onechip.server.sampling import choice_seed
from tests.server.scripted import CHAT, HI, TOKENIZER, error_of, logprobs_of, wait_until

TEXT = "/v1/completions"
SEEDS = [choice_seed(5, place) for place in range(4)]


def say(text: str) -> list[list[int]]:
    """A window for each token of `text`, and the end."""
    return [*([id] for id in TOKENIZER.encode(text)), [106]]


@pytest.fixture
def texts(engine) -> list[str]:
    """What the choices of seed 5 say, the first one first."""
    texts = ["one", "two of them", "three, three", "four!"]
    engine.of_seed = {seed: say(text) for seed, text in zip(SEEDS, texts, strict=True)}
    return texts


def test_seeds_of_choices_are_different_and_the_first_is_the_request_s_own(client, engine) -> None:
    assert len({choice_seed(seed, place) for seed in (0, 1, 2**32 - 1) for place in range(128)}) == 3 * 128
    client.ask("POST", CHAT, HI | {"seed": 5})
    client.ask("POST", CHAT, HI | {"seed": 5, "n": 4})
    assert [request.sampling.seed for request in engine.requests] == [5, *SEEDS]
    assert SEEDS[0] == 5
    assert len({request.id for request in engine.requests}) == 5


def test_n_choices_whole(client, engine, texts) -> None:
    reply = client.ask("POST", CHAT, HI | {"seed": 5, "n": 4, "logprobs": True})[1]
    assert [choice["index"] for choice in reply["choices"]] == [0, 1, 2, 3]
    assert [choice["message"]["content"] for choice in reply["choices"]] == texts
    counts = [len(choice["logprobs"]["content"]) for choice in reply["choices"]]
    assert counts == [len(TOKENIZER.encode(text)) + 1 for text in texts]
    assert reply["usage"]["completion_tokens"] == sum(counts)
    assert reply["usage"]["prompt_tokens"] == len(engine.requests[0].prompt)  # once
    assert reply["usage"]["prompt_tokens_details"] == {"cached_tokens": 3}
    assert {request.prompt for request in engine.requests} == {engine.requests[0].prompt}


@pytest.mark.parametrize("path", [CHAT, TEXT])
def test_n_choices_streamed_come_interleaved(client, engine, texts, path) -> None:
    start = HI if path == CHAT else {"prompt": "Hi"}
    options = {"include_usage": True, "continuous_usage_stats": True}
    *events, last, done = client.stream(path, start | {"seed": 5, "n": 4, "stream_options": options})
    assert (done, last["choices"]) == ("[DONE]", [])
    choices = [event["choices"][0] for event in events]
    streamed, reasons = [""] * 4, [[] for _ in range(4)]
    for choice in choices:
        text = choice["delta"].get("content", "") if path == CHAT else choice["text"]
        streamed[choice["index"]] += text
        reasons[choice["index"]].append(choice["finish_reason"])
    assert streamed == texts
    assert all(told[-1] == "stop" and set(told[:-1]) == {None} for told in reasons)
    # They take turns: the second begins before the first has ended.
    order = [choice["index"] for choice in choices if choice["finish_reason"] is None]
    assert order != sorted(order)
    assert last["usage"]["completion_tokens"] == sum(len(TOKENIZER.encode(text)) + 1 for text in texts)
    counts = [event["usage"]["completion_tokens"] for event in events]
    assert counts == sorted(counts)


def test_several_prompts_are_numbered_one_after_the_other(client, engine, texts) -> None:
    prompts = ["Hi", "Oh", "Hm"]
    reply = client.ask("POST", TEXT, {"prompt": prompts, "seed": 5, "n": 2})[1]
    assert [choice["index"] for choice in reply["choices"]] == list(range(6))
    assert [choice["text"] for choice in reply["choices"]] == texts[:2] * 3
    ids = [tuple(TOKENIZER.encode(prompt, add_bos=True)) for prompt in prompts]
    assert [request.prompt for request in engine.requests] == [one for one in ids for _ in range(2)]
    # Each prompt is answered as if it were asked alone.
    assert [request.sampling.seed for request in engine.requests] == SEEDS[:2] * 3
    assert reply["usage"]["prompt_tokens"] == sum(map(len, ids))
    reply = client.ask("POST", TEXT, {"prompt": [[7, 8], "Hi", [9]]})[1]
    assert [request.prompt for request in engine.requests[-3:]] == [(7, 8), ids[0], (9,)]
    *events, _ = client.stream(TEXT, {"prompt": ["Hi", "Oh"], "seed": 5, "n": 2})
    streamed = [""] * 4
    for event in events:
        streamed[event["choices"][0]["index"]] += event["choices"][0]["text"]
    assert streamed == texts[:2] * 2


def mean(text: str) -> float:
    told = [logprobs_of(id, 0).chosen for id in (*TOKENIZER.encode(text), 106)]
    return sum(told) / len(told)


def test_best_of_shows_the_likeliest_by_their_mean(client, engine, texts) -> None:
    order = sorted(texts, key=mean, reverse=True)
    assert len(set(map(mean, texts))) == 4
    assert order[:2] != texts[:2]
    body = {"prompt": ["Hi", "Oh"], "seed": 5, "n": 2, "best_of": 4}
    reply = client.ask("POST", TEXT, body)[1]
    assert [(choice["index"], choice["text"]) for choice in reply["choices"]] == list(
        enumerate(order[:2] * 2)
    )
    assert all(choice["logprobs"] is None for choice in reply["choices"])
    assert {request.sampling.logprobs for request in engine.requests} == {0}
    assert reply["usage"]["completion_tokens"] == 2 * sum(len(TOKENIZER.encode(text)) + 1 for text in texts)
    # As many as are shown: nothing to choose, and nothing to know.
    assert client.ask("POST", TEXT, body | {"best_of": 2})[1]["choices"][0]["text"] == texts[0]
    assert engine.requests[-1].sampling.logprobs is None


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"n": 2, "best_of": 1}, "best_of"),
        ({"n": 2, "best_of": 3, "stream": True}, "best_of"),
        ({"n": 129}, "n"),
        ({"prompt": ["a"] * 1025}, "prompt"),
        ({"prompt": ["a"] * 9, "n": 128}, "prompt"),
        ({"prompt": ["ab"] * 513, "prompt_logprobs": 0}, "prompt"),
        ({"prompt": []}, "prompt"),
        ({"prompt": [[7], []]}, "prompt"),
        ({"use_beam_search": True}, "use_beam_search"),
        ({"length_penalty": 0.5}, "length_penalty"),
        ({"priority": 1}, "priority"),
    ],
)
def test_refusals_name_the_field(client, engine, fields, param) -> None:
    assert error_of(client.ask("POST", TEXT, {"prompt": "a"} | fields), 400)["param"] == param
    assert engine.requests == []


def test_chat_has_no_best_of(client) -> None:
    assert error_of(client.ask("POST", CHAT, HI | {"best_of": 2}), 400)["param"] == "best_of"


@pytest.mark.parametrize("path", [CHAT, TEXT])
def test_one_that_fails_does_not_lose_the_others(client, engine, texts, path) -> None:
    engine.error, engine.failing = "the chip has a cold", {SEEDS[1]}
    start = HI if path == CHAT else {"prompt": "Hi"}
    status, reply = client.ask("POST", path, start | {"seed": 5, "n": 3})
    assert status == 200
    found = [choice["message"]["content"] if path == CHAT else choice["text"] for choice in reply["choices"]]
    assert found == texts[:3]  # what came before is there
    assert [choice["finish_reason"] for choice in reply["choices"]] == ["stop", "error", "stop"]
    assert [choice.get("error") for choice in reply["choices"]] == [
        None,
        {"message": "the chip has a cold", "type": "server_error"},
        None,
    ]
    *events, done = client.stream(path, start | {"seed": 5, "n": 3})
    assert done == "[DONE]"
    ends = {
        event["choices"][0]["index"]: event["choices"][0]
        for event in events
        if event["choices"][0]["finish_reason"]
    }
    assert [ends[index]["finish_reason"] for index in range(3)] == ["stop", "error", "stop"]
    assert ends[1]["error"]["message"] == "the chip has a cold"


@pytest.mark.parametrize("logprobs", [{}, {"logprobs": 0}])
def test_what_came_right_before_a_failure_is_not_lost(client, engine, monkeypatch, logprobs) -> None:
    late, event_of = TOKENIZER.encode(" and more"), engine._next
    told = tuple(logprobs_of(id, 0) for id in late) if logprobs else ()

    def joined(id: str) -> Event:
        """As a mailbox hands them out to a client that reads slowly."""
        event = event_of(id)
        return replace(event, tokens=tuple(late), logprobs=told) if event.finish == "error" else event

    monkeypatch.setattr(engine, "_next", joined)
    engine.error, engine.failing = "the chip has a cold", {SEEDS[1]}
    body = {"prompt": "Hi", "seed": 5, "n": 2} | logprobs
    choice = client.ask("POST", TEXT, body)[1]["choices"][1]
    assert choice["text"].endswith(" and more")
    assert choice["finish_reason"] == "error"
    choices = [event["choices"][0] for event in client.stream(TEXT, body)[:-1]]
    pieces = [one["text"] for one in choices if one["index"] == 1]
    assert "".join(pieces) == choice["text"]


def test_if_all_fail_it_is_an_error(client, engine) -> None:
    engine.error = "the chip is gone"
    error = error_of(client.ask("POST", CHAT, HI | {"n": 2}), 503, "server_error")
    assert error["message"] == "the chip is gone"
    *_, last = client.stream(CHAT, HI | {"n": 2})
    assert last == {"error": error}  # and no [DONE]


def test_the_best_is_none_that_failed(client, engine, texts) -> None:
    order = sorted(texts, key=mean, reverse=True)
    engine.error, engine.failing = "no", {SEEDS[texts.index(order[0])]}
    reply = client.ask("POST", TEXT, {"prompt": "Hi", "seed": 5, "n": 3, "best_of": 4})[1]
    assert [choice["text"] for choice in reply["choices"]] == order[1:]


def test_all_are_taken_or_none(client, server, engine) -> None:
    engine.room = 2
    engine.go.clear()
    error_of(client.ask("POST", CHAT, HI | {"n": 3}), 429, "rate_limit_error")
    assert sorted(engine.cancelled) == sorted(request.id for request in engine.requests)
    assert len(engine.cancelled) == 2
    assert len(server[1].streams) == 0


@pytest.mark.parametrize("stream", [False, True])
def test_hanging_up_frees_all(client, server, engine, stream) -> None:
    engine.windows = [[7]] * 100_000
    body = {"prompt": [[5, 6], [7, 8]], "n": 2} | ({"stream": True} if stream else {"prompt_logprobs": 1})
    if stream:
        with client.send("POST", TEXT, body) as response:
            assert b"choices" in response.readline()
    else:
        ask_and_leave(client, body, lambda: (len(engine.requests), engine.stats().running) == (6, 4))
    wait_until(lambda: not engine.stats().running)
    # The prompts' requests are over when they are scored; all others have to be cancelled.
    assert {request.id for request in engine.requests if "prompt" not in request.id} == set(engine.cancelled)
    service = server[1]
    wait_until(lambda: service.metrics.ended["abort"] == 4)
    assert len(service.streams) == 0


def ask_and_leave(client: Any, body: dict[str, Any], when: Callable[[], bool]) -> None:
    """Ask, and hang up, when it is time, before the answer has come."""
    connection = http.client.HTTPConnection("127.0.0.1", client.port)
    connection.request("POST", TEXT, json.dumps(body), {"Content-Type": "application/json"})
    wait_until(when)
    connection.close()


def test_a_choice_that_ends_early_frees_its_slot_at_once(client, engine) -> None:
    engine.of_seed = {SEEDS[0]: [TOKENIZER.encode("stop here"), *[[7]] * 1000], SEEDS[1]: say("two of them")}
    reply = client.ask("POST", CHAT, HI | {"seed": 5, "n": 2, "stop": "here"})[1]
    assert [choice["message"]["content"] for choice in reply["choices"]] == ["stop ", "two of them"]
    assert list(engine.cancelled) == [engine.requests[0].id]
