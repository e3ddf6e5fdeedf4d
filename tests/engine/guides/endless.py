"""Schemas with numbers that llguidance does not survive, asked for here: one that it gets ends this process.

python -m tests.engine.guides.endless
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any

from onechip.engine.guides.grammar import Grammar
from onechip.errors import RequestError
from tests.engine.guides.deep import forced
from tests.engine.guides.vocabularies import grammars

NUMBER = -(2**63)

SCHEMAS: list[dict[str, Any]] = [
    {"const": NUMBER},
    {"const": NUMBER + 1},
    {"const": NUMBER + 512},
    {"enum": [1, NUMBER]},
    {"const": {"a": NUMBER}},
    {"enum": [{"a": [NUMBER]}]},
    {"type": "integer", "const": float(NUMBER)},
    {"type": "integer", "enum": [-1e19, 1]},
    {"allOf": [{"const": -1e300}, {"type": "integer", "maximum": 0}]},
    {"type": "integer", "minimum": NUMBER, "maximum": NUMBER},
    {"type": "integer", "minimum": -1e19, "maximum": -1e19},
    {"properties": {"const": {"const": NUMBER}}},
    {"properties": {"enum": {"anyOf": [{"type": "null"}, {"enum": [NUMBER]}]}}},
    {"$ref": "#/default", "default": {"const": NUMBER}},
    {"$ref": "#/default", "default": {"properties": {"const": {"type": "integer", "const": -1e19}}}},
]  # fmt: skip


def cases() -> Iterator[tuple[str, Callable[[], Grammar]]]:
    """What compiles each of them: a form, a grammar with it inside, and a call as JSON."""
    made, calling = grammars("acorn")[0], grammars("chatml")[0]
    for schema in SCHEMAS:
        text = json.dumps(schema)
        tool = {"type": "object", "properties": {"a": schema if "$ref" not in schema else schema["default"]}}
        yield f"form {text}", lambda schema=schema: made.json_schema(schema, "schema")
        yield f"grammar {text}", lambda text=text: made.lark(f"start: %json {text}", "grammar")
        yield f"call {text}", lambda tool=tool: forced(calling, tool)
    bounds = {"type": "integer", "minimum": NUMBER, "maximum": NUMBER}
    yield "Gemma's call", lambda: forced(made, {"type": "object", "properties": {"a": bounds}})


def main() -> None:
    for name, make in cases():
        try:
            make()
            print(f"{name}: compiled", flush=True)
        except RequestError as error:
            print(f"{name}: {error.message}", flush=True)


if __name__ == "__main__":
    main()
