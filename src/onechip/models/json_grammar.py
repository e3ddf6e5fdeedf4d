"""JSON schemas -> llguidance's grammars of JSON, and where in a schema a part is that cannot be compiled."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Mapping
from typing import Any

import llguidance

from onechip.models.schema_limits import SchemaError, check_limits, check_numbers
from onechip.models.tool_schema import inner_schemas

_COMPACT = {
    "whitespace_flexible": False,
    "item_separator": ", ?",
    "key_separator": ": ?",
    "lenient": False,
    "coerce_one_of": False,
}
"""Small models that may write blanks write them without end, so JSON comes in one line. Python writes a blank
behind "," and ":", JavaScript none, and models have learnt from both: either may come.
"""

_SAID_PLAINLY = (
    (r"Unimplemented keys: \[(.*)\]", r"\1 cannot be held to"),
    (r"oneOf constraints are not supported.*", "the alternatives of oneOf may hold together: use anyOf"),
    (r"(Unsatisfiable schema): schema is false", r"\1"),
)
"""What llguidance says of its own inside, and what that means to a client."""

_DEFINITIONS = ("$defs", "definitions")

_MAX_CHECKS = 500
_MAX_SECONDS = 0.5
"""How many parts of a schema that cannot be compiled are tried, to say where it fails, and for how long: it
is a millisecond for each of an ordinary schema.
"""


def json_grammar(schema: Mapping[str, Any]) -> str:
    """A grammar for LLMatcher, unchecked."""
    return llguidance.LLMatcher.grammar_from_lark(f"start: {json_rule(schema)}")


def json_rule(schema: Mapping[str, Any]) -> str:
    """What stands in a Lark rule for JSON that satisfies `schema`, in one line."""
    return f"%json {json.dumps({**schema, 'x-guidance': _COMPACT}, ensure_ascii=False)}"


def check_json_schema(schema: Any, *, exact: bool = True) -> None:
    """See to it that a grammar can be made of `schema`.

    Args:
        exact: refuse numbers that llguidance may take for others.

    Raises:
        SchemaError: it cannot, and this is where.
    """
    check_limits(schema)
    check_numbers(schema, exact=exact)
    reason = _error(schema)
    if not reason:
        return
    raise SchemaError(_place(schema, reason), reason)


def _place(schema: Any, reason: str) -> str:
    """The path of the innermost part that fails for this reason by itself, as far as `_MAX_CHECKS` tell."""
    node = schema if isinstance(schema, Mapping) else {}
    definitions = {key: node[key] for key in _DEFINITIONS if key in node}
    path, members = "", iter(inner_schemas(node))
    began = time.thread_time()
    for _ in range(_MAX_CHECKS):
        step, member = next(members, ("", None))
        if not step or time.thread_time() - began > _MAX_SECONDS:
            break
        if isinstance(member, Mapping) and _error({**definitions, **member}) == reason:
            path, members = f"{path}.{step}", iter(inner_schemas(member))
    return path


def _error(schema: Any) -> str:
    """What llguidance says against a schema; "" if nothing."""
    if not isinstance(schema, Mapping):
        return "it allows nothing" if schema is False else "it is no object"
    text = llguidance.LLMatcher.grammar_from_json_schema(json.dumps(schema))
    message = llguidance.LLMatcher.validate_grammar(text)
    # Of a regex error the last line says what it is, the others show where.
    message = message.rpartition("error: ")[2].strip().split("\n")[0][:300].rstrip(".")
    for said, meant in _SAID_PLAINLY:
        message = re.sub(said, meant, message)
    return message
