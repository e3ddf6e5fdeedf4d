"""How long a model thinks, as each protocol says it, with a scripted engine that would think for long."""

from __future__ import annotations

from typing import Any

import pytest

from onechip.engine.guides.thoughts import ThoughtBudget
from tests.server.scripted import CHAT, HI, TOKENIZER, error_of, prompt_of

WORDS = " there are so many boxes and so many cards in all of them"
THOUGHT = "<|channel>thought\n"
LONG = WORDS * 8
THINKING = [*TOKENIZER.encode(f"{THOUGHT}{LONG}\n<channel|>So 7."), 106]
MESSAGES, RESPONSES, OLLAMA = "/v1/messages", "/v1/responses", "/api/chat"
ANTHROPIC: dict[str, Any] = {"max_tokens": 150, "messages": HI["messages"]}
OF_OLLAMA: dict[str, Any] = {"model": "acorn", "stream": False, **HI}


@pytest.fixture
def thinking(client, engine):
    """A client of a model with room for a thought of a thousand tokens."""
    engine.context, engine.windows = 5000, [THINKING]
    return client


def told_to_think(engine) -> bool:
    return "<|think|>" in prompt_of(engine.requests[-1])


def message(client, **fields: Any) -> tuple[dict[str, Any], int]:
    """The answer's message, and how many of its tokens are thoughts."""
    status, reply = client.ask("POST", CHAT, HI | fields)
    assert status == 200, reply
    details = reply["usage"].get("completion_tokens_details", {})
    return reply["choices"][0]["message"], details.get("reasoning_tokens", 0)


@pytest.mark.parametrize("field", ["thinking_token_budget", "thinking_budget_tokens"])
def test_a_number_of_tokens(thinking, engine, field) -> None:
    said, count = message(thinking, **{field: 20})
    assert count == 20
    assert said["reasoning_content"] == said["reasoning"]
    assert LONG.strip().startswith(said["reasoning"].strip())
    assert said["content"].endswith("So 7.")
    assert "<" not in said["content"]
    assert not told_to_think(engine)  # a bound says nothing of whether to think
    for none in (-1, 1000):
        assert message(thinking, **{field: none})[0]["content"] == "So 7."


def test_no_tokens_at_all(thinking) -> None:
    said, count = message(thinking, thinking_token_budget=0)
    assert (count, "reasoning" in said) == (0, False)
    assert said["content"].endswith("So 7.")


def test_streamed_thoughts_have_both_names(thinking) -> None:
    events = thinking.stream(CHAT, HI | {"thinking_token_budget": 20})
    deltas = [event["choices"][0]["delta"] for event in events[:-1]]
    thoughts, same = ("".join(d.get(name, "") for d in deltas) for name in ("reasoning", "reasoning_content"))
    assert thoughts == same
    assert LONG.strip().startswith(thoughts.strip())
    assert "".join(delta.get("content", "") for delta in deltas).endswith("So 7.")


@pytest.mark.parametrize(
    ("effort", "most"),
    [("none", None), ("minimal", 256), ("low", 1024), ("medium", 4096), ("high", None), ("max", None)],
)
def test_efforts(thinking, engine, effort, most) -> None:
    """`high` allows more than there is room for here, and what cannot be exceeded costs nothing."""
    thought = TOKENIZER.encode(THOUGHT + WORDS * 90 + "\n")
    engine.windows = [[*thought, *TOKENIZER.encode("<channel|>So 7."), 106]]
    _, count = message(thinking, reasoning_effort=effort)
    assert told_to_think(engine) == (effort != "none")
    assert bool(engine.requests[-1].guides) == (most is not None)
    assert count == min(most or 5000, len(thought) - 1)


def test_a_number_comes_before_an_effort(thinking, engine) -> None:
    assert message(thinking, reasoning_effort="minimal", thinking_token_budget=12)[1] == 12
    assert told_to_think(engine)
    message(thinking, reasoning_effort="minimal", thinking_token_budget=-1)
    assert engine.requests[-1].guides == ()


def test_two_numbers_of_tokens_are_refused_unless_they_are_the_same(thinking, engine) -> None:
    budgets = {"thinking_token_budget": 12, "thinking_budget_tokens": 12}
    assert message(thinking, **budgets)[1] == 12
    error = error_of(thinking.ask("POST", CHAT, HI | budgets | {"thinking_budget_tokens": 13}), 400)
    assert "thinking_token_budget is 12 and thinking_budget_tokens is 13" in error["message"]


def test_a_thought_that_the_prompt_has_opened_counts_from_the_start(thinking, engine) -> None:
    call = {"id": "1", "type": "function", "function": {"name": "f", "arguments": "{}"}}
    messages = [
        *HI["messages"],
        {"role": "assistant", "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "1", "content": "5"},
    ]
    engine.windows = [[*TOKENIZER.encode(f"{LONG}\n<channel|>So 7."), 106]]
    said, count = message(
        thinking, messages=messages, thinking_token_budget=15, chat_template_kwargs={"enable_thinking": True}
    )
    assert prompt_of(engine.requests[-1]).endswith(THOUGHT)
    assert count == 15
    assert LONG.strip().startswith(said["reasoning"].strip())


def test_anthropics_budget(thinking, engine) -> None:
    body = ANTHROPIC | {"thinking": {"type": "enabled", "budget_tokens": 30}}
    reply = thinking.ask("POST", MESSAGES, body)[1]
    assert [block["type"] for block in reply["content"]] == ["thinking", "text"]
    assert reply["usage"]["output_tokens_details"]["thinking_tokens"] == 30
    assert told_to_think(engine)
    adaptive = {"thinking": {"type": "adaptive"}, "output_config": {"effort": "low"}, "max_tokens": 2000}
    assert thinking.ask("POST", MESSAGES, ANTHROPIC | adaptive)[0] == 200
    assert isinstance(engine.requests[-1].guides[0], ThoughtBudget)


def test_the_effort_of_responses_and_of_ollama(thinking, engine) -> None:
    engine.windows = [[*TOKENIZER.encode(THOUGHT + WORDS * 90 + "\n<channel|>So 7."), 106]]
    reply = thinking.ask("POST", RESPONSES, {"input": "Hi", "reasoning": {"effort": "low"}})[1]
    assert reply["usage"]["output_tokens_details"]["reasoning_tokens"] <= 1024
    assert [item["type"] for item in reply["output"]] == ["reasoning", "message"]
    for think, guides in (("low", 1), ("high", 0), (True, 0), (False, 0)):
        assert thinking.ask("POST", OLLAMA, OF_OLLAMA | {"think": think})[0] == 200
        assert (told_to_think(engine), len(engine.requests[-1].guides)) == (think is not False, guides)


def test_budgets_that_are_wrong(client) -> None:
    error = error_of(client.ask("POST", CHAT, HI | {"thinking_token_budget": -2}), 400)
    assert error["param"] == "thinking_token_budget"
    error = error_of(client.ask("POST", "/v1/completions", {"prompt": "x", "thinking_token_budget": 5}), 400)
    assert error["code"] == "unsupported_parameter"
