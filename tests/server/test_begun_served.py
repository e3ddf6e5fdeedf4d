"""Answers of a real `onechip serve acorn`, cut anywhere and continued, are the answers as they were."""

from __future__ import annotations

from typing import Any

import pytest

from tests.server.process import PROBLEM, TOOLS, Process
from tests.server.scripted import TOKENIZER

GREEDY = {"temperature": 0, "return_token_ids": True, "continue_final_message": True}
TWICE = "And how many would there be if there were twice as many boxes?"


def asked(served: Process, messages: list[dict[str, str]], **fields: Any) -> dict[str, Any]:
    body = {"messages": messages, **GREEDY, **fields}
    if messages[-1]["role"] != "assistant":
        del body["continue_final_message"]
    return served.ask("/v1/chat/completions", body)


def answer_of(reply: dict[str, Any]) -> tuple[str, list[int]]:
    """Text and token ids."""
    choice = reply["choices"][0]
    assert choice["finish_reason"] == "stop"
    return choice["message"]["content"], choice["token_ids"]


def cuts(text: str, ids: list[int]) -> list[int]:
    """How many tokens of an answer can be left to the client: where its text is written in those again."""
    places = range(1, len(ids) - 1)
    return [n for n in places if TOKENIZER.encode(TOKENIZER.decode(ids[:n])) == ids[:n]]


@pytest.mark.parametrize("turns", [[PROBLEM], [PROBLEM, TWICE]], ids=["one turn", "two turns"])
def test_an_answer_that_is_cut_between_tokens_goes_on_as_it_was(served: Process, turns: list[str]) -> None:
    messages: list[dict[str, str]] = []
    for turn in turns:
        messages.append({"role": "user", "content": turn})
        whole, ids = answer_of(asked(served, messages))
        messages.append({"role": "assistant", "content": whole})
    places = cuts(whole, ids)
    assert len(places) > len(ids) // 2
    prompt = asked(served, messages[:-1])["prompt_token_ids"]
    for place in places:
        begun = TOKENIZER.decode(ids[:place])
        said = [*messages[:-1], {"role": "assistant", "content": begun}]
        reply = asked(served, said)
        assert reply["prompt_token_ids"] == prompt + ids[:place]
        assert answer_of(reply) == (whole[len(begun) :], ids[place:])
        assert reply["usage"]["prompt_tokens"] == len(prompt) + place
        assert reply["usage"]["completion_tokens"] == len(ids) - place
        assert reply["usage"]["prompt_tokens_details"]["cached_tokens"] > 0


def test_anthropics_and_ollamas_paths_go_on_as_well(served: Process) -> None:
    user = {"role": "user", "content": PROBLEM}
    whole, ids = answer_of(asked(served, [user]))
    begun = TOKENIZER.decode(ids[: len(ids) // 2]).rstrip()
    said = {"messages": [user, {"role": "assistant", "content": begun}], "model": "acorn"}
    reply = served.ask("/v1/messages", {**said, "max_tokens": 300, "temperature": 0})
    assert begun + reply["content"][0]["text"] == whole
    reply = served.ask("/api/chat", {**said, "stream": False, "options": {"temperature": 0}})
    assert begun + reply["message"]["content"] == whole


def test_a_begun_answer_may_have_tools_beside_it(served: Process) -> None:
    user = {"role": "user", "content": PROBLEM}
    whole, ids = answer_of(asked(served, [user], tools=TOOLS))
    begun = TOKENIZER.decode(ids[:10])
    reply = asked(served, [user, {"role": "assistant", "content": begun}], tools=TOOLS)
    assert begun + answer_of(reply)[0] == whole
