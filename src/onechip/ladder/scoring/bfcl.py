"""Function calls (Berkeley Function Calling Leaderboard, simple python): one call in, right or why not out.

The rules are those of the leaderboard's own checker, its oddities included.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any

VERSION = 1
HEADLINE = "call"
PYTHON_SUFFIX = " Note that the provided function is in Python 3 syntax."

Values = Sequence[Any]
"""What a reference answer allows for one parameter; "" among them means that it may be left out."""

_PYTHON: dict[str, type] = {
    "string": str,
    "integer": int,
    "float": float,
    "boolean": bool,
    "array": list,
    "tuple": list,
    "dict": dict,
    "any": str,
}
_JSON_TYPES = {"dict": "object", "float": "number", "tuple": "array", "any": "string"}
_IGNORED = re.compile(r"[ \,\.\/\-\_\*\^]")


def tool_for(function: Mapping[str, Any]) -> dict[str, Any]:
    """A function of the data set as an OpenAI tool: JSON-schema types, no dots in its name, Python note."""
    parameters = _schema(function["parameters"])
    return {
        "type": "function",
        "function": {
            "name": wire_name(function["name"]),
            "description": function["description"] + PYTHON_SUFFIX,
            "parameters": parameters,
        },
    }


def wire_name(name: str) -> str:
    """OpenAI's API allows no dots in a function's name."""
    return name.replace(".", "_")


def _schema(node: Any) -> Any:
    """The same schema with JSON schema's type names, at every depth."""
    if isinstance(node, list):
        return [_schema(item) for item in node]
    if not isinstance(node, dict):
        return node
    changed = {key: _schema(value) for key, value in node.items()}
    kind = changed.get("type")
    if isinstance(kind, str):
        changed["type"] = _JSON_TYPES.get(kind, kind)
    return changed


def read_call(calls: Sequence[Mapping[str, str]]) -> tuple[str, dict[str, Any]] | str:
    """Name and arguments of the one call that is expected, or why there is none."""
    if len(calls) != 1:
        return f"{len(calls)} calls instead of one"
    try:
        arguments = json.loads(calls[0]["arguments"] or "{}")
    except ValueError:
        return f"the arguments are not JSON: {calls[0]['arguments'][:80]!r}"
    if not isinstance(arguments, dict):
        return "the arguments are not an object"
    return calls[0]["name"], arguments


def check(
    name: str, arguments: Mapping[str, Any], function: Mapping[str, Any], answer: Mapping[str, Any]
) -> str | None:
    """Why a call is wrong; None if it is right.

    Args:
        function: as in the data set ("name", "parameters" with "properties" and "required").
        answer: reference, {function name: {parameter: allowed values}}.
    """
    allowed: Mapping[str, Values] = next(iter(answer.values()))
    properties = function["parameters"]["properties"]
    if name != wire_name(function["name"]):
        return f"called {name!r} instead of {wire_name(function['name'])!r}"
    for parameter in function["parameters"]["required"]:
        if parameter not in arguments:
            return f"required parameter {parameter!r} is missing"
    for parameter, value in arguments.items():
        if parameter not in properties or parameter not in allowed:
            return f"unknown parameter {parameter!r}"
        wrong = _check_value(parameter, value, properties[parameter], allowed[parameter])
        if wrong is not None:
            return wrong
    for parameter, values in allowed.items():
        if parameter not in arguments and "" not in values:
            return f"parameter {parameter!r} may not be left out"
    return None


def _check_value(parameter: str, value: Any, schema: Mapping[str, Any], values: Values) -> str | None:
    kind = schema["type"]
    if kind == "float" and type(value) is int:
        value = float(value)
    if kind == "tuple" and isinstance(value, tuple):
        value = list(value)
    wrong_type, is_variable = _type_error(parameter, value, schema, values)
    if wrong_type is not None:
        return wrong_type
    # A reference may hold the name of a variable where a value of another type is declared: compare as they
    # are.
    if not is_variable:
        if _PYTHON[kind] is dict:
            return _check_dict(parameter, value, values)
        if kind in ("array", "tuple") and schema["items"]["type"] == "dict":
            return _check_dicts(parameter, value, values)
        if _PYTHON[kind] is str:
            allowed = [_loose(item) for item in values if isinstance(item, str)]
            return None if _loose(value) in allowed else _not_allowed(parameter, value, values)
        if _PYTHON[kind] is list:
            allowed_lists = [_loose_items(item) for item in values]
            return None if _loose_items(value) in allowed_lists else _not_allowed(parameter, value, values)
    return None if value in values else _not_allowed(parameter, value, values)


def _type_error(
    parameter: str, value: Any, schema: Mapping[str, Any], values: Values
) -> tuple[str | None, bool]:
    """Why the type is wrong, and whether the value is taken for a variable's name."""
    kind = schema["type"]
    wanted = _PYTHON[kind]
    example = next((item for item in values if item != ""), None)
    is_variable = example is not None and type(example) is not wanted
    if type(value) is wanted:
        if kind not in ("array", "tuple"):
            return None, is_variable
        return _item_error(parameter, value, schema, values), is_variable
    if is_variable and type(value) is type(example):
        return None, True
    return f"{parameter!r} is {type(value).__name__}, {kind} is asked for", is_variable


def _item_error(parameter: str, value: Any, schema: Mapping[str, Any], values: Values) -> str | None:
    """Items are checked one level deep, against any reference list; a reference that is none allows all."""
    item_kind = schema["items"]["type"]
    for reference in values:
        if not isinstance(reference, list):
            return None
        example = next((item for item in reference if item != ""), None)
        kinds = {_PYTHON[item_kind], type(example)}
        if all(type(item) in kinds for item in value):
            return None
    return f"items of {parameter!r} are not {item_kind}"


def _check_dict(parameter: str, value: Any, values: Values) -> str | None:
    """Right if any of the reference dicts allows every key's value and misses no key that it needs."""
    errors = [_dict_error(parameter, value, reference) for reference in values if reference != ""]
    if not errors or None in errors:
        return None if errors else _not_allowed(parameter, value, values)
    return errors[0]


def _dict_error(parameter: str, value: Any, reference: Mapping[str, Values]) -> str | None:
    if not isinstance(value, dict):  # upstream breaks down here: "" in a reference lets items of any type by
        return f"{value!r} in {parameter!r} is no dict"
    for key, item in value.items():
        if key not in reference:
            return f"unexpected key {key!r} in {parameter!r}"
        loose = _loose(item) if isinstance(item, str) else item
        allowed = [_loose(option) if isinstance(option, str) else option for option in reference[key]]
        if loose not in allowed:
            return _not_allowed(f"{parameter}.{key}", item, reference[key])
    for key, options in reference.items():
        if key not in value and "" not in options:
            return f"key {key!r} is missing in {parameter!r}"
    return None


def _check_dicts(parameter: str, value: Sequence[Any], values: Values) -> str | None:
    """A list of dicts against the reference lists: same length, each dict right, in order."""
    error: str | None = _not_allowed(parameter, value, values)
    for reference in values:
        if len(reference) != len(value):
            continue
        pairs = zip(value, reference, strict=True)
        error = next((e for e in (_check_dict(parameter, item, [ref]) for item, ref in pairs) if e), None)
        if error is None:
            return None
    return error


def _loose(text: str) -> str:
    """Strings are compared without punctuation, in lower case, with one kind of quotes."""
    return _IGNORED.sub("", text).lower().replace("'", '"')


def _loose_items(value: Sequence[Any]) -> list[Any]:
    """A reference of "" becomes an empty list, so that counts as right where a value may be left out."""
    return [_loose(item) if isinstance(item, str) else item for item in value]


def _not_allowed(parameter: str, value: Any, values: Values) -> str:
    return f"{parameter!r} is {value!r}, allowed are {list(values)!r}"


def score(
    calls: Sequence[Mapping[str, str]], function: Mapping[str, Any], answer: Mapping[str, Any]
) -> tuple[dict[str, str | None], dict[str, bool]]:
    """What was called, as text (None where no call can be read), and the verdict."""
    read = read_call(calls)
    if isinstance(read, str):
        return {HEADLINE: None}, {HEADLINE: False}
    called = f"{read[0]}({json.dumps(read[1], sort_keys=True, ensure_ascii=False)})"
    return {HEADLINE: called}, {HEADLINE: check(*read, function, answer) is None}
