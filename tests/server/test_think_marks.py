"""Models that write their thoughts between `<think>` and `</think>`, or marks like these, over HTTP."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

import pytest
import tokenizers

from onechip.models.tokenizer import Tokenizer
from tests.models.small_tokenizers import CHATML, byte_level
from tests.server.scripted import CHAT, HI, Client, ScriptedEngine, error_of
from tests.server.test_families import CHATML_TEMPLATE, TOOLS, prompts, serving

OPENING = CHATML_TEMPLATE.replace("assistant\n{%", "assistant\n<think>\n{%")  # as DeepSeek's distilled models
SPEAKING = "{# <think> #}" + CHATML_TEMPLATE  # thinks unasked, and cannot be told not to
ASKED = CHATML_TEMPLATE.replace(  # as SmolLM3 and Qwen3
    "assistant\n{%",
    "assistant\n{% if enable_thinking is false %}<think>\n\n</think>\n\n{% endif %}{%",
)
WITH_TOOLS = "{% if tools %}{{ tools | tojson }}{% endif %}"
THOUGHTS = "There are 3 boxes. So many words are thought. "
FORM = {"type": "json_schema", "json_schema": {"name": "n", "schema": {"const": {"n": 7}}}}


def spelled() -> tokenizers.Tokenizer:
    return byte_level(CHATML)


def tokens() -> tokenizers.Tokenizer:
    backend = byte_level(CHATML)
    backend.add_tokens(["<think>", "</think>"])
    return backend


def special() -> tokenizers.Tokenizer:
    backend = byte_level(CHATML)
    backend.add_special_tokens(["[THINK]", "[/THINK]"])
    return backend


class Served(NamedTuple):
    """A server in front of a scripted engine that speaks with `tokenizer`."""

    client: Client
    engine: ScriptedEngine
    tokenizer: Tokenizer

    def say(self, answer: str, window: int = 1000) -> None:
        """Have the engine answer so."""
        ids = [*self.tokenizer.encode(answer), self.tokenizer.token_id("<|im_end|>")]
        self.engine.windows = [ids[start : start + window] for start in range(0, len(ids), window)]

    def message(self, **fields: Any) -> tuple[dict[str, Any], int]:
        """The answer's message, and how many of its tokens are thoughts."""
        status, reply = self.client.ask("POST", CHAT, HI | fields)
        assert status == 200, reply
        details = reply["usage"].get("completion_tokens_details", {})
        return reply["choices"][0]["message"], details.get("reasoning_tokens", 0)

    def streamed(self, **fields: Any) -> tuple[str, str, str]:
        """Content and thoughts under both names, as they are streamed."""
        events = self.client.stream(CHAT, HI | fields)
        deltas = [event["choices"][0]["delta"] for event in events[:-1]]
        names = ("content", "reasoning", "reasoning_content")
        content, *thoughts = ("".join(delta.get(name) or "" for delta in deltas) for name in names)
        return content, thoughts[0], thoughts[1]


@contextmanager
def served(backend: tokenizers.Tokenizer, template: str) -> Iterator[Served]:
    with serving(backend, template) as (client, engine, tokenizer):
        engine.context = 1000
        yield Served(client, engine, tokenizer)


@pytest.mark.parametrize(
    ("backend", "template", "answer"),
    [
        (spelled, OPENING, "Hm. <b>\n</think>\n\nSo 7."),
        (tokens, OPENING, "Hm. <b>\n</think>\n\nSo 7."),
        (spelled, SPEAKING, "<think>\nHm. <b>\n</think>\n\nSo 7."),
        (tokens, ASKED, "<think>\nHm. <b>\n</think>\n\nSo 7."),
        (special, CHATML_TEMPLATE, "[THINK]Hm. <b>[/THINK]So 7."),
    ],
)
@pytest.mark.parametrize("window", [1, 4])
def test_thoughts_are_not_in_the_content(backend, template, answer, window) -> None:
    with served(backend(), template) as model:
        model.say(answer, window)
        said, count = model.message()
        assert (said["content"], said["reasoning"], said["reasoning_content"]) == (
            "So 7.",
            "Hm. <b>",
            "Hm. <b>",
        )
        written = answer.removeprefix("<think>").removeprefix("[THINK]").partition("</think>")[0]
        assert count == len(model.tokenizer.encode(written.partition("[/THINK]")[0]))
        assert model.streamed() == ("So 7.", "Hm. <b>", "Hm. <b>")
        assert model.streamed(stop=["<b>", "."])[:2] == ("So 7", "Hm. <b>")  # not looked for in thoughts


def test_a_model_that_knows_no_marks() -> None:
    """`<think>` in its answers is text, and it is neither told to think nor for how long."""
    with served(spelled(), CHATML_TEMPLATE) as model:
        model.say("<think>Hm.</think> So 7.")
        said, count = model.message()
        assert (said["content"], count, "reasoning" in said) == ("<think>Hm.</think> So 7.", 0, False)
        assert model.streamed() == ("<think>Hm.</think> So 7.", "", "")
        error = error_of(model.client.ask("POST", CHAT, HI | {"reasoning_effort": "high"}), 400)
        assert error["param"] == "reasoning_effort"


def test_other_protocols() -> None:
    with served(tokens(), OPENING) as model:
        model.say("Hm.\n</think>\n\nSo 7.")
        asks = HI | {"max_tokens": 100, "thinking": {"type": "enabled", "budget_tokens": 50}}
        reply = model.client.ask("POST", "/v1/messages", asks)[1]
        assert [block.get("thinking", block.get("text")) for block in reply["content"]] == ["Hm.", "So 7."]
        reply = model.client.ask("POST", "/v1/responses", {"input": "Hi", "reasoning": {"effort": "low"}})[1]
        assert [item["content"][0]["text"] for item in reply["output"]] == ["Hm.", "So 7."]
        reply = model.client.ask(
            "POST", "/api/chat", HI | {"model": "acorn", "think": True, "stream": False}
        )[1]
        assert (reply["message"]["thinking"], reply["message"]["content"]) == ("Hm.", "So 7.")
        shown = model.client.ask("POST", "/api/show", {"model": "acorn"})[1]
        assert "thinking" in shown["capabilities"]


@pytest.mark.parametrize(
    ("backend", "template", "start"),
    [(tokens, OPENING, ""), (tokens, SPEAKING, "<think>\n"), (special, CHATML_TEMPLATE, "[THINK]")],
)
def test_a_budget_ends_the_thoughts(backend, template, start) -> None:
    with served(backend(), template) as model:
        model.say(start + "many words " * 9 + f"\n{'[/THINK]' if backend is special else '</think>'}So 7.")
        for budget in (0, 1, 5, 20):
            said, count = model.message(thinking_token_budget=budget)
            assert count == (budget if budget or not start else 0)
            assert "many words ".startswith(said.get("reasoning", "")[:11])
            assert said["content"].strip().endswith("So 7.")
            assert "THINK" not in said["content"].upper()
        assert model.message(thinking_token_budget=900)[0]["content"] == "So 7."


def test_a_sentence_ends_the_thoughts_near_the_end_of_a_budget() -> None:
    with served(tokens(), OPENING) as model:
        model.say(THOUGHTS * 5 + "\n</think>\n\nSo 7.")
        length = len(model.tokenizer.encode(THOUGHTS))
        said, count = model.message(thinking_token_budget=length + 5)
        assert said["reasoning"] == THOUGHTS.strip()
        assert count <= length + 1


def test_a_budget_where_marks_are_no_tokens_is_refused() -> None:
    with served(spelled(), OPENING) as model:
        model.say("Hm.\n</think>\n\nSo 7.")
        error = error_of(model.client.ask("POST", CHAT, HI | {"thinking_token_budget": 5}), 400)
        assert error["param"] == "thinking_token_budget"
        assert "<think> and </think> are no tokens" in error["message"]
        assert model.message(reasoning_effort="low")[0]["content"] == "So 7."


def test_a_model_that_thinks_unasked() -> None:
    """It may be asked to think; where it is not to, its thoughts are closed, or that is refused."""
    for backend, template, start in ((tokens, OPENING, ""), (tokens, SPEAKING, "<think>")):
        with served(backend(), template) as model:
            model.say(f"{start}Hm.\n</think>\n\nSo 7.")
            assert model.message(reasoning_effort="high")[0]["reasoning"] == "Hm."
            said, count = model.message(reasoning_effort="none")
            assert (count, "reasoning" in said, said["content"][-5:]) == (0, False, "So 7.")
    with served(spelled(), OPENING) as model:
        error = error_of(model.client.ask("POST", CHAT, HI | {"reasoning_effort": "none"}), 400)
        assert error["param"] == "reasoning_effort"
        assert "</think> is no token" in error["message"]


def test_a_template_that_opens_thoughts_although_it_is_told_not_to() -> None:
    """They are closed at once, and a form waits for that."""
    with served(tokens(), "{# enable_thinking #}" + OPENING) as model:
        model.say('Hm.\n</think>{"n": 7}')
        for fields in ({"reasoning_effort": "none"}, {"chat_template_kwargs": {"enable_thinking": False}}):
            said, count = model.message(response_format=FORM, **fields)
            assert json.loads(said["content"]) == {"n": 7}
            assert (count == 0) == ("reasoning_effort" in fields)


def test_a_template_that_is_told_not_to_think() -> None:
    with served(tokens(), ASKED) as model:
        model.say("So 7.")
        said, count = model.message(reasoning_effort="none")
        assert (said["content"], "reasoning" in said, count) == ("So 7.", False, 0)
        assert prompts(model.engine, model.tokenizer)[-1].endswith("<think>\n\n</think>\n\n")
        assert model.engine.requests[-1].guides == ()
        model.say("<think>Hm.</think>" + '{"n": 7}')  # the form holds from the first token on
        said, count = model.message(reasoning_effort="none", response_format=FORM)
        assert (json.loads(said["content"]), count) == ({"n": 7}, 0)


@pytest.mark.parametrize(
    ("backend", "template", "answer"),
    [
        (tokens, OPENING, 'Hm. {"n": 1}\n</think>{"n": 7}'),
        (tokens, ASKED, '<think>Hm. {"n": 1}</think>{"n": 7}'),
        (tokens, ASKED, '{"n": 7}'),
        (special, "{# [THINK] #}" + CHATML_TEMPLATE, '[THINK]Hm. {"n": 1}[/THINK]{"n": 7}'),
    ],
)
def test_a_form_holds_behind_the_thoughts(backend, template, answer) -> None:
    with served(backend(), template) as model:
        model.say(answer)
        said, _ = model.message(response_format=FORM)
        assert json.loads(said["content"]) == {"n": 7}
        assert said.get("reasoning") == ('Hm. {"n": 1}' if "Hm." in answer else None)
        said, count = model.message(response_format=FORM, thinking_token_budget=3)
        assert (json.loads(said["content"]), count) == ({"n": 7}, 3 if "Hm." in answer else 0)


def test_a_form_where_marks_are_no_tokens() -> None:
    """It holds from the first token on, and is refused where the prompt has opened the thoughts."""
    with served(spelled(), SPEAKING) as model:
        model.say('<think>Hm.</think>{"n": 7}')
        said, count = model.message(response_format=FORM)
        assert (json.loads(said["content"]), count) == ({"n": 7}, 0)
    with served(spelled(), WITH_TOOLS + OPENING) as model:
        for fields in ({"response_format": FORM}, {"tools": TOOLS, "tool_choice": "required"}):
            error = error_of(model.client.ask("POST", CHAT, HI | fields), 400)
            assert "marks around them are no tokens" in error["message"]


@pytest.mark.parametrize(
    ("backend", "open", "close"),
    [(spelled, "<think>", "</think>"), (tokens, "<think>", "</think>"), (special, "[THINK]", "[/THINK]")],
)
@pytest.mark.parametrize("call", ['{"name": "f", "arguments": {"a": 1}}', "<tool_call>\n{}\n</tool_call>"])
def test_calls_behind_thoughts(backend, open, close, call) -> None:
    call = call.replace("{}", '{"name": "f", "arguments": {"a": 1}}')
    with served(backend(), f"{{# {open} #}}{WITH_TOOLS}{CHATML_TEMPLATE}") as model:
        model.say(f"{open}\nCall f? {call}\n{close}\n\n{call}")
        for fields in ({}, {"parallel_tool_calls": False}):
            said, count = model.message(tools=TOOLS, **fields)
            assert said["reasoning"] == f"Call f? {call}"
            assert said["content"] is None
            assert [json.loads(one["function"]["arguments"]) for one in said["tool_calls"]] == [{"a": 1}]
            assert count > 9


def test_forced_calls_behind_thoughts() -> None:
    with served(tokens(), WITH_TOOLS + OPENING) as model:
        model.say('Call f?\n</think>{"name": "f", "arguments": {}}')
        said, _ = model.message(tools=TOOLS, tool_choice="required")
        assert (said["reasoning"], said["content"]) == ("Call f?", None)
        assert [one["function"]["name"] for one in said["tool_calls"]] == ["f"]


def test_an_answer_that_ends_inside_of_its_thoughts() -> None:
    with served(tokens(), OPENING) as model:
        model.say("many words " * 9)
        status, reply = model.client.ask("POST", CHAT, HI | {"max_tokens": 8, "bad_words": ["boxes"]})
        assert status == 200
        (choice,) = reply["choices"]
        assert (choice["finish_reason"], choice["message"]["content"] or "") == ("length", "")
        assert ("many words " * 9).startswith(choice["message"]["reasoning"])
        assert reply["usage"]["completion_tokens_details"]["reasoning_tokens"] == 8


@pytest.mark.parametrize("asks", ["reasoning", "reasoning_content", "thinking"])
@pytest.mark.parametrize("field", ["reasoning", "reasoning_content"])
def test_earlier_thoughts_go_to_the_template(asks, field) -> None:
    template = CHATML_TEMPLATE.replace("{{ m.content }}", f"({{{{ m.{asks} }}}}){{{{ m.content }}}}")
    with served(tokens(), template) as model:
        model.say("So 7.")
        earlier = [*HI["messages"], {"role": "assistant", "content": "5", field: "Hm."}, *HI["messages"]]
        model.message(messages=earlier)
        assert "assistant\n(Hm.)5<|im_end|>" in prompts(model.engine, model.tokenizer)[-1]
