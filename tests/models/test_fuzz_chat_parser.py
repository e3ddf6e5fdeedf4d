"""The first cases of fuzz_chat_parser.py, which see."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from onechip.models.tokenizer import Tokenizer
from tests.models import made_thoughts
from tests.models.fuzz_chat_parser import Family, Gemma4, JsonCalls, ThinkMarked, fuzz, templates
from tests.models.made_answers import ODDITIES
from tests.models.made_json_calls import FORMS
from tests.server.scripted import ACORN
from tests.shared_data import SHARED


@pytest.fixture(params=["Gemma 4", "JSON", *ThinkMarked.KINDS])
def family(request: pytest.FixtureRequest) -> Iterator[Family]:
    if request.param == "JSON":
        made: Family = JsonCalls()
    elif request.param in ThinkMarked.KINDS:
        made = ThinkMarked(request.param)
    else:
        made = Gemma4(Tokenizer.load(ACORN, [1]), templates(SHARED / "gemma4_chat_template.jinja"))
    yield made
    made.close()


def test_random_answers(family: Family) -> None:
    counts = fuzz(family, range(250), seed=1)
    kinds = ODDITIES if isinstance(family, Gemma4) else FORMS
    kinds += made_thoughts.ODDITIES if isinstance(family, ThinkMarked) else ()
    assert min(counts[kind] for kind in kinds) > 3
    assert counts["failures"] == 0
