"""report.html: the summary in, one self-contained page out.

The page's form is in report.html, in the frame that all pages share (page.html), and in report.css.
"""

from __future__ import annotations

from onechip.ladder.report import tables
from onechip.ladder.report.differences import differences
from onechip.ladder.report.findings import findings, notices
from onechip.ladder.report.plots import Plot, plots
from onechip.ladder.report.table import Table
from onechip.ladder.report.template import render
from onechip.ladder.summary import Summary


def page(summary: Summary) -> str:
    """The whole report as one HTML document that needs no network."""
    return render(
        "report.html",
        notices(summary),
        summary=summary,
        manifest=summary.manifest,
        findings=findings(summary),
        rows=tables.medal_rows(summary),
        sections=_sections(summary),
        invalid=tables.invalid(summary),
        failed=[arm for arm in summary.manifest.arms if arm.failures],
        differences=differences(summary),
        arms=tables.arms(summary),
        facts=tables.facts(summary),
    )


class Section:
    """A part of the page: plots, and the tables behind them."""

    def __init__(self, title: str, drawn: list[Plot], shown: list[Table]) -> None:
        self.title = title
        self.plots = drawn
        self.tables = [table for table in shown if table.rows]


def _sections(summary: Summary) -> list[Section]:
    """Parts that have something to show, in reading order."""
    drawn = plots(summary)

    def of(*prefixes: str) -> list[Plot]:
        return [plot for plot in drawn if plot.name.startswith(prefixes)]

    sections = [
        Section(
            "Many requests at once",
            of("throughput", "ttft"),
            [*tables.sweep(summary), tables.latency(summary)],
        ),
        Section("One request", [], [tables.speed(summary, "one", "One request, and four at once")]),
        Section("Start", of("start"), [tables.speed(summary, "start", "Stretches and memory")]),
        Section(
            "Accuracy", of("accuracy"), [tables.scores(summary), tables.pairs(summary), tables.flips(summary)]
        ),
    ]
    return [section for section in sections if section.plots or section.tables]
