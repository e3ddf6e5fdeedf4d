"""Tools of the Responses API, some of them in namespaces -> functions that a model is told of, and back.

The model reads the name of a function in a namespace as `namespace.name`, and calls it so.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from onechip.server.constraints import ToolDefinition
from onechip.server.conversation import tool_definition
from onechip.server.responses.body import FunctionTool, NamespaceTool

Tools = Sequence[FunctionTool | NamespaceTool]


def told_name(namespace: str | None, name: str) -> str:
    """What the model calls a function."""
    return f"{namespace}.{name}" if namespace else name


def definitions(tools: Tools) -> list[ToolDefinition]:
    """What the model is told of `tools`."""
    return [
        tool_definition(told_name(namespace, tool.name), tool.description, tool.parameters, tool.strict)
        for namespace, tool in _functions(tools)
    ]


def called(told: str, tools: Tools) -> tuple[str | None, str]:
    """The namespace, and the name in it, of the function that the model calls `told`."""
    for namespace, tool in _functions(tools):
        if told_name(namespace, tool.name) == told:
            return namespace, tool.name
    return None, told


def _functions(tools: Tools) -> Iterator[tuple[str | None, FunctionTool]]:
    for tool in tools:
        if isinstance(tool, NamespaceTool):
            yield from ((tool.name, inner) for inner in tool.tools)
        else:
            yield None, tool
