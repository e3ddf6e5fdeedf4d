"""Questions that changed between two answer sheets: flips in, both texts side by side for a terminal out."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from rich import box
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from onechip.ladder.answers import Flip

MARK = "▶"
"""Stands before the first character in which two texts differ."""


def marked(text: str, at: int | None) -> Text:
    """A text with MARK put in; as it is where nothing differs."""
    if at is None:
        return Text(text)
    return Text.assemble(text[:at], (MARK, "bold yellow"), (text[at:], "bold"))


def side_by_side(flips: Sequence[Flip], names: tuple[str, str]) -> RenderableType:
    """One table a question, the first sheet's text on the left."""
    return Group(*(part for flip in flips for part in _question(flip, names)))


def tally(variant: str, n: int, flips: Sequence[Flip], names: tuple[str, str]) -> str:
    """How many of n questions changed, one sentence."""
    turned = [flip.rights for flip in flips if flip.rights[0] != flip.rights[1]]
    a = sum(right for right, _ in turned)
    alone = f"only {names[0]} is right in {a}, only {names[1]} in {len(turned) - a}"
    texts = len(flips) - len(turned)
    more = f"; {texts} more differ in their text alone" if texts else ""
    return f"{variant}: {len(turned)} of {n} verdicts changed; {alone}{more}."


def _question(flip: Flip, names: tuple[str, str]) -> Iterator[RenderableType]:
    yield Text.assemble((flip.question, "bold"), f": {flip.asked}" if flip.asked else "")
    yield Text(f"expected: {flip.expected}", style="dim")
    table = Table(box=box.SQUARE, expand=True)
    for name, right in zip(names, flip.rights, strict=True):
        verdict = "right" if right else "wrong"
        table.add_column(
            Text(f"{name}: {verdict}", style="green" if right else "red"), ratio=1, overflow="fold"
        )
    table.add_row(*(marked(text, flip.differs_at) for text in flip.texts))
    yield table
