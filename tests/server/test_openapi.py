"""The OpenAPI document: what schemathesis makes of it is answered as it says, and never with a 500."""

from __future__ import annotations

from typing import Any

import hypothesis
import pytest
import schemathesis
from hypothesis import strategies as st
from schemathesis import GenerationMode
from schemathesis.checks import not_a_server_error
from schemathesis.specs.openapi.checks import content_type_conformance, response_schema_conformance

from onechip.server.openapi import document
from onechip.server.routes import QUESTIONS, VIEWS
from tests.server.scripted import HI

CHECKS = [not_a_server_error, content_type_conformance, response_schema_conformance]
PROMPT = {"prompt": "Hi"}
RIGHT: dict[str, Any] = {
    "/v1/chat/completions": HI,
    "/v1/chat/completions/input_tokens": HI,
    "/v1/completions": PROMPT,
    "/v1/responses": {"input": "Hi"},
    "/v1/responses/input_tokens": {"input": "Hi"},
    "/v1/messages": HI | {"max_tokens": 5},
    "/v1/messages/count_tokens": HI,
    "/api/chat": HI | {"model": "acorn"},
    "/api/generate": PROMPT | {"model": "acorn"},
    "/api/show": {"model": "acorn"},
    "/completion": PROMPT,
    "/apply-template": HI,
    "/tokenize": PROMPT,
    "/detokenize": {"tokens": [5]},
}
"""A body for each path that is answered with 200: whether one of few random ones is, is chance."""
PATHS = [*(question.path for question in QUESTIONS), *(view.path.replace(":path", "") for view in VIEWS)]


@pytest.mark.parametrize("path", PATHS)
def test_whatever_is_sent_is_answered_as_the_document_says(client, server, path) -> None:
    schema = schemathesis.openapi.from_url(f"http://127.0.0.1:{client.port}/openapi.json")
    operation = next(iter(schema[path].values()))
    modes = [GenerationMode.POSITIVE, *([GenerationMode.NEGATIVE] if operation.method == "post" else [])]
    cases = st.one_of([operation.as_strategy(generation_mode=mode) for mode in modes])
    statuses: set[int] = set()

    @hypothesis.settings(max_examples=25, deadline=None, derandomize=True, database=None)
    @hypothesis.given(cases)
    def send(case: Any) -> None:
        if isinstance(case.body, dict) and isinstance(case.body.get("model"), str):
            case.body["model"] = "acorn"  # of any other name nothing but 404 is learned
        statuses.add(case.call_and_validate(checks=CHECKS, timeout=60).status_code)

    send()
    assert server[1].state == "ready"
    if operation.method == "post":
        right = operation.Case(body=RIGHT[path], media_type="application/json")
        assert right.call_and_validate(checks=CHECKS, timeout=60).status_code == 200
        assert 400 in statuses
    else:
        assert (404 if "{" in path else 200) in statuses


def test_every_path_is_there_with_its_fields() -> None:
    paths = document()["paths"]
    assert set(paths) == set(PATHS)
    schemas = document()["components"]["schemas"]
    chat = schemas["onechip.server.schemas.ChatBody"]
    assert chat["properties"]["length_penalty"] == {"enum": [None, 1, 1.0]}
    assert chat["required"] == ["messages"]
    assert not chat["additionalProperties"]
    options = schemas["Options"]["properties"]
    assert options["typical_p"] == {"enum": [None, 1, 1.0]}
    streamed = paths["/api/chat"]["post"]["responses"]["200"]["content"]
    assert set(streamed) == {"application/json", "application/x-ndjson"}
