"""The rules by which a function call is right, one case each way."""

from __future__ import annotations

import json
from collections import Counter
from typing import Any

import pytest

from onechip.ladder.scoring.bfcl import check, score, tool_for
from tests.ladder.fuzz_bfcl import FIXTURE, KEPT

FUNCTION: dict[str, Any] = {
    "name": "geo.find",
    "description": "Finds.",
    "parameters": {
        "type": "dict",
        "properties": {
            "city": {"type": "string"},
            "count": {"type": "integer"},
            "share": {"type": "float"},
            "exact": {"type": "boolean"},
            "names": {"type": "array", "items": {"type": "string"}},
            "pair": {"type": "tuple", "items": {"type": "integer"}},
            "where": {"type": "dict", "properties": {"lat": {"type": "float"}}},
            "rows": {"type": "array", "items": {"type": "dict"}},
            "any": {"type": "any"},
        },
        "required": ["city"],
    },
}
ANSWER: dict[str, Any] = {
    "geo.find": {
        "city": ["New York, NY", "NYC"],
        "count": [5, ""],
        "share": [0.5, 2, ""],
        "exact": [True, ""],
        "names": [["Ann Lee", "Bo"], ""],
        "pair": [[1, 2], ""],
        "where": [{"lat": [1.5], "note": ["x", ""]}, ""],
        "rows": [[{"a": [1]}, {"a": [2, 3]}], ""],
        "any": ["k", ""],
    }
}


@pytest.mark.parametrize(
    "arguments",
    [
        {},
        {"city": "new york ny"},
        {"city": "New_York-N.Y."},
        {"count": 5},
        {"share": 0.5},
        {"share": 2},
        {"exact": True},
        {"names": ["ann_lee", "BO"]},
        {"pair": [1, 2]},
        {"where": {"lat": 1.5}},
        {"where": {"lat": 1.5, "note": "X."}},
        {"rows": [{"a": 1}, {"a": 3}]},
        {"any": "K"},
    ],
)
def test_right_calls(arguments: dict[str, Any]) -> None:
    assert check("geo_find", {"city": "nyc"} | arguments, FUNCTION, ANSWER) is None


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        ({"city": "Boston"}, "'city' is 'Boston'"),
        ({"town": "NYC"}, "unknown parameter 'town'"),
        ({"count": 5.0}, "'count' is float, integer is asked for"),
        ({"count": "5"}, "'count' is str, integer is asked for"),
        ({"count": True}, "'count' is bool, integer is asked for"),
        ({"count": 6}, "'count' is 6"),
        ({"share": "0.5"}, "'share' is str"),
        ({"exact": 1}, "'exact' is int, boolean is asked for"),
        ({"names": ["Bo", "Ann Lee"]}, "'names' is"),
        ({"names": "Bo"}, "'names' is str"),
        ({"pair": [2, 1]}, "'pair' is"),
        ({"where": {"lat": 2.5}}, "'where.lat' is 2.5"),
        ({"where": {}}, "key 'lat' is missing in 'where'"),
        ({"where": {"lat": 1.5, "lon": 1}}, "unexpected key 'lon' in 'where'"),
        ({"rows": [{"a": 1}]}, "'rows' is"),
        ({"rows": [{"a": 2}, {"a": 1}]}, "'rows.a' is 2"),
    ],
)
def test_wrong_calls(arguments: dict[str, Any], why: str) -> None:
    said = check("geo_find", {"city": "nyc"} | arguments, FUNCTION, ANSWER)
    assert said is not None
    assert said.startswith(why)


def test_the_leaderboard_s_own_verdicts() -> None:
    """Calls on invented functions, each with the verdict of bfcl-eval 2026.3.23 (made by fuzz_bfcl.py)."""
    cases = json.loads(FIXTURE.read_text("utf-8"))
    assert Counter(right for *_, right in cases) == {True: KEPT // 2, False: KEPT // 2}
    for function, answer, name, arguments, right in cases:
        said = check(name, arguments, function, answer)
        assert (said is None) == right, (said, name, arguments, function, answer)


def test_an_item_that_is_no_dict_is_wrong_and_no_crash() -> None:
    said = check("geo_find", {"city": "nyc", "rows": ["a", "b"]}, FUNCTION, ANSWER)
    assert said == "'a' in 'rows' is no dict"


def test_names_and_missing_parameters() -> None:
    assert check("geo.find", {"city": "nyc"}, FUNCTION, ANSWER) == "called 'geo.find' instead of 'geo_find'"
    assert check("geo_find", {}, FUNCTION, ANSWER) == "required parameter 'city' is missing"
    must = {"geo.find": {"city": ["nyc"], "count": [5]}}
    assert check("geo_find", {"city": "nyc"}, FUNCTION, must) == "parameter 'count' may not be left out"


def test_exactly_one_call_is_expected() -> None:
    call = {"name": "geo_find", "arguments": json.dumps({"city": "NYC"})}
    assert score([call], FUNCTION, ANSWER) == ({"call": 'geo_find({"city": "NYC"})'}, {"call": True})
    for calls in ([], [call, call], [call | {"arguments": "{"}], [call | {"arguments": "[]"}]):
        assert score(calls, FUNCTION, ANSWER) == ({"call": None}, {"call": False})


def test_a_function_as_a_tool() -> None:
    function = tool_for(FUNCTION)["function"]
    assert function["name"] == "geo_find"
    assert function["description"] == "Finds. Note that the provided function is in Python 3 syntax."
    types = {name: schema["type"] for name, schema in function["parameters"]["properties"].items()}
    assert function["parameters"]["type"] == "object"
    assert types == {
        "city": "string",
        "count": "integer",
        "share": "number",
        "exact": "boolean",
        "names": "array",
        "pair": "array",
        "where": "object",
        "rows": "array",
        "any": "string",
    }
    assert function["parameters"]["properties"]["where"]["properties"]["lat"]["type"] == "number"
