"""The plots of a report: the summary in, drawings out. Nothing is drawn that is not in a table beside it."""

from __future__ import annotations

from collections.abc import Iterator

import matplotlib as mpl

from onechip.ladder.figures import KINDS, QUANTILES, Measure
from onechip.ladder.report import drawing, wording
from onechip.ladder.report.drawing import ARM_COLOURS, PAPER, Plot
from onechip.ladder.rows import lengths
from onechip.ladder.summary import Summary

HATCHES = ("", "////", "\\\\\\\\")
STRETCHES = ("spawn_to_port_s", "port_to_healthy_s", "healthy_to_token_s")
MOST_BAND = 1.6
"""How far a plot of speeds reaches beyond the fastest repeat, for the sake of an interval."""


def plots(summary: Summary) -> list[Plot]:
    """Every plot that the summary has data for."""
    shapes = dict.fromkeys(m.place.variant for m in summary.measures if m.place.job == "sweep")
    with mpl.rc_context(drawing.RC):
        drawn = [_start(summary)]
        for i, shape in enumerate(shapes):
            drawn += [_throughput(summary, shape, i), _waits(summary, shape, i)]
            drawn += [_distribution(summary, shape, i, figure) for figure in ("ttft_ms", "inter_token_ms")]
        drawn.append(_accuracy(summary))
    return [plot for plot in drawn if plot is not None]


def _throughput(summary: Summary, shape: str, number: int) -> Plot | None:
    figure, axes = drawing.frame()
    said, levels, top = [], set[int](), 0.0
    for i, arm in enumerate(summary.arms):
        line = sorted(_sweep(summary, arm, shape), key=lambda m: m.place.level)
        if not line:
            continue
        x = [m.place.level for m in line]
        levels |= set(x)
        top = max(top, *(m.spread.maximum for m in line))
        middle = [m.spread.median for m in line]
        below = [m.spread.median - m.spread.minimum for m in line]
        above = [m.spread.maximum - m.spread.median for m in line]
        axes.errorbar(x, middle, yerr=[below, above], capsize=3, label=arm, **drawing.style(i))
        bands = [m for m in line if m.spread.interval is not None]
        low = [m.spread.interval.low for m in bands if m.spread.interval]
        high = [m.spread.interval.high for m in bands if m.spread.interval]
        axes.fill_between(
            [m.place.level for m in bands], low, high, color=drawing.colour(i), alpha=0.18, lw=0
        )
        said.append(
            f"{arm} from {wording.number(middle[0])} at {x[0]} to {wording.number(middle[-1])} at {x[-1]}"
        )
    if not levels:
        return None
    drawing.level_axis(axes, levels)
    # Of few repeats that scatter an interval can be so wide that nothing else could be seen.
    axes.set_ylim(0, min(axes.get_ylim()[1], MOST_BAND * top))
    drawing.number_axis(axes.yaxis)
    axes.set_ylabel("output tok/s, whole batch")
    title = f"Throughput, {lengths(shape)}"
    alt = (
        f"Output tokens per second against requests at once: {'; '.join(said)}. Marks are medians, whiskers"
        " minimum and maximum of the repeats, bands the 95 % interval of the mean."
    )
    return drawing.finish(figure, f"throughput-{number}", title, alt)


def _waits(summary: Summary, shape: str, number: int) -> Plot | None:
    figure, axes = drawing.frame()
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
        axes.plot(x, half, label=arm, **drawing.style(i))
        axes.fill_between(x, half, most, color=drawing.colour(i), alpha=0.18, lw=0)
        axes.plot(x, most, color=drawing.colour(i), lw=0.8, ls=":")
        top = f"p50 {wording.number(half[-1])} and p90 {wording.number(most[-1])} ms at {x[-1]}"
        said.append(f"{arm} p50 {wording.number(half[0])} ms at {x[0]}, {top}")
    if not levels:
        return None
    drawing.level_axis(axes, levels)
    axes.set_yscale("log")
    drawing.log_axis(axes.yaxis)
    axes.set_ylabel("ms to the first token (log)")
    title = f"Time to first token, {lengths(shape)}"
    alt = (
        f"Time to first token against requests at once: {'; '.join(said)}."
        " Bands run from p50 (marks) to p90 (dots)."
    )
    return drawing.finish(figure, f"ttft-{number}", title, alt)


def _distribution(summary: Summary, shape: str, number: int, wait: str) -> Plot | None:
    """Share of requests, or of tokens, that waited no longer, at the most requests at once."""
    known = [found for found in summary.latencies if (found.place.variant, found.figure) == (shape, wait)]
    if not known:
        return None
    level = max(found.place.level for found in known)
    figure, axes = drawing.frame()
    said = []
    for found in sorted(known, key=lambda found: summary.arms.index(found.arm)):
        if found.place.level == level:
            i = summary.arms.index(found.arm)
            style = {**drawing.style(i), "marker": ""}
            axes.step(found.quantiles, [100 * q for q in QUANTILES], where="post", label=found.arm, **style)
            said.append(f"{found.arm} p50 {wording.number(found.p50)} and p90 {wording.number(found.p90)} ms")
    axes.set_xscale("log")
    drawing.log_axis(axes.xaxis)
    axes.set_ylim(0, 100)
    axes.set_xlabel(f"ms {KINDS[wait].label} (log)")
    axes.set_ylabel("% that waited no longer")
    what = "requests" if wait == "ttft_ms" else "tokens"
    title = f"{KINDS[wait].label.capitalize()}, {level} requests, {lengths(shape)}"
    alt = f"Share of {what} that waited no longer, at {level} requests at once: {'; '.join(said)}."
    return drawing.finish(figure, f"waits-{wait.removesuffix('_ms')}-{number}", title, alt)


def _accuracy(summary: Summary) -> Plot | None:
    if not summary.scores:
        return None
    sets = list(dict.fromkeys(s.variant for s in summary.scores))
    figure, axes = drawing.frame(0.9 + 0.34 * len(summary.scores))
    said, places, labels = [], [], []
    for y, score in enumerate(sorted(summary.scores, key=lambda s: sets.index(s.variant))):
        i = summary.arms.index(score.arm)
        low, high = 100 * (score.score - score.interval.low), 100 * (score.interval.high - score.score)
        style = {**drawing.style(i), "ls": "none"}
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
    return drawing.finish(figure, "accuracy", "Accuracy", alt, legend=False)


def _start(summary: Summary) -> Plot | None:
    bars = list(_start_bars(summary))
    if not bars:
        return None
    figure, axes = drawing.frame(1.2 + 0.42 * len(bars))
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
    return drawing.finish(figure, "start", "Start to first token", alt)


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
