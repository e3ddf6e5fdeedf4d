"""A sentence of a report while it is written: queries in, their answers as text out, and kept as claims."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from onechip.ladder.claims import Claim
from onechip.ladder.queries import Query, Results, answer


class Finding(NamedTuple):
    """A sentence of a report.

    Attributes:
        sources: JSON pointers into summary.json that it was made from.
        claims: the queries that gave its numbers and names, each with what the sentence says.
    """

    text: str
    sources: tuple[str, ...]
    claims: tuple[Claim, ...] = ()


class Sentence:
    """Asks, and remembers what it asked."""

    def __init__(self, results: Results) -> None:
        self.results = results
        self._asked: list[tuple[Query, str]] = []

    def number(self, query: Query, shown: Callable[[float], str], unit: str = "") -> str:
        """A query's number as the sentence shows it; `unit` is what stands behind it in the text."""
        found = answer(query, self.results)
        assert not isinstance(found.value, str)
        text = shown(found.value)
        self._asked.append((query, f"= {text}{unit}"))
        return text

    def name(self, query: Query) -> str:
        """A query's name."""
        found = answer(query, self.results)
        self._asked.append((query, f"= {found.value}"))
        return str(found.value)

    def finding(self, text: str, sources: tuple[str, ...]) -> Finding:
        return Finding(text, sources, tuple(Claim(text, query, says) for query, says in self._asked))
