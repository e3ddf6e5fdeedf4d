"""The API's routes and structs -> an OpenAPI 3.1 document.

It is made of the structs that bodies are checked against, so it cannot say anything but what the server does.
Fields that are taken only with a value that asks for nothing are listed with these values.
"""

from __future__ import annotations

import re
from functools import cache
from typing import Any

import msgspec

import onechip
from onechip.errors import OnechipError
from onechip.server.errors import error_body
from onechip.server.neutral import ANY
from onechip.server.routes import QUESTIONS, VIEWS, Question, View
from onechip.server.schemas import Body

_REF = "#/components/schemas/{name}"


@cache
def document() -> dict[str, Any]:
    """The document; made once, since nothing in it changes."""
    types = [
        *(type for question in QUESTIONS for type in (question.body, question.reply)),
        *(view.reply for view in VIEWS if view.reply is not None),
        *(_error(route.path) for route in (*QUESTIONS, *VIEWS)),
    ]
    unique = list(dict.fromkeys(types))
    schemas, components = msgspec.json.schema_components(unique, ref_template=_REF)
    refs = dict(zip(unique, schemas, strict=True))
    for body in {question.body for question in QUESTIONS}:
        _add_neutral(body, refs, components)
    paths: dict[str, Any] = {}
    for question in QUESTIONS:
        paths[question.path] = {"post": _post(question, refs)}
    for view in VIEWS:
        paths[view.path.replace(":path", "")] = {"get": _get(view, refs)}
    return {
        "openapi": "3.1.0",
        "info": {"title": "onechip", "version": onechip.__version__},
        "paths": paths,
        "components": {"schemas": components},
    }


def _add_neutral(body: type[Body], refs: dict[type, Any], components: dict[str, Any]) -> None:
    """List the fields that are taken if they ask for nothing, and other servers' names of fields."""
    properties = components[refs[body]["$ref"].rpartition("/")[2]]["properties"]
    for name, values in body.NEUTRAL.items():
        properties.setdefault(name, {} if values is ANY else {"enum": [None, *values]})
    for name, field in body.OTHER_NAMES.items():
        properties[name] = properties[field]
    for name, inner in body.NESTED.items():
        ref = next(choice["$ref"] for choice in properties[name]["anyOf"] if "$ref" in choice)
        nested = components[ref.rpartition("/")[2]]["properties"]
        for field, values in inner.NEUTRAL.items():
            nested.setdefault(field, {"enum": [None, *values]})


def _post(question: Question, refs: dict[type, Any]) -> dict[str, Any]:
    content = {"application/json": {"schema": refs[question.reply]}}
    if question.stream is not None:
        content[question.stream.partition(";")[0]] = {}
    return {
        "operationId": _name("post", question.path),
        "summary": _summary(question.answer),
        "requestBody": {"required": True, "content": {"application/json": {"schema": refs[question.body]}}},
        "responses": {"200": {"description": "The answer.", "content": content}}
        | _failures(question.path, refs),
    }


def _get(view: View, refs: dict[type, Any]) -> dict[str, Any]:
    content = {"application/json": {"schema": refs[view.reply]}} if view.reply else {"text/plain": {}}
    names = re.findall(r"{(\w+)", view.path)
    return {
        "operationId": _name("get", view.path),
        "parameters": [
            {"name": name, "in": "path", "required": True, "schema": {"type": "string", "minLength": 1}}
            for name in names
        ],
        "responses": {"200": {"description": "The answer.", "content": content}} | _failures(view.path, refs),
    }


def _failures(path: str, refs: dict[type, Any]) -> dict[str, Any]:
    content = {"application/json": {"schema": refs[_error(path)]}}
    return {"4XX": {"description": "What is wrong and how to mend it.", "content": content}}


def _error(path: str) -> type:
    """The struct that errors at `path` are."""
    return type(error_body(path, OnechipError("")))


def _summary(answer: Any) -> str:
    return str(answer.__doc__).partition("\n")[0]


def _name(method: str, path: str) -> str:
    return "_".join([method, *re.findall(r"[a-z_]+", path.replace(":path", ""))])
