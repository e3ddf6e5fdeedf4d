"""A roll-up as a reader sees it: lines in; tables for a terminal, one Markdown text and one HTML page out."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Literal

import msgspec
from rich import box
from rich.console import Group as Lines
from rich.console import RenderableType
from rich.table import Table as RichTable
from rich.text import Text

from onechip.ladder.disk import writing
from onechip.ladder.report.markdown import safe, table_text
from onechip.ladder.report.resources import dollars
from onechip.ladder.report.table import Table
from onechip.ladder.report.template import render
from onechip.ladder.report.wording import NONE, number
from onechip.ladder.rollup import MANY, MANY_SHAPE, PUBLISHED, Group, Line, Rollup, Value
from onechip.ladder.rows import lengths

NAME = "rollup"
HEAD = (
    *("chip", "engine", "weights", "one request, tok/s", f"{MANY} requests, {lengths(MANY_SHAPE)}, tok/s"),
    *("$ per million of these tokens", "best drafter", "start, s", "quality", "what it needed", "source"),
)
BRIEF = (
    *("chip", "engine", "weights", "1 request, tok/s", f"{MANY} requests, tok/s", "$/M", "drafter"),
    *("start, s", "quality", "what it needed", "source"),
)
"""The same for a terminal."""
WIDE = (0, 1, 2, 8, 9, 10)
NEEDS, SOURCE = 9, 10
LEAST_WIDTH = 12
"""Words up to this length are never broken in a terminal."""


def tables(rollup: Rollup) -> list[Table]:
    """One table a model, which is its title; without columns in which no line has anything."""
    return [Table(group.model, HEAD, _rows(group), WIDE).without_empty() for group in rollup.groups]


def _rows(group: Group) -> tuple[tuple[str, ...], ...]:
    rows, before = [], ""
    for line in group.lines:
        chip, before = "" if line.chip == before else line.chip, line.chip
        figures = (
            *(_value(found, line) for found in (line.one, line.many)),
            _cost(line.cost),
            _ratio(line.drafter),
            _value(line.start_s, line),
        )
        rest = (_quality(line), line.needs or NONE, line.source)
        rows.append((chip, _engine(line), line.precision or NONE, *figures, *rest))
    return tuple(rows)


def _engine(line: Line) -> str:
    return f"{line.engine} {line.version}".strip()


def _value(found: Value, line: Line) -> str:
    """A figure of ours as in its report; a published one with the digits that it was published with."""
    if found.value is None:
        return found.remark or NONE
    typed = f"{found.value:,.1f}".removesuffix(".0")
    shown = typed if line.source == PUBLISHED else number(found.value)
    return f"{shown} ({found.remark})" if found.remark else shown


def _cost(found: Value) -> str:
    """Without its setting, which stands beside the speed."""
    return NONE if found.value is None else dollars(found.value)


def across(group: Group) -> Table:
    """Engines that are on more than one chip: a line for each of two speeds, a column a chip.

    Several figures of one engine on one chip stand side by side, in the order of the lines.
    """
    found: dict[str, dict[str, list[Line]]] = {}
    for line in group.lines:
        if line.one.value is not None or line.many.value is not None:
            name = " ".join(filter(None, [line.engine, line.precision]))
            found.setdefault(name, {}).setdefault(line.chip, []).append(line)
    several = {name: chips for name, chips in found.items() if len(chips) > 1}
    listed = list(dict.fromkeys(chip for line in several.values() for chip in line))
    rows = [
        (name, label, *(_joined(chips.get(chip, []), many) for chip in listed))
        for name, chips in several.items()
        for label, many in (("1 request", False), (f"{MANY} requests", True))
    ]
    known = tuple(row for row in rows if any(cell != NONE for cell in row[2:]))
    return Table("The same engine on another chip, tok/s", ("engine", "", *listed), known, (0, 1))


def _joined(lines: Sequence[Line], many: bool) -> str:
    return "; ".join(_value(line.many if many else line.one, line) for line in lines) or NONE


def _ratio(found: Value) -> str:
    return found.remark or NONE if found.value is None else f"{found.value:.2f}×"


def _quality(line: Line) -> str:
    scores = (f"{s.set} {100 * s.score:.1f} %" + (f" of {s.n}" if s.n else "") for s in line.quality)
    return "; ".join(scores) or NONE


def terminal(rollup: Rollup) -> RenderableType:
    """Figures as tables, and all sentences below them: a terminal is too narrow for both side by side."""
    parts: list[RenderableType] = []
    for group in rollup.groups:
        needs = [f"{line.chip}, {_engine(line)}: {line.needs}" for line in group.lines if line.needs]
        parts += [_rich(group), *(Text(f"• {text}") for text in needs)]
        parts += [*(Text(f"! {remark}", style="yellow") for remark in group.remarks), Text("")]
    return Lines(*parts, *(Text(f"! {remark}", style="yellow") for remark in rollup.remarks))


def _rich(group: Group) -> RichTable:
    one_source = len({line.source for line in group.lines}) == 1
    out = (NEEDS, SOURCE) if one_source else (NEEDS,)
    table = Table(group.model, BRIEF, _rows(group), WIDE).without_empty(out)
    shown = RichTable(box=box.SIMPLE_HEAD, title_justify="left", title_style="bold", pad_edge=False)
    shown.title, shown.padding = table.title, (0, 1, 0, 0)
    for at, name in enumerate(table.head):
        longest = max(len(word) for row in table.rows for word in (*name.split(), *row[at].split()))
        side: Literal["left", "right"] = "left" if at in table.wide else "right"
        shown.add_column(name, justify=side, min_width=min(longest, LEAST_WIDTH), overflow="fold")
    for row in table.rows:
        shown.add_row(*(Text(cell) for cell in row))
    return shown


def markdown(rollup: Rollup) -> str:
    """The whole roll-up as GitHub-flavoured Markdown."""
    parts = ["# Ladders side by side", "", *_quoted(rollup.remarks)]
    for group, table in zip(rollup.groups, tables(rollup), strict=True):
        parts += [f"## {safe(group.model)}", "", table_text(table), ""]
        if (same := across(group)).rows:
            parts += [f"### {safe(same.title)}", "", table_text(same), ""]
        parts += _quoted(group.remarks)
    return "\n".join(parts) + "\n"


def _quoted(remarks: Sequence[str]) -> list[str]:
    return [*(f"> {safe(remark)}\n>" for remark in remarks), ""]


def page(rollup: Rollup) -> str:
    """The whole roll-up as one HTML document that needs no network."""
    groups = [(g, table, across(g)) for g, table in zip(rollup.groups, tables(rollup), strict=True)]
    return render("rollup.html", rollup.remarks, groups=groups)


def write(rollup: Rollup, folder: Path) -> Path:
    """Writes rollup.json, rollup.md and rollup.html into a folder; returns the page's path.

    Raises:
        LadderError: the disk is full.
    """
    folder.mkdir(parents=True, exist_ok=True)
    encoded = msgspec.json.format(msgspec.json.encode(rollup), indent=1).decode() + "\n"
    for suffix, text in (("json", encoded), ("md", markdown(rollup)), ("html", page(rollup))):
        path = folder / f"{NAME}.{suffix}"
        fresh = path.with_name(path.name + ".new")
        with writing(path, folder):
            fresh.write_text(text, encoding="utf-8")
        os.replace(fresh, path)
    return folder / f"{NAME}.html"
