"""Random answers with thoughts between marks, before text or calls in JSON, with what they say."""

from __future__ import annotations

import random
from collections.abc import Sequence

from tests.models import made_json_calls, made_tools
from tests.models.made_answers import Answer, Marker

ODDITIES = (
    "nothing odd",
    "no thoughts",
    "empty thoughts",
    "two thoughts",
    "opened once more",
    "thoughts that speak of the mark",
    "text that speaks of the marks",
)
BLANKS = ("", "\n", "\n\n", " ")


def answer(rng: random.Random, marks: Sequence[str]) -> Answer:
    """An answer with one of ODDITIES, besides its form.

    Args:
        marks: the opening and the closing one; `Marker` where they are tokens.
    """
    behind = made_json_calls.answer(rng)
    odd = rng.choice(ODDITIES if "no call" in behind.odd else ODDITIES[:-1])
    made = Answer(behind.tools, rng.random() < 0.3, behind.odd | {odd}, Marker("<|eot_id|>"))
    made.calls = behind.calls
    if odd == "text that speaks of the marks":
        behind.text = behind.text.strip() + ".".join(("So ", *map(str, marks), "<thi", ""))
        behind.pieces = [behind.text]
    thought = _write_thoughts(rng, made, odd, *marks)
    made.text = behind.text.lstrip() if thought else behind.text
    made.write(*behind.pieces)
    return made


def _write_thoughts(rng: random.Random, made: Answer, odd: str, open: str, close: str) -> bool:
    """Whether there are any."""
    count = int(made.opened or odd != "no thoughts") + (odd == "two thoughts")
    for index in range(count):
        made.write(rng.choice(BLANKS))
        if index or not made.opened or odd == "opened once more":
            made.write(open, rng.choice(BLANKS))
        if odd == "opened once more" and index == 0 and not made.opened:
            made.write(open)
        thought = "" if odd == "empty thoughts" else made_tools.text(rng).strip()
        if odd == "thoughts that speak of the mark":
            thought = f"Hm.{thought}{open!s}{thought}.".strip()
        made.thoughts.append(thought)
        made.write(thought, rng.choice(BLANKS), close, rng.choice(BLANKS))
    return count > 0
