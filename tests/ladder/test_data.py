"""Question sets: what ships, what a folder must hold, and every reference answer right by its own scorer."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from onechip.errors import LadderError
from onechip.ladder.data import load
from onechip.ladder.scoring import bfcl
from tests.shared_data import SHARED

needs_data = pytest.mark.skipif(
    not SHARED.is_dir(), reason=f"the published question sets are not in {SHARED}"
)


def reference_call(answer: dict[str, Any]) -> dict[str, str]:
    """The call that takes the first allowed value of every parameter."""
    (name, parameters), *_ = answer.items()
    arguments = {
        key: _first(values) for key, values in parameters.items() if any(value != "" for value in values)
    }
    return {"name": bfcl.wire_name(name), "arguments": json.dumps(arguments)}


def _first(values: list[Any]) -> Any:
    value = next(value for value in values if value != "")
    if isinstance(value, dict):
        return {
            key: _first(options) for key, options in value.items() if any(option != "" for option in options)
        }
    if isinstance(value, list) and value and all(isinstance(item, dict) for item in value):
        return [_first([item]) for item in value]
    return value


@pytest.mark.parametrize("variable", [None, "", "elsewhere"])
def test_where_fetched_sets_are_kept(
    variable: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An empty XDG_CACHE_HOME counts as none, wherever the ladder is started."""
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    if variable is not None:
        monkeypatch.setenv("XDG_CACHE_HOME", variable and str(tmp_path / variable))
    kept = tmp_path / (variable or ".cache") / "onechip" / "data"
    kept.mkdir(parents=True)
    (kept / "gsm8k_test.jsonl").write_text("{}")
    with pytest.raises(LadderError, match=f"{kept}/gsm8k_test.jsonl is not the published"):
        load("gsm8k", None, 160)


def test_acorn_s_sets_ship() -> None:
    problems, calls = load("acorn", None, 160)
    assert (problems.name, len(problems.questions), problems.needs_tools) == ("acorn-problems", 200, False)
    assert (calls.name, len(calls.questions), calls.needs_tools) == ("acorn-calls", 100, True)
    assert len({question.id for question in (*problems.questions, *calls.questions)}) == 300
    for question in problems.questions:
        assert question.score(f"so\n#### {question.expected}", [])[1]["numeric"]
        assert not question.score(f"#### {question.expected}1", [])[1]["numeric"]
    for question in calls.questions:
        assert question.score("", [reference_call(json.loads(question.expected))])[1]["call"], (
            question.expected
        )


@needs_data
def test_gsm8k_from_a_folder() -> None:
    (found,) = load("gsm8k", SHARED, 160)
    assert (found.name, len(found.questions), found.tokens) == ("gsm8k", 1319, 2048)
    assert (found.questions[0].expected, found.questions[3].expected) == ("18", "540")
    assert all(question.score(f"#### {question.expected}", [])[1]["strict"] for question in found.questions)


@needs_data
def test_all_400_reference_calls_of_bfcl_are_right() -> None:
    (found,) = load("bfcl", SHARED, 160)
    right = [q.score("", [reference_call(json.loads(q.expected))])[1]["call"] for q in found.questions]
    assert (len(right), sum(right)) == (400, 400)


def test_a_file_that_is_missing_or_changed(tmp_path: Path) -> None:
    with pytest.raises(LadderError, match=r"there is no gsm8k_test.jsonl in it"):
        load("gsm8k", tmp_path, 160)
    (tmp_path / "test.jsonl").write_text('{"question": "1 + 1?", "answer": "#### 2"}\n')
    with pytest.raises(LadderError, match="is not the published gsm8k_test"):
        load("gsm8k", tmp_path, 160)
