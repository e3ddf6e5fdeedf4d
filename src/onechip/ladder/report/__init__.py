"""Reports of a ladder, made from its results folder alone: summary.json, report.md and report.html."""

from onechip.ladder.report.folder import write_report
from onechip.ladder.report.tables import terminal_table

__all__ = ["terminal_table", "write_report"]
