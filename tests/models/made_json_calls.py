"""Random answers whose calls are JSON, in the three forms that families have, with what they say."""

from __future__ import annotations

import json
import random
from collections.abc import Mapping
from typing import Any

from tests.models import made_tools
from tests.models.made_answers import ENDS, Answer, Call

FORMS = ("no call", "calls alone", "a list of calls", "calls between marks")


def answer(rng: random.Random) -> Answer:
    """An answer of one of FORMS, which is in `odd`."""
    form = rng.choice(FORMS)
    made = Answer(made_tools.tools(rng), False, frozenset({form}), ENDS[0])
    if form == "no call":
        made.text = made_tools.text(rng)
        made.write(made.text)
        return made
    for _ in range(rng.choice([1, 1, 2, 3])):
        function = rng.choice(made.tools)["function"]
        made.calls.append((function["name"], made_tools.arguments(rng, function)))
    written = [_spelled(rng, _as_object(rng, call)) for call in made.calls]
    if form == "calls alone":
        made.write(rng.choice(["", "\n\n"]), rng.choice(["\n", "; ", " ", ", "]).join(written))
    elif form == "a list of calls":
        made.write(f"[{', '.join(written)}]")
    else:
        _write_marked(rng, made, written)
    return made


def _write_marked(rng: random.Random, made: Answer, written: list[str]) -> None:
    if rng.random() < 0.5:
        made.text = made_tools.text(rng)
        made.write(made.text)
    blank = rng.choice(["", "\n"])
    for call in written:
        made.write(f"<tool_call>{blank}{call}{blank}</tool_call>{blank}")
    if rng.random() < 0.3:
        said = made_tools.text(rng).strip()
        made.write(said)
        made.text += said
        made.odd |= {"text behind calls"}


def _as_object(rng: random.Random, call: Call) -> dict[str, Any]:
    name, arguments = call
    given = json.dumps(arguments) if rng.random() < 0.2 else arguments
    members = [("name", name), (rng.choice(["arguments", "parameters"]), given)]
    if rng.random() < 0.2:
        members.reverse()
    if rng.random() < 0.2:
        return {"type": "function", "function": dict(members)}
    return dict(members)


def _spelled(rng: random.Random, value: Mapping[str, Any]) -> str:
    ways: list[dict[str, Any]] = [{}, {"indent": 2}, {"separators": (",", ":")}]
    return json.dumps(value, ensure_ascii=rng.random() < 0.3, **rng.choice(ways))
