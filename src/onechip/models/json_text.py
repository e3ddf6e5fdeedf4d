"""JSON text that a client wrote -> its value, or an error that says which field is wrong and how to mend it.

In: a request's body, or the JSON inside of one of its strings. Out: a value that recursion can follow.
"""

from __future__ import annotations

import json
import re
from typing import Any

import msgspec

from onechip.errors import RequestError

MAX_NESTING = 64
"""Levels of objects and arrays. Templates walk them by recursion, and Python's stack is full before 200."""

_NAMED_STEPS = 4
"""How far down an error names a value: `tools[0].function.parameters` has four steps."""

_LONGEST_PATH = 80
"""Characters of a path: its keys may be a client's own, and of any length."""

_CONTAINERS = (dict, list)
_SURROGATE = re.compile(r"[\ud800-\udfff]")


def decode_json(text: bytes | str, name: str, param: str | None = None) -> Any:
    """The value of `text`.

    Args:
        name: what errors call the text.
        param: the field that holds the text; None if it is the body, whose own fields are named then.

    Raises:
        RequestError: it is not JSON, is nested more than MAX_NESTING deep, or holds a lone surrogate.
    """
    try:
        value = msgspec.json.decode(text)
    except RecursionError:
        raise _nested_too_deep(name, param) from None
    except msgspec.DecodeError as error:
        raise _lone_surrogate(text, name, param) or RequestError(
            f"{name} is not JSON: {error}.", param=param
        ) from None
    if _brackets(text) > MAX_NESTING:
        _check_nesting(value, name, param)
    return value


def _brackets(text: bytes | str) -> int:
    """Brackets that open something, those inside of strings included: no text is nested deeper."""
    if isinstance(text, bytes):
        return text.count(b"[") + text.count(b"{")
    return text.count("[") + text.count("{")


def _check_nesting(value: Any, name: str, param: str | None) -> None:
    """Go down level by level, since a recursion is what this protects from."""
    level = [("", value)] if isinstance(value, _CONTAINERS) else []
    for depth in range(MAX_NESTING):
        named = param is None and depth < _NAMED_STEPS
        level = [inner for path, outer in level for inner in _containers(path, outer, named)]
    if level:
        path = level[0][0]
        path = path if len(path) <= _LONGEST_PATH else f"{path[: _LONGEST_PATH - 3]}..."
        raise _nested_too_deep(path or name, path or param)


def _containers(path: str, outer: Any, named: bool) -> list[tuple[str, Any]]:
    """The objects and arrays right inside of `outer` with their paths, or its own where they stay unnamed."""
    if isinstance(outer, dict):
        steps = ((f"{path}.{key}" if path else key, inner) for key, inner in outer.items())
    else:
        steps = ((f"{path}[{index}]", inner) for index, inner in enumerate(outer))
    return [(step if named else path, inner) for step, inner in steps if isinstance(inner, _CONTAINERS)]


def _nested_too_deep(name: str, param: str | None) -> RequestError:
    return RequestError(
        f"{name} is nested too deep: objects and arrays may be {MAX_NESTING} levels deep, the whole counted; "
        "make it flatter.",
        param=param,
    )


def _lone_surrogate(text: bytes | str, name: str, param: str | None) -> RequestError | None:
    r"""The error if what is wrong with `text` is half of a surrogate pair, such as "\ud83d"."""
    try:
        value = json.loads(text)  # Python lets them pass
        found = _SURROGATE.search(json.dumps(value, ensure_ascii=False))
        fields = value.items() if param is None and isinstance(value, dict) else ()
        for key, member in fields:
            if _SURROGATE.search(json.dumps(member, ensure_ascii=False)):
                name = param = key
                break
    except (ValueError, RecursionError):
        return None
    if found is None:
        return None
    return RequestError(
        f"{name} holds a lone surrogate, \\u{ord(found[0]):04x}, which is half of a character: send both "
        "halves or none.",
        param=param,
    )
