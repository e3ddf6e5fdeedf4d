"""The parts of a report in reading order: the summary in; titles, sentences, plots and tables out.

The page and the Markdown text are made from the same list, so neither can say what the other does not.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import NamedTuple

from onechip.ladder.report import resources, tables
from onechip.ladder.report.differences import differences
from onechip.ladder.report.drawing import Plot
from onechip.ladder.report.table import Table
from onechip.ladder.summary import Summary


class Section(NamedTuple):
    """One part; `shown` are tables that are open, `folded` those that a page shows on demand."""

    title: str
    plots: tuple[Plot, ...] = ()
    notes: tuple[str, ...] = ()
    shown: tuple[Table, ...] = ()
    folded: tuple[Table, ...] = ()

    @property
    def tables(self) -> tuple[Table, ...]:
        return (*self.shown, *self.folded)

    @property
    def anchor(self) -> str:
        """Its id in the page."""
        return re.sub(r"\W+", "-", self.title.lower())


def sections(summary: Summary, drawn: Sequence[Plot] = ()) -> list[Section]:
    """Parts that have something to show.

    Args:
        drawn: the summary's plots, where the reader can see them.
    """
    stretches = tables.speed(summary, "start", "Stretches, memory and energy")
    measured = [
        Section(
            "Many requests at once",
            _of(drawn, "throughput", "ttft", "waits"),
            folded=(*tables.sweep(summary), tables.latency(summary)),
        ),
        Section("One request", folded=(tables.speed(summary, "one", "One request, and four at once"),)),
        Section("Start", _of(drawn, "start"), folded=(stretches, resources.visits(summary))),
        Section("Memory and energy", notes=_memory_notes(summary), folded=(resources.memory(summary),)),
        Section("Cost", notes=_cost_notes(summary), shown=(resources.cost(summary),)),
        Section(
            "Accuracy",
            _of(drawn, "accuracy"),
            folded=tuple(
                table(summary) for table in (tables.scores, tables.pairs, tables.controls, tables.flips)
            ),
        ),
    ]
    return [found for found in map(_filled, measured) if found.plots or found.tables]


def _of(drawn: Sequence[Plot], *prefixes: str) -> tuple[Plot, ...]:
    return tuple(plot for plot in drawn if plot.name.startswith(prefixes))


def _filled(section: Section) -> Section:
    """Without tables that have no rows."""
    shown, folded = (tuple(t for t in group if t.rows) for group in (section.shown, section.folded))
    return section._replace(shown=shown, folded=folded)


def _memory_notes(summary: Summary) -> tuple[str, ...]:
    told = (
        "Resident memory is the sum over the engine's process tree, read four times a second; a page that two"
        " of its processes share counts in both. Its own pages are those that no file backs. The others are"
        " of mapped files, such as a checkpoint served from where it lies; the system can drop those and read"
        " them again. The sum of peaks takes each process at its highest mark since it was spawned, as the"
        " kernel keeps it.",
        resources.missing(summary),
    )
    return tuple(filter(None, told)) if summary.usages else ()


def _cost_notes(summary: Summary) -> tuple[str, ...]:
    return (resources.priced(summary.price),) if summary.price is not None and summary.costs else ()


def checks(summary: Summary) -> list[Section]:
    """What was refused, what engines lack, how the machine was, what ran: after the figures."""
    asked = (
        "Each engine was asked for each of these once, at its start."
        " What it lacks is left out of all its requests."
    )
    others = (
        Section("Differences", notes=(asked,), shown=(differences(summary),)),
        Section("Machine", shown=(tables.machine(summary),), folded=(resources.state(summary),)),
        Section("What ran", shown=(tables.arms(summary),), folded=tables.run(summary)),
    )
    return [_filled(_validity(summary)), *(found for found in map(_filled, others) if found.tables)]


def _validity(summary: Summary) -> Section:
    invalid = tables.invalid(summary)
    told = (
        "These cells broke a rule of measurement. They are listed, and are in no figure."
        if invalid.rows
        else "No cell broke a rule of measurement.",
        *tables.not_claimed(summary),
    )
    if len(invalid.rows) > tables.MANY_INVALID:
        return Section("Validity", notes=told, shown=(tables.refused(summary),), folded=(invalid,))
    return Section("Validity", notes=told, shown=(invalid,))
