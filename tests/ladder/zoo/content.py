"""What carries content, and what does not."""

from __future__ import annotations

from tests.ladder.zoo.case import (
    CHAT_ENDING,
    ENDING,
    MOMENTS,
    ROLE_MS,
    USUAL,
    WORDS,
    Case,
    Expected,
    after,
    answer,
    chat,
    tokens,
)
from tests.ladder.zoo.events import ROLE, delta, usage

CASES: dict[str, Case] = {
    "completions": Case(answers=[answer(*USUAL)]),
    "a role before the content": Case(answers=[answer((ROLE_MS, ROLE), *chat(), *CHAT_ENDING)]),
    "a role without a content field": Case(
        answers=[answer((ROLE_MS, delta(role="assistant")), *chat(), *CHAT_ENDING)]
    ),
    "a role with a null content": Case(
        answers=[answer((ROLE_MS, delta(role="assistant", content=None)), *chat(), *CHAT_ENDING)]
    ),
    "a role with the first token": Case(
        answers=[answer((50, delta(role="assistant", content="a ")), *chat()[1:], *CHAT_ENDING)]
    ),
    "a role in every event": Case(
        answers=[
            answer(
                *((ms, delta(role="assistant", content=w)) for ms, w in zip(MOMENTS, WORDS, strict=True)),
                *CHAT_ENDING,
            )
        ]
    ),
    "a first token without text": Case(
        answers=[answer(*tokens(("", "b ", "c ", "d ")), *ENDING)], expected=[Expected(text="b c d ")]
    ),
    "a null content that is no token": Case(
        answers=[answer((ROLE_MS, delta(content=None)), *chat(), *CHAT_ENDING)]
    ),
    "an event without choices": Case(answers=[answer((ROLE_MS, {"choices": []}), *USUAL)]),
    **{
        f"thoughts in {name}": Case(
            answers=[answer((ROLE_MS, ROLE), *chat(name=name)[:2], *chat()[2:], *CHAT_ENDING)],
            expected=[Expected(text="c d ", reasoning="a b ")],
        )
        for name in ("reasoning_content", "reasoning")
    },
    "a tool call in fragments": Case(
        answers=[
            answer(
                (ROLE_MS, ROLE),
                (
                    50,
                    delta(tool_calls=[{"index": 0, "function": {"name": "add", "arguments": ""}}]),
                ),
                (60, delta(tool_calls=[{"index": 0, "function": {"arguments": '{"a":'}}])),
                (80, delta(tool_calls=[{"index": 0, "function": {"arguments": "1}"}}])),
                *after(delta(finish="tool_calls"), usage(3)),
            )
        ],
        expected=[
            Expected(
                at=(50, 60, 80),
                tokens=(1, 1, 1),
                gaps=(10, 20),
                output=3,
                finish="tool_calls",
                text="",
                calls=[{"name": "add", "arguments": '{"a":1}'}],
            )
        ],
        asked=None,
    ),
    "two whole tool calls without an index": Case(
        answers=[
            answer(
                (50, delta(tool_calls=[{"function": {"name": "add", "arguments": {"a": 1}}}])),
                (60, delta(tool_calls=[{"function": {"name": "sub", "arguments": {}}}])),
                *after(delta(finish="tool_calls"), usage(12)),
            )
        ],
        expected=[
            Expected(
                at=(50, 60),
                tokens=(8, 4),
                source="text",
                gaps=(2.5,) * 4,
                output=12,
                finish="tool_calls",
                text="",
                calls=[{"name": "add", "arguments": '{"a": 1}'}, {"name": "sub", "arguments": "{}"}],
            )
        ],
        asked=None,
    ),
}
