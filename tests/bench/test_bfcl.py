"""What bench/bfcl.py takes for a well-formed answer."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from bench.bfcl import Answered, judge, main

from onechip.ladder.data import Question

SCHEMA = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}
TOOLS = [{"type": "function", "function": {"name": "f", "parameters": SCHEMA}}]
QUESTION = Question("q", {"messages": [], "tools": TOOLS}, "", lambda text, calls: ({}, {}))
FREE, HELD = ("auto",), ("strict", "required")


def answered(*calls: tuple[str, Any], finish: str = "tool_calls", content: str | None = None) -> Answered:
    made = [
        {
            "id": f"call_{n}",
            "type": "function",
            "function": {"name": name, "arguments": json.dumps(arguments)},
        }
        for n, (name, arguments) in enumerate(calls)
    ]
    message = {"role": "assistant", "content": content, "tool_calls": made}
    choice = {"message": message, "finish_reason": finish}
    return Answered(QUESTION, 200, {"choices": [choice], "usage": {"completion_tokens": 3}})


@pytest.mark.parametrize(
    ("answer", "wrong_in", "count"),
    [
        (answered(("f", {"n": 1})), (), "whole calls that satisfy their schema"),
        (answered(("f", {"n": "1"})), HELD, "whole calls"),
        (answered(("f", {"n": 1}), ("f", {}), finish="length"), (), "calls cut off"),
        (answered(("g", {})), HELD, "calls of no tool of the request"),
        (answered(("f", [1])), (*FREE, *HELD), "whole calls"),
        (answered(finish="stop", content="Hello."), ("required",), "ended by stop"),
        (answered(finish="length", content="Hel"), (), "ended by length"),
        (answered(finish="stop"), (*FREE, *HELD), "answers"),
        (answered(finish="error", content=""), (*FREE, *HELD), "answers"),
        (Answered(QUESTION, 500, "Internal Server Error"), (*FREE, *HELD), "answers"),
        (Answered(QUESTION, 200, {"choices": []}), (*FREE, *HELD), "answers"),
    ],
)
def test_what_must_be(answer: Answered, wrong_in: tuple[str, ...], count: str) -> None:
    for mode in (*FREE, *HELD):
        verdict = judge(answer, mode)
        assert bool(verdict.faults) == (mode in wrong_in), verdict.faults
        assert verdict.counts[count] == 1


def test_two_calls_of_one_id() -> None:
    answer = answered(("f", {"n": 1}), ("f", {"n": 2}))
    for call in answer.body["choices"][0]["message"]["tool_calls"]:
        call["id"] = "call_0"
    assert judge(answer, "auto").faults == ["two calls have the same id"]


def test_questions_that_are_not_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.argv", ["bfcl", "--data", str(tmp_path)])
    with pytest.raises(SystemExit, match=r"there is no simple_python\.jsonl in it"):
        main()
