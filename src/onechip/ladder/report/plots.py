"""The plots of a report: the summary in, inline SVG out, with text alternatives.

Colours are CSS variables of the page, so that one drawing serves light, dark and print; arms differ by marker
and line too. Nothing is drawn that is not in a table beside it.
"""

from __future__ import annotations

import io
import re
from collections.abc import Iterator, Sequence
from html import escape
from typing import Any, NamedTuple

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FixedLocator, FuncFormatter, NullFormatter, NullLocator

from onechip.ladder.figures import KINDS, Measure
from onechip.ladder.report import wording
from onechip.ladder.rows import lengths
from onechip.ladder.summary import Summary

ARM_COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9")
"""Okabe and Ito's palette, safe for colour-blind readers; the page replaces them by its variables."""
MARKERS = ("o", "s", "^", "D", "v", "P")
DASHES = ("-", (0, (5, 1.5)), (0, (1.5, 1.2)), (0, (5, 1.5, 1.2, 1.5)), (0, (8, 2)), (0, (3, 1)))
INK, RULE, PAPER = "#0a0b0c", "#0a0b0d", "#0a0b0e"
STRETCHES = ("spawn_to_port_s", "port_to_healthy_s", "healthy_to_token_s")
HATCHES = ("", "////", "\\\\\\\\")
WIDTH, HEIGHT = 4.8, 3.3

RC: dict[Any, Any] = {
    "svg.fonttype": "none",
    "svg.hashsalt": "onechip",
    "font.family": "sans-serif",
    "font.size": 10,
    "text.color": INK,
    "axes.labelcolor": INK,
    "axes.edgecolor": RULE,
    "xtick.color": INK,
    "ytick.color": INK,
    "grid.color": RULE,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "hatch.linewidth": 0.6,
}


class Plot(NamedTuple):
    """One drawing: `alt` says in words what it shows, `svg` is safe to place in the page."""

    name: str
    title: str
    alt: str
    svg: str


def plots(summary: Summary) -> list[Plot]:
    """Every plot that the summary has data for."""
    shapes = dict.fromkeys(m.place.variant for m in summary.measures if m.place.job == "sweep")
    with mpl.rc_context(RC):
        drawn = [_start(summary)]
        for i, shape in enumerate(shapes):
            drawn += [_throughput(summary, shape, i), _waits(summary, shape, i)]
        drawn.append(_accuracy(summary))
    return [plot for plot in drawn if plot is not None]


def _throughput(summary: Summary, shape: str, number: int) -> Plot | None:
    figure, axes = _frame()
    said, levels = [], set[int]()
    for i, arm in enumerate(summary.arms):
        line = sorted(_sweep(summary, arm, shape), key=lambda m: m.place.level)
        if not line:
            continue
        x = [m.place.level for m in line]
        levels |= set(x)
        middle = [m.spread.median for m in line]
        below = [m.spread.median - m.spread.minimum for m in line]
        above = [m.spread.maximum - m.spread.median for m in line]
        axes.errorbar(x, middle, yerr=[below, above], capsize=3, label=arm, **_style(i))
        bands = [m for m in line if m.spread.interval is not None]
        low = [m.spread.interval.low for m in bands if m.spread.interval]
        high = [m.spread.interval.high for m in bands if m.spread.interval]
        axes.fill_between([m.place.level for m in bands], low, high, color=_colour(i), alpha=0.18, lw=0)
        said.append(
            f"{arm} from {wording.number(middle[0])} at {x[0]} to {wording.number(middle[-1])} at {x[-1]}"
        )
    if not levels:
        return None
    _level_axis(axes, levels)
    axes.set_ylim(bottom=0)
    axes.set_ylabel("output tok/s, whole batch")
    title = f"Throughput, {lengths(shape)}"
    alt = (
        f"Output tokens per second against requests at once: {'; '.join(said)}. Marks are medians, whiskers"
        " minimum and maximum of the repeats, bands the 95 % interval of the mean."
    )
    return _finish(figure, axes, f"throughput-{number}", title, alt)


def _waits(summary: Summary, shape: str, number: int) -> Plot | None:
    figure, axes = _frame()
    said, levels = [], set[int]()
    for i, arm in enumerate(summary.arms):
        line = [
            found
            for found in summary.latencies
            if found.arm == arm and found.place.variant == shape and found.figure == "ttft_ms"
        ]
        line.sort(key=lambda found: found.place.level)
        if not line:
            continue
        x = [found.place.level for found in line]
        levels |= set(x)
        half, most = [found.p50 for found in line], [found.p90 for found in line]
        axes.plot(x, half, label=arm, **_style(i))
        axes.fill_between(x, half, most, color=_colour(i), alpha=0.18, lw=0)
        axes.plot(x, most, color=_colour(i), lw=0.8, ls=":")
        top = f"p50 {wording.number(half[-1])} and p90 {wording.number(most[-1])} ms at {x[-1]}"
        said.append(f"{arm} p50 {wording.number(half[0])} ms at {x[0]}, {top}")
    if not levels:
        return None
    _level_axis(axes, levels)
    axes.set_yscale("log")
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    axes.yaxis.set_minor_formatter(NullFormatter())
    axes.set_ylabel("ms to the first token (log)")
    title = f"Time to first token, {lengths(shape)}"
    alt = (
        f"Time to first token against requests at once: {'; '.join(said)}."
        " Bands run from p50 (marks) to p90 (dots)."
    )
    return _finish(figure, axes, f"ttft-{number}", title, alt)


def _accuracy(summary: Summary) -> Plot | None:
    if not summary.scores:
        return None
    sets = list(dict.fromkeys(s.variant for s in summary.scores))
    figure, axes = _frame(0.9 + 0.34 * len(summary.scores))
    said, places, labels = [], [], []
    for y, score in enumerate(sorted(summary.scores, key=lambda s: sets.index(s.variant))):
        i = summary.arms.index(score.arm)
        low, high = 100 * (score.score - score.interval.low), 100 * (score.interval.high - score.score)
        style = {**_style(i), "ls": "none"}
        axes.errorbar([100 * score.score], [y], xerr=[[max(low, 0)], [max(high, 0)]], capsize=3, **style)
        places.append(y)
        labels.append(f"{score.arm}\n{score.variant}")
        said.append(f"{score.arm} on {score.variant} {100 * score.score:.1f} %")
    axes.set_yticks(places, labels, fontsize=8)
    axes.set_ylim(len(places) - 0.5, -0.5)
    axes.set_xlim(0, 100)
    axes.set_xlabel("% answered rightly")
    alt = (
        f"Scores with Wilson 95 % intervals: {'; '.join(said)}."
        " Arms are compared question by question in the table, not by these intervals."
    )
    return _finish(figure, axes, "accuracy", "Accuracy", alt, legend=False)


def _start(summary: Summary) -> Plot | None:
    bars = list(_start_bars(summary))
    if not bars:
        return None
    figure, axes = _frame(1.2 + 0.42 * len(bars))
    for y, (_, stretches) in enumerate(bars):
        left = 0.0
        for i, seconds in enumerate(stretches):
            label = KINDS[STRETCHES[i]].label if y == 0 else None
            colour = ARM_COLOURS[(2, 4, 3)[i]]
            axes.barh(
                y, seconds, left=left, color=colour, hatch=HATCHES[i], ec=PAPER, height=0.62, label=label
            )
            left += seconds
        axes.text(left, y, f" {wording.number(left)} s", va="center", fontsize=9)
    axes.set_yticks(range(len(bars)), [label for label, _ in bars], fontsize=8)
    axes.set_ylim(len(bars) - 0.5, -0.5)
    axes.margins(x=0.18)
    axes.set_xlabel("seconds")
    said = "; ".join(
        f"{label.replace(chr(10), ', ')} {wording.number(sum(parts))} s" for label, parts in bars
    )
    alt = f"Start to first token in three stretches, median of the starts: {said}."
    return _finish(figure, axes, "start", "Start to first token", alt)


def _start_bars(summary: Summary) -> Iterator[tuple[str, list[float]]]:
    """Label and the three stretches in seconds of each arm and cache, where all three are known."""
    known = {
        (m.arm, m.place.variant, m.figure): m.headline for m in summary.measures if m.place.job == "start"
    }
    for variant in ("cold", "warm"):
        for arm in summary.arms:
            found = [known[arm, variant, name] for name in STRETCHES if (arm, variant, name) in known]
            if len(found) == len(STRETCHES):
                yield f"{arm}\n{variant} cache", found


def _sweep(summary: Summary, arm: str, shape: str) -> list[Measure]:
    return [
        m
        for m in summary.measures
        if m.arm == arm and m.place[:2] == ("sweep", shape) and m.figure == "whole_batch_tok_s"
    ]


def _frame(height: float = HEIGHT) -> tuple[Figure, Axes]:
    figure = Figure(figsize=(WIDTH, height), layout="constrained")
    axes = figure.add_subplot()
    axes.grid(axis="both", lw=0.6, alpha=0.5)
    axes.set_axisbelow(True)
    return figure, axes


def _colour(i: int) -> str:
    return ARM_COLOURS[i % len(ARM_COLOURS)]


def _style(i: int) -> dict[str, Any]:
    """Colour, marker and line of arm number i."""
    return {
        "color": _colour(i),
        "marker": MARKERS[i % len(MARKERS)],
        "ls": DASHES[i % len(DASHES)],
        "ms": 5.5,
        "lw": 1.6,
    }


def _level_axis(axes: Axes, levels: set[int]) -> None:
    axes.set_xscale("log", base=2)
    axes.xaxis.set_major_locator(FixedLocator(sorted(levels)))
    axes.xaxis.set_minor_locator(NullLocator())
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:.0f}"))
    axes.set_xlabel("requests at once")


def _finish(figure: Figure, axes: Axes, name: str, title: str, alt: str, legend: bool = True) -> Plot:
    if legend:
        figure.legend(loc="outside upper left", ncols=2, frameon=False, fontsize=9, handlelength=2.8)
    buffer = io.StringIO()
    figure.savefig(buffer, format="svg", transparent=True, metadata={"Date": None})
    return Plot(name, title, alt, _inline(buffer.getvalue(), name, title, alt))


def _inline(svg: str, name: str, title: str, alt: str) -> str:
    """An SVG file as an element of the page: no addresses, unique ids, the page's colours, alternatives."""
    svg = svg[svg.index("<svg") :]
    svg = re.sub(r"<metadata>.*?</metadata>", "", svg, flags=re.DOTALL)
    view = re.search(r'viewBox="[^"]+"', svg)
    body = svg[svg.index(">") + 1 :]
    body = re.sub(r'\bid="', f'id="{name}-', body)
    body = body.replace("url(#", f"url(#{name}-").replace('href="#', f'href="#{name}-')
    for variable, colour in _variables():
        body = body.replace(colour, f"var(--{variable})")
    head = f'<svg {view.group(0) if view else ""} role="img" aria-labelledby="{name}-t {name}-d">'
    words = f'<title id="{name}-t">{escape(title)}</title><desc id="{name}-d">{escape(alt)}</desc>'
    return head + words + body


def _variables() -> Sequence[tuple[str, str]]:
    """CSS variable and the colour that stands for it in a drawing."""
    arms = [(f"arm-{i}", colour) for i, colour in enumerate(ARM_COLOURS)]
    return [("ink", INK), ("rule", RULE), ("paper", PAPER), *arms]
