"""How plots are drawn: a matplotlib figure in, inline SVG out, with text alternatives.

Colours are CSS variables of the page, so that one drawing serves light, dark and print; arms differ by marker
and line too.
"""

from __future__ import annotations

import io
import re
from collections.abc import Sequence
from html import escape
from typing import Any, NamedTuple

from matplotlib.axes import Axes
from matplotlib.axis import Axis
from matplotlib.figure import Figure
from matplotlib.ticker import FixedLocator, FuncFormatter, LogLocator, NullFormatter, NullLocator

ARM_COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9")
"""Okabe and Ito's palette, safe for colour-blind readers; the page replaces them by its variables."""
MARKERS = ("o", "s", "^", "D", "v", "P")
DASHES = ("-", (0, (5, 1.5)), (0, (1.5, 1.2)), (0, (5, 1.5, 1.2, 1.5)), (0, (8, 2)), (0, (3, 1)))
INK, RULE, PAPER = "#0a0b0c", "#0a0b0d", "#0a0b0e"
MOST_FINE = 1000
"""Ratio of a logarithmic axis' ends up to which its decades are divided."""
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


def frame(height: float = HEIGHT) -> tuple[Figure, Axes]:
    figure = Figure(figsize=(WIDTH, height), layout="constrained")
    axes = figure.add_subplot()
    axes.grid(axis="both", lw=0.6, alpha=0.5)
    axes.set_axisbelow(True)
    return figure, axes


def colour(i: int) -> str:
    """Of arm number i."""
    return ARM_COLOURS[i % len(ARM_COLOURS)]


def style(i: int) -> dict[str, Any]:
    """Colour, marker and line of arm number i."""
    return {
        "color": colour(i),
        "marker": MARKERS[i % len(MARKERS)],
        "ls": DASHES[i % len(DASHES)],
        "ms": 5.5,
        "lw": 1.6,
    }


def level_axis(axes: Axes, levels: set[int]) -> None:
    """Requests at once, doubled from mark to mark."""
    axes.set_xscale("log", base=2)
    axes.xaxis.set_major_locator(FixedLocator(sorted(levels)))
    axes.xaxis.set_minor_locator(NullLocator())
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:.0f}"))
    axes.set_xlabel("requests at once")


def log_axis(axis: Axis) -> None:
    """To be called when all is drawn: labels 1, 2, 5, 10, ... over few decades, powers of ten over many."""
    low, high = axis.get_view_interval()
    few = high < low * MOST_FINE
    axis.set_major_locator(LogLocator(subs=(1, 2, 5) if few else (1,), numticks=12))
    axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.10g}"))
    axis.set_minor_formatter(NullFormatter())
    axis.set_minor_locator(NullLocator())


def number_axis(axis: Axis) -> None:
    """Thousands separated."""
    axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.10g}"))


def finish(figure: Figure, name: str, title: str, alt: str, legend: bool = True) -> Plot:
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
