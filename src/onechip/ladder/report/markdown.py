"""report.md: the summary in, one Markdown text out, with the same tables and sentences as the page."""

from __future__ import annotations

from collections.abc import Sequence

from onechip.ladder.report import tables
from onechip.ladder.report.findings import findings, notices
from onechip.ladder.report.sections import checks, sections
from onechip.ladder.report.table import Table
from onechip.ladder.report.tables import MEDAL, MedalCell
from onechip.ladder.summary import Summary


def markdown(summary: Summary) -> str:
    """The whole report as GitHub-flavoured Markdown."""
    parts = [f"# Ladder: {safe(summary.manifest.plan.model)}", *_notices(summary)]
    parts += ["## What it says", *(f"* {safe(finding.text)}" for finding in findings(summary))]
    parts += ["", "## Who wins what", _medals(summary)]
    parts += _failures(summary)
    for section in (*sections(summary), *checks(summary)):
        parts += ["", f"## {section.title}", *(f"\n{safe(note)}" for note in section.notes), ""]
        parts += [f"### {table.title}\n\n{table_text(table)}\n" for table in section.tables]
    return "\n".join(parts) + "\n"


def _failures(summary: Summary) -> list[str]:
    """What went wrong, with the last lines of each log."""
    parts = []
    for arm in summary.manifest.arms:
        for failure in arm.failures:
            during = f", {safe(failure.during)}" if failure.during else ""
            parts.append(f"**{safe(arm.name)}**{during}: {safe(failure.what)}\n")
            parts += [*(f"    {line}" for line in failure.log), ""]
    return ["", "## What went wrong", "", *parts] if parts else []


def _notices(summary: Summary) -> list[str]:
    return ["", *(f"> {safe(notice)}\n>" for notice in notices(summary)), ""]


def _medals(summary: Summary) -> str:
    head = ("task", *summary.arms, "difference [95 % interval]")
    rows = [
        (row.label, *(_medal_cell(cell) for cell in row.cells), row.verdict)
        for row in tables.medal_rows(summary)
    ]
    return table_text(Table("", head, tuple(rows), (0, len(head) - 1)))


def _medal_cell(cell: MedalCell) -> str:
    shown = f"{MEDAL} **{cell.text}**" if cell.state == "medal" else cell.text
    return f"{shown} ({cell.remark})" if cell.remark else shown


def table_text(table: Table) -> str:
    """A table in GitHub's Markdown."""
    rule = ["---" if i in table.wide else "---:" for i in range(len(table.head))]
    lines: list[Sequence[str]] = [table.head, rule, *table.rows]
    return "\n".join("| " + " | ".join(safe(cell) for cell in line) + " |" for line in lines)


def safe(text: str) -> str:
    """Text that cannot end a table cell or start markup."""
    return " ".join(text.replace("|", "\\|").replace("<", "&lt;").split())
