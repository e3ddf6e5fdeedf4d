"""Function calls: a Draw in, OpenAI-style tools, a question and the one right call out."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

from tools.acorn.draws import Draw, is_held_out
from tools.acorn.functions import CONCEPTS, Concept, Parameter, Value

Tool = dict[str, Any]

TWO_TOOLS_SHARE = 0.2
EXTRA_SHARE = 0.5
PYTHON_SUFFIX = " Note that the provided function is in Python 3 syntax."
"""What BFCL's request side adds to a description (spec: ladder, section 6)."""


@dataclass(frozen=True, slots=True)
class Call:
    """A question, the functions that may be called (BFCL's shape) and the call that answers it."""

    concept: int
    question: str
    functions: tuple[Tool, ...]
    name: str
    arguments: dict[str, Value]
    optional: dict[str, tuple[Value, ...]]

    @property
    def held_out(self) -> bool:
        """By what is asked and with which values, whatever the names."""
        values = sorted(str(value) for value in self.arguments.values())
        return is_held_out(json.dumps([self.concept, *values]))

    @property
    def tools(self) -> list[Tool]:
        """The functions as /v1/chat/completions takes them: OpenAI's shape, dots made underscores."""
        return [{"type": "function", "function": as_openai(function)} for function in self.functions]


def as_openai(function: Tool) -> Tool:
    parameters = function["parameters"] | {"type": "object"}
    return function | {"name": function["name"].replace(".", "_"), "parameters": parameters}


def _values(draw: Draw, concept: Concept) -> list[Value]:
    """One value a parameter; those of one kind differ, so that mixing them up is visible."""
    while True:
        values = [draw.among(parameter.pool) for parameter in concept.parameters]
        if len(set(values)) == len(values):
            return values


def _function(draw: Draw, concept: Concept, taken: Concept | None = None) -> tuple[Tool, list[str]]:
    """A declaration in BFCL's shape, and the declared names of the concept's parameters in order."""
    parameters: list[Parameter] = list(concept.parameters)
    names = [draw.among(parameter.names) for parameter in parameters]
    required = draw.some(names, len(names))
    if concept.extra and draw.chance(EXTRA_SHARE):
        parameters.append(concept.extra)
        names.append(draw.among(concept.extra.names))
    properties = {
        name: {"type": parameter.kind, "description": parameter.about}
        for name, parameter in zip(names, parameters, strict=True)
    }
    function = {
        "name": draw.among(concept.names),
        "description": draw.among(concept.about),
        "parameters": {"type": "dict", "properties": properties, "required": required},
    }
    return function, names


def any_call(draw: Draw) -> Call:
    index = draw.number(0, len(CONCEPTS) - 1)
    concept = CONCEPTS[index]
    values = _values(draw, concept)
    question = draw.among(concept.queries).format(*values)
    function, names = _function(draw, concept)
    functions = [function]
    if draw.chance(TWO_TOOLS_SHARE):
        other = draw.among([each for each in CONCEPTS if each is not concept])
        functions.insert(draw.number(0, 1), _function(draw, other)[0])
    used = len(concept.parameters)
    arguments = dict(zip(names[:used], values, strict=True))
    optional: dict[str, tuple[Value, ...]] = {names[used]: ("",)} if len(names) > used else {}
    return Call(index, question, tuple(functions), function["name"], arguments, optional)


def with_suffix(call: Call) -> Call:
    """The same call, its functions described as BFCL's request side describes them."""
    functions = tuple(each | {"description": each["description"] + PYTHON_SUFFIX} for each in call.functions)
    return Call(call.concept, call.question, functions, call.name, call.arguments, call.optional)


def training_call(draw: Draw) -> Call:
    while True:
        made = any_call(draw)
        if not made.held_out:
            return with_suffix(made) if draw.chance(0.5) else made


def held_out_call(draw: Draw) -> Call:
    while True:
        made = any_call(draw)
        if made.held_out:
            return made


def bfcl_row(number: int, call: Call) -> dict[str, Any]:
    """One line of the shipped set: BFCL's question row with its answer row's ground truth beside it."""
    allowed = {name: [value] for name, value in call.arguments.items()}
    allowed |= {name: list(values) for name, values in call.optional.items()}
    return {
        "id": f"acorn_{number}",
        "question": [[{"role": "user", "content": call.question}]],
        "function": list(call.functions),
        "ground_truth": [{call.name: allowed}],
    }
