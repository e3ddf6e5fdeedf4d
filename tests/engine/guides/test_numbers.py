"""Numbers in schemas that llguidance would take for others, or not survive."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import pytest

from onechip.engine.guides.grammar import Grammar
from onechip.errors import RequestError
from tests.engine.guides.deep import forced
from tests.engine.guides.endless import SCHEMAS
from tests.engine.guides.test_grammar import holds
from tests.engine.guides.vocabularies import grammars

BIG = 1234567890123456789
MOST = 2**53


def form(schema: Any) -> Grammar:
    return grammars("acorn")[0].json_schema(schema, "schema")


def test_no_number_ends_the_process() -> None:
    ended = subprocess.run(
        [sys.executable, "-m", "tests.engine.guides.endless"], capture_output=True, text=True, timeout=120
    )
    assert ended.returncode == 0, ended.stdout + ended.stderr
    lines = ended.stdout.splitlines()
    assert len(lines) == 3 * len(SCHEMAS) + 1
    assert [line for line in lines if "exactly; " not in line] == []


@pytest.mark.parametrize(
    ("schema", "where", "number", "mend"),
    [
        ({"const": BIG}, ".const", BIG, "make it a string"),
        ({"const": MOST + 1}, ".const", MOST + 1, "make it a string"),
        ({"const": -MOST - 1}, ".const", -MOST - 1, "make it a string"),
        ({"properties": {"id": {"const": BIG}}}, ".properties.id.const", BIG, "make it a string"),
        ({"properties": {"enum": {"enum": [1, BIG]}}}, ".properties.enum.enum[1]", BIG, "make it a string"),
        ({"anyOf": [{"const": {"a": [0, BIG]}}]}, ".anyOf[0].const.a[1]", BIG, "make it a string"),
        ({"const": {"properties": {"a": BIG}}}, ".const.properties.a", BIG, "make it a string"),
        ({"$ref": "#/$defs/const", "$defs": {"const": {"enum": [BIG]}}}, ".$defs.const.enum[0]", BIG, "make"),
        ({"type": "integer", "minimum": BIG}, ".minimum", BIG, "choose one within that"),
        ({"type": "integer", "maximum": BIG}, ".maximum", BIG, "choose one within that"),
        ({"items": {"exclusiveMinimum": -BIG}}, ".items.exclusiveMinimum", -BIG, "choose one within that"),
        ({"type": "integer", "exclusiveMaximum": 1e19}, ".exclusiveMaximum", "1e+19", "choose one within"),
        ({"type": "integer", "const": 1e300}, ".const", "1e+300", "make it a string"),
    ],
)
def test_a_number_that_would_become_another_is_refused(
    schema: Any, where: str, number: object, mend: str
) -> None:
    with pytest.raises(RequestError) as refused:
        form(schema)
    said = (
        f"schema{where} cannot be compiled: is {number}: forms hold whole numbers up to 2**53 ({MOST}) exac"
    )
    assert refused.value.message.startswith(said), refused.value.message
    assert f"exactly; {mend}" in refused.value.message


def test_multiples_of_it_are_refused_too() -> None:
    with pytest.raises(RequestError, match=r"schema\.multipleOf cannot be compiled: is 1\d{16}: forms hold"):
        form({"type": "integer", "multipleOf": 10**16})


@pytest.mark.parametrize(
    ("schema", "fits", "fails"),
    [
        ({"enum": [MOST, -MOST]}, (MOST, -MOST), (MOST - 1,)),
        ({"type": "integer", "minimum": MOST - 2, "maximum": MOST}, (MOST - 2, MOST), (MOST - 3, MOST + 1)),
        ({"type": "integer", "exclusiveMinimum": -MOST, "maximum": 0}, (1 - MOST, 0), (-MOST, 1)),
        ({"const": str(BIG)}, (f'"{BIG}"',), (BIG,)),
        ({"enum": [True, 0.5], "default": BIG, "examples": [BIG]}, ("true", 0.5), (BIG,)),
        ({"type": "integer", "minimum": 0, "x-id": BIG}, (BIG,), (-BIG,)),
    ],
)
def test_what_is_exact_is_held_to(schema: Any, fits: tuple[object, ...], fails: tuple[object, ...]) -> None:
    grammar = form(schema)
    assert [holds("acorn", grammar, str(text)) for text in fits] == [True] * len(fits)
    assert [holds("acorn", grammar, str(text)) for text in fails] == [False] * len(fails)


def test_properties_may_be_called_as_keywords_are() -> None:
    named = {"const": {"type": "integer", "default": BIG}, "enum": {"examples": [BIG]}}
    grammar = form({"type": "object", "properties": named, "required": ["const"]})
    assert holds("acorn", grammar, '{"const": 7}')


def test_bounds_in_gemmas_calls_may_be_larger() -> None:
    bounded = {"type": "integer", "minimum": 0, "maximum": 2**63 - 1}
    grammar = forced(
        grammars("acorn")[0], {"type": "object", "properties": {"a": bounded}, "required": ["a"]}
    )
    assert holds("acorn", grammar, f"<|tool_call>call:f{{a:{2**63 - 1}}}<tool_call|>")
    assert not holds("acorn", grammar, f"<|tool_call>call:f{{a:{2**63}}}<tool_call|>")


def test_calls_as_json_have_the_limit_and_values_in_gemmas_have_not() -> None:
    tool = {"type": "object", "properties": {"a": {"const": BIG}}, "required": ["a"]}
    with pytest.raises(
        RequestError, match=rf"^tools: calls of f .*parameters\.properties\.a\.const is {BIG}: "
    ):
        forced(grammars("chatml")[0], tool)
    grammar = forced(grammars("acorn")[0], tool)
    assert holds("acorn", grammar, f"<|tool_call>call:f{{a:{BIG}}}<tool_call|>")
    assert not holds("acorn", grammar, f"<|tool_call>call:f{{a:{int(float(BIG))}}}<tool_call|>")


def test_the_largest_int64_is_a_maximum_that_is_kept_to() -> None:
    schema = {"type": "integer", "minimum": 0, "maximum": 2**63 - 1}
    for number in (0, 5, MOST + 1, 2**63 - 2, 2**63 - 1):
        assert holds("acorn", form(schema), str(number)), number
    for number in (2**63, 2**63 + 1, 10**19, 10**30, -1):
        assert not holds("acorn", form(schema), str(number)), number
