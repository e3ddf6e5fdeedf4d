"""report.html: the summary in, one self-contained page out.

The page's form is in report.html, in the frame that all pages share (page.html), and in report.css.
"""

from __future__ import annotations

from onechip.ladder.report import tables
from onechip.ladder.report.findings import findings, notices
from onechip.ladder.report.plots import plots
from onechip.ladder.report.sections import checks, sections
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
        sections=sections(summary, plots(summary)),
        checks=checks(summary),
        failed=[arm for arm in summary.manifest.arms if arm.failures],
    )
