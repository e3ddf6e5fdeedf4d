"""The first cases of fuzz_chat_parser.py, which see."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from onechip.models.tokenizer import Tokenizer
from tests.models.fuzz_chat_parser import SHARED, Gemma4, JsonCalls, fuzz, templates
from tests.models.made_answers import ODDITIES
from tests.models.made_json_calls import FORMS
from tests.server.scripted import ACORN


@pytest.fixture(params=["Gemma 4", "JSON"])
def family(request: pytest.FixtureRequest) -> Iterator[Gemma4 | JsonCalls]:
    if request.param == "JSON":
        made: Gemma4 | JsonCalls = JsonCalls()
    else:
        made = Gemma4(Tokenizer.load(ACORN, [1]), templates(SHARED / "gemma4_chat_template.jinja"))
    yield made
    made.close()


def test_random_answers(family: Gemma4 | JsonCalls) -> None:
    counts = fuzz(family, range(250), seed=1)
    kinds = FORMS if isinstance(family, JsonCalls) else ODDITIES
    assert min(counts[kind] for kind in kinds) > 3
    assert counts["failures"] == 0
