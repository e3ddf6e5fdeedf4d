"""The tables of a report: the summary in, tables of strings out, and the medal table for the terminal."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple, TypeVar

import msgspec
from rich import box
from rich.console import Group, RenderableType
from rich.table import Table as RichTable
from rich.text import Text

from onechip.ladder.figures import KINDS, Latency, Measure
from onechip.ladder.medals import Row
from onechip.ladder.plan import Plan
from onechip.ladder.report import wording
from onechip.ladder.report.findings import findings, notices
from onechip.ladder.report.table import Table
from onechip.ladder.report.wording import NONE
from onechip.ladder.rows import lengths
from onechip.ladder.summary import Summary

MEDAL = "🥇"
MANY_INVALID = 12
"""From here on invalid cells are counted by their reason first."""
T = TypeVar("T", Measure, Latency)


class MedalCell(NamedTuple):
    """One cell of the medal table: `state` is "medal", "plain", "apart" (other work) or "missing"."""

    text: str
    state: str
    remark: str


class MedalRow(NamedTuple):
    """One row of the medal table; `brief` is the verdict for a terminal."""

    label: str
    cells: tuple[MedalCell, ...]
    verdict: str
    brief: str


def medal_rows(summary: Summary) -> list[MedalRow]:
    """The medal table: rows are tasks, columns are the summary's arms."""
    return [
        MedalRow(
            row.label, tuple(_medal_cells(row)), wording.verdict(summary, row), wording.brief(summary, row)
        )
        for row in summary.rows
    ]


def _medal_cells(row: Row) -> Iterable[MedalCell]:
    winner = row.verdict.leader if row.verdict.outcome == "medal" else None
    for found in row.entries:
        state = "missing" if found.value is None else "medal" if found.arm == winner else "plain"
        if found.arm in row.verdict.unlike:
            state = "apart"
        yield MedalCell(wording.entry(row, found), state, wording.remark(row, found))


def terminal_table(summary: Summary) -> RenderableType:
    """The medal table, notices and findings for a terminal (rich)."""
    table = RichTable(box=box.SIMPLE_HEAD, title="Who wins what", title_justify="left", title_style="bold")
    table.add_column("task", overflow="fold")
    for arm in summary.arms:
        table.add_column(arm, justify="right")
    table.add_column("difference [95 %]")
    for row in medal_rows(summary):
        cells = [_rich_cell(cell) for cell in row.cells]
        table.add_row(row.label, *cells, Text(row.brief))
    said = [Text(f"• {finding.text}") for finding in findings(summary)]
    told = [Text(f"! {notice}", style="yellow") for notice in notices(summary)]
    return Group(table, *said, Text(""), *told)


def _rich_cell(cell: MedalCell) -> Text:
    mark = f"{MEDAL} " if cell.state == "medal" else ""
    style = {"medal": "bold green", "apart": "dim", "missing": "dim"}.get(cell.state, "")
    return Text(mark + cell.text + (f" {cell.remark}" if cell.remark else ""), style=style)


def speed(summary: Summary, job: str, title: str, variant: str | None = None) -> Table:
    """Median, extremes, spread and both intervals of every figure of a job, or of one variant of it."""
    known = [m for m in summary.measures if m.place.job == job and variant in (None, m.place.variant)]
    rows = [_speed_row(m) for m in _side_by_side(known)]
    head = (
        *("place", "figure", "arm", "headline", "n", "min", "median", "max", "spread"),
        *("mean, 95 % interval", "median, 95 % bootstrap", "stability"),
    )
    return Table(title, head, tuple(rows), (0, 1, 2, 11))


def _side_by_side(known: Sequence[T]) -> list[T]:
    """Places in reading order, their figures as they first came, arms next to each other."""
    places = wording.reading_order(m.place for m in known)
    figures = {figure: at for at, figure in enumerate(dict.fromkeys(m.figure for m in known))}
    return sorted(known, key=lambda m: (places[m.place], figures[m.figure]))


def sweep(summary: Summary) -> list[Table]:
    """One table of speeds for each shape."""
    shapes = dict.fromkeys(m.place.variant for m in summary.measures if m.place.job == "sweep")
    return [speed(summary, "sweep", f"Speeds, {lengths(shape)}", shape) for shape in shapes]


def _speed_row(m: Measure) -> tuple[str, ...]:
    unit, s = KINDS[m.figure].unit, m.spread
    intervals = [
        NONE if i is None else f"{wording.quantity(i.low, unit)} to {wording.quantity(i.high, unit)}"
        for i in (s.interval, s.bootstrap)
    ]
    return (
        wording.where(m.place),
        KINDS[m.figure].label,
        m.arm,
        wording.quantity(m.headline, unit),
        str(s.n),
        *(wording.quantity(value, unit) for value in (s.minimum, s.median, s.maximum)),
        f"{100 * s.spread:.1f} %" if s.n > 1 else NONE,
        *intervals,
        f"UNSTABLE: {'; '.join(s.unstable)}" if s.unstable else "",
    )


def latency(summary: Summary) -> Table:
    """Percentiles of TTFT and inter-token time in the sweep."""
    rows = []
    for found in _side_by_side(summary.latencies):
        tail = (NONE if value is None else wording.number(value) for value in (found.p95, found.p99))
        body = (wording.number(found.p50), wording.number(found.p90), *tail)
        label = KINDS[found.figure].label
        rows.append((wording.where(found.place), label, found.arm, f"{found.n:,}", *body))
    head = ("place", "wait", "arm", "samples", "p50 ms", "p90 ms", "p95 ms", "p99 ms")
    return Table("Waits in the sweep", head, tuple(rows), (0, 1, 2))


def scores(summary: Summary) -> Table:
    """Each arm's score on each set, with every scorer's count."""
    rows = []
    sets = list(dict.fromkeys(score.variant for score in summary.scores))
    for s in sorted(summary.scores, key=lambda score: sets.index(score.variant)):
        interval = f"{100 * s.interval.low:.1f} to {100 * s.interval.high:.1f} %"
        scorers = ", ".join(f"{name} {right}" for name, right in s.scorers.items())
        found = (
            f"{s.right}/{s.n}",
            f"{100 * s.score:.1f} %",
            interval,
            str(s.truncated),
            str(s.unparsed),
            scorers,
        )
        rows.append((s.variant, s.arm, *found))
    head = ("set", "arm", "right", "score", "Wilson 95 %", "cut at the limit", "unreadable", "by scorer")
    return Table("Scores", head, tuple(rows), (0, 1, 7))


def pairs(summary: Summary) -> Table:
    """Paired comparisons with the reference arm."""
    rows = []
    for found in summary.pairs:
        if found.b != summary.arms[0]:
            continue
        p = found.paired
        shown = NONE if p.detectable is None else f"{100 * p.detectable:.1f}"
        counts = (str(p.both), str(p.only_a), str(p.only_b), str(p.neither))
        tests = (f"{p.p:.4f}", NONE if found.holm_p is None else f"{found.holm_p:.4f}")
        difference = (
            wording.points(p.difference),
            wording.point_span(p.interval),
            wording.point_span(p.adjusted),
        )
        rows.append(
            (
                found.variant,
                f"{found.a} − {found.b}",
                *counts,
                *difference,
                *tests,
                shown,
                wording.answers(summary, found),
            )
        )
    head = (
        *(
            "set",
            "arms",
            "both",
            "only first",
            "only second",
            "neither",
            "difference, points",
            "bootstrap 95 %",
        ),
        *("Bonett-Price 95 %", "McNemar p", "Holm p", "detectable, points", "what it shows"),
    )
    return Table("Paired by question", head, tuple(rows), (0, 1, 12))


def controls(summary: Summary) -> Table:
    """Arms that were asked again, against themselves; beside it the flips between each and the reference."""
    flips = {(pair.variant, pair.a): pair.paired.flips for pair in summary.pairs if pair.b == summary.arms[0]}
    rows = [
        (
            found.variant,
            found.arm,
            str(found.askings),
            str(found.n),
            f"{found.flips:.1f}",
            f"{100 * found.rate:.1f} %",
            f"{100 * found.interval.low:.1f} to {100 * found.interval.high:.1f} %",
            f"{found.texts:.1f}",
            str(flips.get((found.variant, found.arm), NONE)),
        )
        for found in summary.controls
    ]
    head = (
        *("set", "arm", "askings", "questions", "own flips", "rate", "Clopper-Pearson 95 %"),
        *("texts that differ", "flips against the reference"),
    )
    return Table("Asked again", head, tuple(rows), (0, 1))


def flips(summary: Summary) -> Table:
    """Questions that only one of an arm and the reference got right."""
    rows = [
        (
            pair.variant,
            flip.question,
            flip.expected,
            pair.a if flip.rights[0] else pair.b,
            *(_short(text) for text in flip.texts),
        )
        for pair in summary.pairs
        if pair.b == summary.arms[0]
        for flip in pair.flips
    ]
    head = ("set", "question", "expected", "only right", "first arm wrote", "reference wrote")
    return Table("Flips", head, tuple(rows), (0, 1, 2, 3, 4, 5))


def invalid(summary: Summary) -> Table:
    """Cells that no figure uses, with their reasons."""
    rows = [
        (found.arm, wording.where(found.place), str(found.repeat + 1), " ".join(found.reasons))
        for found in summary.invalid
    ]
    return Table("INVALID cells", ("arm", "place", "repeat", "why"), tuple(rows), (0, 1, 3))


def refused(summary: Summary) -> Table:
    """Invalid cells counted by arm, place and kind of reason, which is its sentence without the numbers."""
    counts: dict[tuple[str, str, str], list[str]] = {}
    for found in summary.invalid:
        for reason in found.reasons:
            kind = (found.arm, wording.where(found.place), re.sub(r"\d[\d.,]*", "#", reason))
            counts.setdefault(kind, []).append(reason)
    rows = [(arm, place, str(len(said)), said[0]) for (arm, place, _), said in counts.items()]
    head = ("arm", "place", "cells", "why, the first")
    return Table("INVALID cells, counted", head, tuple(rows), (0, 1, 3))


def not_claimed(summary: Summary) -> Iterable[str]:
    """One sentence on the rows in which no claim was made for want of repeats."""
    few = [row.label for row in summary.rows if row.verdict.outcome == "too few repeats"]
    if few:
        yield (
            f"In {len(few)} of {len(summary.rows)} rows no claim is made, for want of valid repeats:"
            f" {', '.join(few)}."
        )


def arms(summary: Summary) -> Table:
    """What each arm ran: version, command line, environment, checkpoint and how it was made."""
    rows = []
    for arm in summary.manifest.arms:
        environment = " ".join(f"{name}={value}" for name, value in arm.environment.items()) or NONE
        hashes = ", ".join(f"{name} {digest[:12]}" for name, digest in arm.checkpoint.items()) or NONE
        command = " ".join(arm.command) or NONE
        rows.append((arm.name, arm.version, command, environment, hashes, _made(arm.weights)))
    head = ("arm", "version", "command", "environment set", "checkpoint (SHA-256, first 12)", "weights")
    return Table("Arms", head, tuple(rows), (0, 1, 2, 3, 4, 5))


def _made(weights: dict[str, Any]) -> str:
    """How an arm's weights were made from MODEL."""
    if not weights:
        return NONE
    if not weights.get("command"):
        return "MODEL as it is"
    return " ".join([*weights["command"], "—", *weights.get("notes", [])])


def machine(summary: Summary) -> Table:
    """The machine that all arms ran on."""
    rows = tuple((name.replace("_", " "), value) for name, value in summary.manifest.machine.items())
    return Table("The machine", ("what", "value"), rows, (0, 1))


def run(summary: Summary) -> tuple[Table, ...]:
    """The manifest: when, from what, by which definitions; the options; every file."""
    m = summary.manifest
    rows = [
        *((f"onechip: {name}", value) for name, value in m.onechip.items()),
        ("model", m.plan.model),
        ("started", m.started_at),
        *(("resumed", moment) for moment in m.resumed_at),
        ("finished", m.finished_at or "not finished"),
        *(("design", said) for said in m.design),
        ("timing definitions", f"version {', '.join(map(str, summary.timing_versions)) or NONE}"),
        *((f"prompts: {name}", digest) for name, digest in m.prompts.items()),
        *(
            (f"data: {name}", ", ".join(f"{k} {v}" for k, v in entry.items()))
            for name, entry in m.data.items()
        ),
        *((f"scorer: {name}", f"version {version}") for name, version in m.scorers.items()),
        *((f"client, worst: {name}", wording.number(value)) for name, value in summary.client_worst.items()),
    ]
    files = [("MODEL", name, digest) for name, digest in m.source.items()]
    files += [(arm.name, name, digest) for arm in m.arms for name, digest in arm.checkpoint.items()]
    return (
        Table("Run", ("what", "value"), tuple(rows), (0, 1)),
        Table("Options", ("option", "value"), tuple(_options(m.plan)), (0, 1)),
        Table("Files", ("of", "file", "SHA-256"), tuple(files), (0, 1, 2)),
    )


def _options(plan: Plan) -> Iterable[tuple[str, str]]:
    """Everything that was chosen, by its own choice or by default, but the arms, which have a table."""
    for name, value in msgspec.to_builtins(plan).items():
        if name == "limits":
            yield from ((f"limit: {limit}", f"{seconds:g}") for limit, seconds in value.items())
        elif name not in ("arms", "model"):
            yield name, json.dumps(value, ensure_ascii=False)


def _short(text: str, limit: int = 160) -> str:
    """The end of a text, where its answer stands."""
    flat = " ".join(text.split())
    return flat if len(flat) <= limit else f"… {flat[-limit:]}"
