"""Figures of bench/cpu.py in, Markdown out: each measure beside its bound, and ours over the best peer."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass, field


@dataclass(frozen=True)
class Measure:
    """One thing that was measured on every arm.

    Attributes:
        name, unit: for the table.
        higher: whether more is better.
        values: arm -> round -> figure. A round that failed or was not valid is not there.
        bounds: arm -> the best figure that the machine could give; empty where there is none.
    """

    name: str
    unit: str
    higher: bool
    values: dict[str, dict[int, float]] = field(default_factory=dict)
    bounds: dict[str, float] = field(default_factory=dict)

    def add(self, arm: str, turn: int, value: float) -> None:
        self.values.setdefault(arm, {})[turn] = value

    def median(self, arm: str) -> float | None:
        """None if no round gave a figure."""
        found = self.values.get(arm)
        return statistics.median(found.values()) if found else None


@dataclass(frozen=True)
class Ratio:
    """How many times better one arm is than another: the median of the rounds, the least and the most."""

    median: float
    least: float
    most: float


def number(value: float) -> str:
    """Three digits, or all in front of the point."""
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


def spread(values: Sequence[float]) -> float:
    """The largest over the smallest, less 1."""
    return max(values) / min(values) - 1


def table(measures: Sequence[Measure], arms: Sequence[str]) -> list[str]:
    """A line for each measure: of each arm its median, spread, and share of its bound."""
    lines = [f"| | {' | '.join(arms)} |", f"|---|{'---|' * len(arms)}"]
    for measure in measures:
        cells = [_cell(measure, arm) for arm in arms]
        lines.append(f"| {measure.name}, {measure.unit} | {' | '.join(cells)} |")
    return lines


def _cell(measure: Measure, arm: str) -> str:
    median = measure.median(arm)
    if median is None:
        return "-"
    values = list(measure.values[arm].values())
    text = number(median)
    if len(values) > 1:
        text += f" (spread {spread(values):.1%} of {len(values)})"
    bound = measure.bounds.get(arm)
    if bound is not None:
        share = median / bound if measure.higher else bound / median
        text += f", {share:.0%} of {number(bound)}"
    return text


def ratio(measure: Measure, ours: str, peer: str) -> Ratio | None:
    """How many times better we are, round by round; None if no round has both."""
    mine, theirs = measure.values.get(ours, {}), measure.values.get(peer, {})
    turns = sorted(mine.keys() & theirs.keys())
    found = [mine[turn] / theirs[turn] if measure.higher else theirs[turn] / mine[turn] for turn in turns]
    return Ratio(statistics.median(found), min(found), max(found)) if found else None


def best_peer(measure: Measure, peers: Sequence[str]) -> str | None:
    """The peer with the best median; None if none has one."""
    medians = {arm: median for arm in peers if (median := measure.median(arm)) is not None}
    if not medians:
        return None
    return (max if measure.higher else min)(medians, key=lambda arm: medians[arm])


def ratios(measures: Sequence[Measure], ours: Sequence[str], peers: Sequence[str]) -> list[str]:
    """How many times better each of our arms is than the best peer; empty without both sides."""
    if not ours or not peers:
        return []
    lines = [f"| | best peer | {' | '.join(ours)} |", f"|---|---|{'---|' * len(ours)}"]
    for measure in measures:
        peer = best_peer(measure, peers)
        if peer is not None:
            cells = [_said(ratio(measure, arm, peer)) for arm in ours]
            lines.append(f"| {measure.name} | {peer} | {' | '.join(cells)} |")
    return lines


def _said(found: Ratio | None) -> str:
    if found is None:
        return "-"
    return f"**{found.median:.2f}x** ({found.least:.2f} to {found.most:.2f})"
