"""Calls that models of other families write as JSON, however their tokens are split; the rest is text."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from onechip.models.chat_parser import CallArguments, CallClose, CallOpen, Delta, Reasoning, Text
from onechip.models.json_calls import JsonCallParser
from onechip.models.tokenizer import Tokenizer
from tests.models.small_tokenizers import LLAMA3, byte_level, save

with tempfile.TemporaryDirectory() as _folder:
    TOKENIZER = Tokenizer.load(save(byte_level([*LLAMA3, "<|python_tag|>"]), Path(_folder)), [])
TOOLS: list[Any] = [{"type": "function", "function": {"name": name}} for name in ("f", "g")]
Outcome = tuple[str, list[tuple[str, Any]]]


def deltas_of(answer: str, window: int, cut_off: bool = False) -> list[Delta]:
    ids = TOKENIZER.encode(answer)
    parser = JsonCallParser(TOKENIZER, TOOLS)
    deltas = [d for start in range(0, len(ids), window) for d in parser.push(ids[start : start + window])]
    return deltas + parser.finish(cut_off)


def outcome(deltas: Sequence[Delta]) -> Outcome:
    """The text, and name and arguments of each call; checks that a call's deltas stand in order."""
    text, calls, open_index = "", [], -1
    for delta in deltas:
        if isinstance(delta, Text):
            assert open_index < 0
            text += delta.text
        elif isinstance(delta, CallOpen):
            assert (open_index, delta.index) == (-1, len(calls))
            open_index = delta.index
            calls.append((delta.name, ""))
        else:
            assert not isinstance(delta, Reasoning)
            assert delta.index == open_index
            if isinstance(delta, CallArguments):
                calls[-1] = (calls[-1][0], calls[-1][1] + delta.fragment)
            elif isinstance(delta, CallClose):
                open_index = -1
    assert open_index < 0
    return text, [(name, json.loads(arguments)) for name, arguments in calls]


F = '{"name": "f", "parameters": {"city": "Où {[\\"}", "days": [1, 2]}}'
F_CALL = ("f", {"city": 'Où {["}', "days": [1, 2]})

MARK = '{"name": "f", "arguments": {"a": "x</tool_call>y \\" </tool_call>"}}'
MARK_CALL = ("f", {"a": 'x</tool_call>y " </tool_call>'})


@pytest.mark.parametrize("window", [1, 3, 1000])
@pytest.mark.parametrize(
    ("answer", "text", "calls"),
    [
        (F, "", [F_CALL]),
        (f"<|python_tag|>{F}\n", "", [F_CALL]),
        (f"\n\n{F}; {F}", "", [F_CALL, F_CALL]),
        (
            '[{"name": "g", "arguments": {}}, {"name": "f", "arguments": {"a": 1}}]',
            "",
            [("g", {}), ("f", {"a": 1})],
        ),
        ('{"name": "g"}', "", [("g", {})]),
        ('{"type": "function", "name": "g", "parameters": {"a": null}}', "", [("g", {"a": None})]),
        (
            '{"type": "function", "function": {"name": "g", "arguments": "{\\"a\\": 1}"}}',
            "",
            [("g", {"a": 1})],
        ),
        (f"Look:\n<tool_call>\n{F}\n</tool_call>", "Look:\n", [F_CALL]),
        (f"<tool_call>{F}</tool_call>\n<tool_call>{F}</tool_call>\n", "", [F_CALL, F_CALL]),
        (f"<tool_call>{F}</tool_call> Done.", "Done.", [F_CALL]),
        (f"<tool_call>\n{F}", "", [F_CALL]),
        ('<tool_call>{"name": "other", "arguments": {}}</tool_call>', "", [("other", {})]),
        (f"<tool_call>{MARK}</tool_call><tool_call>{F}</tool_call>", "", [MARK_CALL, F_CALL]),
        (f"<tool_call>{MARK}", "", [MARK_CALL]),
        (f'<tool_call>{{"a</tool_call><tool_call>{F}</tool_call>', '<tool_call>{"a</tool_call>', [F_CALL]),
        (f"<tool_call>{{'a</tool_call>\n<tool_call>{F}", "<tool_call>{'a</tool_call>\n", [F_CALL]),
    ],
)
def test_calls(answer: str, text: str, calls: list[Any], window: int) -> None:
    assert outcome(deltas_of(answer, window)) == (text, calls)


@pytest.mark.parametrize("window", [1, 3, 1000])
@pytest.mark.parametrize(
    "answer",
    [
        "Hello.",
        "",
        "  \n",
        '{"city": "Paris"}',
        '{"name": "Tom", "age": 3}',  # a name, but no tool's
        '{"name": "f", "parameters": [1]}',
        '{"name": "f", "parameters": {"a": NaN}}',
        '{"name": "f", "parameters": {"a": 1e999}}',
        '{"name": "f", "parameters": {"a": "\\ud800"}}',
        '{"name": "f", "parameters": {"a": 1}',
        f"{F} That was it.",
        f"[{F}, 5]",
        "[1, 2]",
        '[{"name"',
        "a <tool_call> b </tool_call> c <tool_cal",
        "<tool_call>",
        "<tool_call></tool_call>",
        '<tool_call>{"a</tool_call> b </tool_call>',
        "</tool_call>",
    ],
)
def test_what_is_no_call_is_text(answer: str, window: int) -> None:
    for cut_off in (False, True):
        assert outcome(deltas_of(answer, window, cut_off)) == (answer, [])


MARKED = st.lists(
    st.sampled_from(["<tool_call>", "</tool_call>", F, "{", '"', "a", "\n", "[", ",", "<tool_"])
)


@given(MARKED, st.integers(1, 5))
def test_windows_make_no_difference(parts: list[str], window: int) -> None:
    answer = "".join(parts)
    assert outcome(deltas_of(answer, window)) == outcome(deltas_of(answer, 10_000))


def test_text_is_held_back_only_while_it_may_be_a_call() -> None:
    parser = JsonCallParser(TOKENIZER, TOOLS)

    def push(text: str) -> str:
        return outcome(parser.push(TOKENIZER.encode(text)))[0]

    assert [push(text) for text in ('{"n', 'ames": ', "[1]", "<tool", "s>")] == [
        "",
        '{"names": ',
        "[1]",
        "",
        "<tools>",
    ]
    assert push("<tool_call>" + F) == ""
    deltas = parser.push(TOKENIZER.encode("</tool_call>"))
    assert outcome(deltas) == ("", [F_CALL])  # at once, not at the end
