"""A table of strings, as every report shows it in its own way."""

from __future__ import annotations

from collections.abc import Collection
from typing import NamedTuple

from onechip.ladder.report.wording import NONE

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

    def without_empty(self, out: Collection[int] = ()) -> Table:
        """Without columns in which no row has anything, and without those of `out`."""
        found = [at for at in range(len(self.head)) if any(row[at] not in (NONE, "") for row in self.rows)]
        kept = [at for at in found if at not in out]
        wide = tuple(number for number, at in enumerate(kept) if at in self.wide)
        rows = tuple(tuple(row[at] for at in kept) for row in self.rows)
        return Table(self.title, tuple(self.head[at] for at in kept), rows, wide)
