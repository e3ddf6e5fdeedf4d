"""report.html: the summary in, one self-contained page out.

The page's form is in the template report.html and in report.css beside this file.
"""

from __future__ import annotations

from importlib.resources import files

from jinja2 import Environment, StrictUndefined

from onechip.ladder.report import tables
from onechip.ladder.report.differences import differences
from onechip.ladder.report.findings import findings, notices
from onechip.ladder.report.plots import Plot, plots
from onechip.ladder.report.table import Table
from onechip.ladder.summary import Summary

HERE = files("onechip.ladder.report")


def page(summary: Summary) -> str:
    """The whole report as one HTML document that needs no network."""
    environment = Environment(
        autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    template = environment.from_string(HERE.joinpath("report.html").read_text("utf-8"))
    return template.render(
        style=HERE.joinpath("report.css").read_text("utf-8"),
        summary=summary,
        manifest=summary.manifest,
        findings=findings(summary),
        notices=notices(summary),
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
