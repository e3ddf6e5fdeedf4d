"""What no grammar may do: end the process, take minutes, or be taken although no answer satisfies it."""

from __future__ import annotations

import re
import subprocess
import sys
import threading
from collections.abc import Callable
from typing import Any

import pytest

from onechip.engine.guides.grammar import Grammar, Grammars
from onechip.engine.guides.kept import Kept
from onechip.engine.guides.large_stack import STACK, on_large_stack
from onechip.errors import RequestError
from tests.engine.guides.deep import forced
from tests.engine.guides.test_grammar import holds
from tests.engine.guides.vocabularies import grammars

Make = Callable[[Grammars], Grammar]


def test_the_deepest_grammars_leave_most_of_the_stack() -> None:
    ended = subprocess.run(
        [sys.executable, "-m", "tests.engine.guides.deep"], capture_output=True, text=True, timeout=120
    )
    assert ended.returncode == 0, ended.stdout + ended.stderr
    lines = ended.stdout.splitlines()
    assert len(lines) == 19
    assert sum(line.endswith(": compiled") for line in lines) == 11, ended.stdout


def test_work_on_a_large_stack_gives_and_raises_as_it_would_here() -> None:
    before = threading.stack_size()
    assert on_large_stack(lambda: threading.current_thread().name) == "onechip-large-stack"
    with pytest.raises(KeyError, match="x"):
        on_large_stack(lambda: {}["x"])
    assert threading.stack_size() == before != STACK


def _schema(schema: Any) -> Make:
    return lambda made: made.json_schema(schema, "schema")


def _tool(schema: Any) -> Make:
    return lambda made: forced(made, {"type": "object", "properties": {"a": schema}, "required": ["a"]})


def _lark(text: str) -> Make:
    return lambda made: made.ebnf(text, "grammar")


def _members(count: int) -> dict[str, Any]:
    return {"type": "object", "properties": {f"p{index}": {"type": "integer"} for index in range(count)}}


@pytest.mark.parametrize(
    ("make", "says"),
    [
        (_lark("start: start"), "grammar cannot be compiled: no answer satisfies it"),
        (_lark("start: <[999999]>"), r"grammar cannot be compiled: at 1\(8\): Token range end too large"),
        (_lark("root ::= root"), "grammar cannot be compiled: no answer satisfies it"),
        (_schema({"$ref": "#"}), "schema cannot be compiled: no answer satisfies it"),
        (lambda made: made.regex(r"[^\s\S]", "regex"), "regex is .*compiled: no answer satisfies it"),
        (lambda made: made.regex("a?" * 2000, "regex"), "regex is .* cannot be compiled: it is too complex"),
        (_schema({"multipleOf": 999_975}), r"schema\.multipleOf .*: is too large"),
        (lambda made: made.regex("a" * 100_001, "regex"), "regex is too large: 100,001 characters"),
        (lambda made: made.choice(["a" * 10**6], "choice"), "choice is too large: .* 1,000,000 are the"),
        (_lark("start: " + '"a" ' * 30_000), "grammar is too large: 120,007 characters"),
        (_lark("root ::= " + '"a" ' * 30_000), "grammar is too large: 120,009 characters"),
        (_schema({"enum": ["a" * 10**6]}), "schema cannot be compiled: is too large: 1,000,0.. characters"),
        (_schema({"anyOf": [{"const": n} for n in range(10_000)]}), "schema .*: at most 10,000 objects"),
        (_schema({"items": _members(2001)}), r"schema\.items\.properties .*has 2,001 members"),
        (_schema({"items": {"multipleOf": 0}}), r"schema\.items\.multipleOf .*must be more than 0"),
        (_schema({"type": "integer", "multipleOf": 999_983}), r"schema\.multipleOf .*: is too large"),
        (_schema({"allOf": [{"multipleOf": n} for n in (97, 101, 103)]}), r"schema\.allOf\[\d\]\.multip"),
        (_schema(_members(6) | {"items": [{"multipleOf": 20_001 + n} for n in range(6)]}), r"schema.*multip"),
        (_lark('start: %json {"type":"integer","multiple\\u004ff":999983}'), r"grammar .*%json\[0\]\.multip"),
        (_schema({"allOf": [{"pattern": f"a{n}"} for n in range(30)]}), "schema .*has 30 patterns"),
        (_schema({"patternProperties": {f"^{n}_": {} for n in range(33)}}), r".*has 33 patterns"),
        (_lark("start: T\nT: " + " & ".join(["/.*a.*/"] * 10)), "grammar .*: it has 9 of & and ~"),
        (_tool({"multipleOf": -3}), r"tools: .*parameters\.properties\.a\.multipleOf must be more than 0"),
        (_tool(_members(2001)), r"tools: .*parameters\.properties\.a\.properties has 2,001 members"),
        (_tool({"oneOf": [_members(n % 3) for n in range(100)]}), r"tools: .*a\.oneOf has 100 alternatives"),
    ],
)  # fmt: skip
def test_what_takes_too_long_or_allows_nothing_is_refused(make: Make, says: str) -> None:
    with pytest.raises(RequestError) as refused:
        make(grammars("acorn")[0])
    assert re.match(says, refused.value.message), refused.value.message
    assert re.fullmatch(r"[^\n]*[^.]\.", refused.value.message)
    assert len(refused.value.message) < 500


def test_many_tools_with_multiples_are_too_large_together() -> None:
    tools = [
        {"type": "function", "function": {"name": f"f{n}", "parameters": {"properties": {"a": schema}}}}
        for n, schema in enumerate({"type": "integer", "multipleOf": 15_001 + 2 * n} for n in range(9))
    ]
    with pytest.raises(RequestError, match=r"tools: .*multipleOf is too large.*Leave some tools out\.$"):
        grammars("acorn")[0].calls(tools, required=True)


def test_large_forms_of_ordinary_kinds_are_taken() -> None:
    kinds = [
        {"type": "object", "properties": {"kind": {"const": f"k{n}"}}, "required": ["kind"]}
        for n in range(1500)
    ]
    made = grammars("acorn")[0]
    forced(made, {"type": "object", "properties": {"a": {"oneOf": [{"type": "null"}, *kinds]}}})
    forced(made, {"type": "object", "properties": {"a": {"enum": [str(n) for n in range(20_000)]}}})
    forced(made, _members(2000))
    numbers = {"type": "object", "properties": {"a": {"multipleOf": 0.01}, "b": {"multipleOf": 86_400}}}
    made.json_schema(numbers, "schema")
    assert holds("acorn", made.choice([f"option {n}" for n in range(20_000)], "choice"), "option 19999")


def test_the_empty_text_is_an_answer() -> None:
    for make in (lambda made: made.regex("", "x"), lambda made: made.choice([""], "x"), _lark('root ::= ""')):
        assert holds("acorn", make(grammars("acorn")[0]), "")


def test_what_is_longest_unused_is_given_up_and_what_is_large_is_not_kept() -> None:
    kept: Kept[int] = Kept(100, 5)
    for name, size in (("a", 25), ("b", 25), ("c", 25), ("large", 26), ("d", 25)):
        kept.put(name, size, size)
    assert kept.get("large") is None
    assert kept.get("a") == 25
    kept.put("e", 5, 20)
    assert [name for name in "abcde" if kept.get(name) is not None] == ["a", "c", "d", "e"]
    assert kept.size == 95
    kept.put("a", 7, 10)
    assert (kept.get("a"), kept.size) == (7, 80)
    for name in "vwxyz":
        kept.put(name, 1, 1)
    assert (kept.get("a"), kept.size) == (None, 5)
