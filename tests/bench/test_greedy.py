"""The table of greedy agreement, from made records."""

from __future__ import annotations

from typing import Any

import pytest
from bench.greedy import Judge, Parting, Row, compare, page

from onechip.ladder.records import RequestRecord


def record(question: str, text: str, calls: list[dict[str, str]] | None = None) -> RequestRecord:
    extra: dict[str, Any] = {"question": question}
    if calls is not None:
        extra["tool_calls"] = calls
    return RequestRecord(0, "", text=text, finish="stop", extra=extra)


def call(arguments: str) -> list[dict[str, str]]:
    return [{"name": "place_order", "arguments": arguments}]


def test_answers_are_compared_question_by_question() -> None:
    ours = {"a": record("a", "7"), "b": record("b", "8"), "c": record("c", "9")}
    theirs = {"a": record("a", "7"), "b": record("b", "8 "), "z": record("z", "9")}
    assert compare(ours, theirs) == (2, ["b"], 0)


def test_a_call_counts_by_its_values() -> None:
    ours = {"a": record("a", "", call('{"count": 8, "item": "rice"}'))}
    assert compare(ours, {"a": record("a", "", call('{"item":"rice","count":8}'))}) == (1, [], 0)
    assert compare(ours, {"a": record("a", "", call('{"item":"rice","count":"8"}'))}) == (1, ["a"], 0)
    assert compare(ours, {"a": record("a", "", call('{"item"'))}) == (1, ["a"], 0)


def test_a_call_that_a_server_left_as_text_is_the_same_answer() -> None:
    ours = {"a": record("a", "", call('{"count": 8, "item": "rice", "to": ["x", "y"]}'))}
    assert compare(ours, {"a": record("a", "call:place_order{count:8,item:rice,to:[x,y]}")}) == (1, [], 1)
    assert compare(ours, {"a": record("a", "call:place_order{count:9,item:rice,to:[x,y]}")}) == (1, ["a"], 0)


@pytest.fixture(scope="module")
def judge() -> Judge:
    return Judge("acorn")


def test_the_gap_is_that_of_the_two_tokens(judge: Judge) -> None:
    """acorn's own answer, and one with another first token: the gap is positive, and its mirror negative."""
    right = "Oscar earns 18 * 8 = 80 + 64 = 144 dollars.\n"
    ours, theirs = record("acorn_problem_0", right), record("acorn_problem_0", "In" + right)
    part = judge.part("other", ours, theirs)
    assert (part.position, part.theirs) == (0, "In")
    assert part.gap is not None
    assert part.gap > 1
    mirror = judge.part("other", theirs, ours)
    assert mirror.gap == pytest.approx(-part.gap)


def test_an_answer_that_goes_on_parts_at_the_end_of_the_other(judge: Judge) -> None:
    ours, theirs = record("acorn_problem_0", "Oscar earns"), record("acorn_problem_0", "Oscar earns 18")
    part = judge.part("other", ours, theirs)
    assert part.ours == "<turn|>"
    assert part.gap is not None
    assert part.gap < 0
    assert part.margin is not None
    assert part.margin > 0


def test_calls_that_differ_are_shown_whole(judge: Judge) -> None:
    ours, theirs = record("acorn_0", "", call('{"count": 8}')), record("acorn_0", "no")
    part = judge.part("other", ours, theirs)
    assert (part.ours, part.theirs, part.gap) == ('place_order({"count": 8})', "no", None)


def test_the_page_has_a_line_for_each_row_and_parting() -> None:
    rows = [Row("x f32", "acorn-problems", 100, 99)]
    text = page(rows, [Parting("q7", "x f32", 4, "▁8", "▁9", 0.01234, 5.6)], "onechip f32", {"x f32": "1.2"})
    assert "| x f32 | 1.2 | acorn-problems | 100 | 99 |" in text
    assert "| x f32 | q7 | 4 | `▁8` | `▁9` | 0.0123 | 5.6 |" in text
