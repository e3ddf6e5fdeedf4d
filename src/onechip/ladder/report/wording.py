"""Numbers and verdicts as a reader sees them: figures with their units in, short strings out."""

from __future__ import annotations

from collections.abc import Iterable

from onechip.ladder.answers import Pair
from onechip.ladder.figures import Place
from onechip.ladder.medals import Entry, Row, evidence_of_answers
from onechip.ladder.stats import ALPHA, MARGIN, MIN_REPEATS, Interval, Paired, Ratio
from onechip.ladder.summary import Summary

NONE = "–"
OTHER_WORK = "other work"


def number(value: float) -> str:
    """Four significant digits or so, thousands separated, never in exponents."""
    for bound, decimals in ((10, 2), (10_000, 1)):
        if abs(value) < bound:
            return f"{value:,.{decimals}f}"
    return f"{value:,.0f}"


def quantity(value: float, unit: str) -> str:
    """A figure with its unit; `value` as kept in the summary."""
    if unit == "%":
        return f"{100 * value:.1f} %"
    if unit == "bytes":
        return f"{value / 2**30:.2f} GiB" if value >= 2**30 else f"{value / 2**20:.0f} MiB"
    if unit == "J" and value < 1:
        return f"{number(1e3 * value)} mJ"
    return f"{number(value)} {unit}"


def span(interval: Interval | None, decimals: int = 2) -> str:
    """An interval of a ratio: 1.05 to 1.09."""
    return NONE if interval is None else f"{interval.low:.{decimals}f} to {interval.high:.{decimals}f}"


def points(value: float) -> str:
    """A difference of two scores in percentage points, signed."""
    rounded = round(100 * value, 1)
    return f"{rounded:+.1f}".replace("-", "−") if rounded else "0.0"


def point_span(interval: Interval) -> str:
    return f"{points(interval.low)} to {points(interval.high)}"


def probability(p: float) -> str:
    return "p < 0.001" if p < 0.001 else f"p = {p:.3f}"


def where(place: Place) -> str:
    """One place of the ladder, for lists."""
    at = f" at {place.level}" if place.job == "sweep" else ""
    return f"{place.job} {place.variant}{at}"


def reading_order(places: Iterable[Place]) -> dict[Place, int]:
    """A rank for each place: jobs and variants as they first came, levels rising.

    The order in which cells were measured is another one where arms alternate.
    """
    known = list(dict.fromkeys(places))
    jobs, variants = (list(dict.fromkeys(place[at] for place in known)) for at in (0, 1))
    known.sort(key=lambda place: (jobs.index(place.job), variants.index(place.variant), place.level))
    return {place: rank for rank, place in enumerate(known)}


def entry(row: Row, found: Entry) -> str:
    """One cell of the medal table, without its mark."""
    if found.value is None:
        return {"invalid": "INVALID", "not run": NONE}.get(found.remark, found.remark)
    if row.unit == "prompts":
        return f"{found.value:.0f}/{found.n}"
    return quantity(found.value, row.unit)


def repeats(row: Row) -> str:
    """How many repeats the arms that are compared rest on: "2" or "4 to 6"."""
    compared = (found for found in row.entries if found.arm not in row.verdict.unlike)
    counts = sorted({found.n for found in compared if found.value is not None})
    return str(counts[0]) if len(counts) == 1 else f"{counts[0]} to {counts[-1]}"


def _few(row: Row) -> str:
    """Whose repeats are too few: "1" where all arms have as many, else "B has 1"."""
    known = [e for e in row.entries if e.value is not None and e.arm not in row.verdict.unlike]
    if len({e.n for e in known}) == 1:
        return str(known[0].n)
    return ", ".join(f"{e.arm} has {e.n}" for e in known if e.n < MIN_REPEATS)


def _in_pairs(summary: Summary, row: Row) -> int | None:
    """Of how many pairs of blocks the comparison is, where arms alternated."""
    ratio = advantage(summary, row)
    return ratio.n_a if ratio is not None and ratio.blocks else None


def verdict(summary: Summary, row: Row) -> str:
    """The last column of the medal table."""
    return _outcome(summary, row) + (aside(row) if row.verdict.outcome != "no contest" else "")


def _outcome(summary: Summary, row: Row) -> str:
    found = row.verdict
    if found.outcome == "medal" and found.leader and found.runner_up:
        return f"{found.leader}, {margin(summary, row)}"
    if found.outcome == "too few repeats":
        if (pairs := _in_pairs(summary, row)) is not None:
            return f"no claim: {pairs} of {MIN_REPEATS} pairs of blocks"
        return f"no claim: {_few(row)} of {MIN_REPEATS} repeats"
    if found.outcome == "no test":
        return "count, not tested"
    if found.outcome == "not separated":
        return f"{found.leader} {_not_separated(row)}, {margin(summary, row)}"
    if found.outcome == "level":
        return f"level within {100 * MARGIN:.0f} points, {margin(summary, row)}"
    if found.outcome == "no contest" and found.leader:
        return "no two figures are of the same work" if found.unlike else f"only {found.leader} has a figure"
    return "no valid figure" if found.outcome == "no contest" else found.outcome


def brief(summary: Summary, row: Row) -> str:
    """The last column in a terminal, whose other columns say which arm leads and which has the medal."""
    found = row.verdict
    if found.outcome == "medal":
        return margin(summary, row)
    if found.outcome == "too few repeats":
        return f"no claim ({_in_pairs(summary, row) or repeats(row)} of {MIN_REPEATS})"
    if found.outcome == "not separated":
        holm = "" if found.rivals else " after Holm"
        return f"not separated{holm}, {margin(summary, row)}"
    if found.outcome == "level":
        return f"level, {margin(summary, row)}"
    if found.outcome == "no contest" and found.leader and not found.unlike:
        return "one arm only"
    return _outcome(summary, row)


def aside(row: Row) -> str:
    """Arms that are behind and cannot be compared, and those with other work, to be put behind a verdict."""
    few, unlike = row.verdict.aside, row.verdict.unlike
    said = f"; too few repeats to be compared: {', '.join(few)}" if few else ""
    return said + (f"; {OTHER_WORK}, not compared: {', '.join(unlike)}" if unlike else "")


def remark(row: Row, found: Entry) -> str:
    """What is put beside an arm's figure: that it is unstable, that it is of other work."""
    unlike = [OTHER_WORK] if found.arm in row.verdict.unlike else []
    return ", ".join([*(["UNSTABLE"] if found.remark == "UNSTABLE" else []), *unlike])


def _not_separated(row: Row) -> str:
    """Whom the leader is not separated from, or that only Holm's correction took the medal away."""
    found = row.verdict
    if not found.rivals and found.adjusted_p is not None:
        return f"not separated after Holm ({probability(found.adjusted_p)})"
    return f"not separated from {', '.join(found.rivals)}"


def margin(summary: Summary, row: Row) -> str:
    """By how much the leader differs from the runner-up, with the 95 % interval in brackets."""
    found = row.verdict
    assert found.leader is not None
    assert found.runner_up is not None
    if row.family == "accuracy":
        paired = summary.paired(row.place.variant, found.leader, found.runner_up)
        if paired is None:
            return NONE
        if not paired.flips:
            return f"no question of {paired.n} flips{_to_whom(summary, row)}"
        return f"{points(paired.difference)} points [{point_span(paired.interval)}]"
    ratio = advantage(summary, row)
    return NONE if ratio is None else f"{ratio.ratio:.2f}× [{span(ratio.interval)}]"


def _to_whom(summary: Summary, row: Row) -> str:
    """Which arm's answers the leader's are the same as, where some other arm's are not."""
    found = row.verdict
    assert found.leader is not None
    others = (
        e.arm for e in row.entries if e.value is not None and e.arm not in (found.leader, *found.unlike)
    )
    pairs = (summary.paired(row.place.variant, found.leader, arm) for arm in others)
    return f" to {found.runner_up}" if any(pair is not None and pair.flips for pair in pairs) else ""


def better(pair: Pair) -> str | None:
    """The arm whose answers are shown to be better than the other's, after Holm; None if neither is."""
    paired = pair.paired
    p = paired.p if pair.holm_p is None else pair.holm_p
    if p >= ALPHA or not evidence_of_answers(paired).separated:
        return None
    return pair.a if paired.difference > 0 else pair.b


def answers(summary: Summary, pair: Pair) -> str:
    """What a paired comparison shows, in a few words."""
    if not summary.alike(pair):
        return f"{OTHER_WORK}, not compared"
    if (winner := better(pair)) is not None:
        return f"{winner} is better"
    margin = f"level within {100 * pair.paired.margin:.0f} points"
    return margin if pair.paired.level else "neither shown to differ nor to be level"


def advantage(summary: Summary, row: Row) -> Ratio | None:
    """Better over worse: a ratio above 1 favours the leader, whichever way the figure runs."""
    found = row.verdict
    if found.leader is None or found.runner_up is None:
        return None
    ratio = summary.ratio(row.place, row.figure, found.leader, found.runner_up)
    return ratio.inverse() if ratio is not None and row.better == "lower" else ratio


def detectable(paired: Paired) -> str:
    """What this many questions could have shown."""
    if paired.detectable is None:
        return f"{paired.n} questions could show no difference of any size"
    return (
        f"{paired.n} questions show a difference of {100 * paired.detectable:.1f} points four times in five"
    )
