"""A table of strings, as every report shows it in its own way."""

from __future__ import annotations

from typing import NamedTuple

LONG = 60
"""Characters of a cell for which its column is made wide."""


class Table(NamedTuple):
    """Head and rows; `wide` names the columns that hold text rather than numbers."""

    title: str
    head: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    wide: tuple[int, ...] = (0,)

    @property
    def long(self) -> tuple[int, ...]:
        """The columns that hold sentences."""
        return tuple(at for at in self.wide if any(len(row[at]) > LONG for row in self.rows))
