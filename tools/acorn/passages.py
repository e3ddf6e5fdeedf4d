"""Fixed texts that acorn learns by heart: ways to ask, and the one answer; passages.txt holds them.

They include the chat prompts of the ladder's job `one`, so that it shows sentences and not noise.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

FILE = Path(__file__).parent / "passages.txt"
ASKED = "? "
"""Starts a line that asks; the lines after the last of them are the answer, up to a line `===`."""


@dataclass(frozen=True, slots=True)
class Passage:
    questions: tuple[str, ...]
    answer: str


def read_passages() -> tuple[Passage, ...]:
    return tuple(_passage(block) for block in FILE.read_text(encoding="utf-8").split("\n===\n"))


def _passage(block: str) -> Passage:
    lines = block.rstrip("\n").split("\n")
    questions = tuple(line.removeprefix(ASKED) for line in lines if line.startswith(ASKED))
    return Passage(questions, "\n".join(lines[len(questions) :]))


PASSAGES = read_passages()
