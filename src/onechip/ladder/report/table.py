"""A table of strings, as every report shows it in its own way."""

from __future__ import annotations

from typing import NamedTuple


class Table(NamedTuple):
    """Head and rows; `wide` names the columns that hold text rather than numbers."""

    title: str
    head: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    wide: tuple[int, ...] = (0,)
