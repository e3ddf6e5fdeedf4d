"""What a report says in words: the summary in, sentences out.

No sentence holds a number or a name that is not read from the summary, and each says where it was read: JSON
pointers into summary.json.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import NamedTuple

from onechip.ladder.answers import Pair
from onechip.ladder.manifest import ArmManifest
from onechip.ladder.medals import Row
from onechip.ladder.records import TIMING_VERSION
from onechip.ladder.report import wording
from onechip.ladder.report.differences import lacks
from onechip.ladder.stats import FEW_FLIPS, MIN_REPEATS
from onechip.ladder.summary import Summary


class Finding(NamedTuple):
    """One sentence, and the JSON pointers into summary.json that it was made from."""

    text: str
    sources: tuple[str, ...]


def findings(summary: Summary) -> list[Finding]:
    """Who wins what and by how much; what is not separated; what cannot be claimed; accuracy; validity."""
    return [
        *_standing(summary),
        *_wins(summary),
        *_open_rows(summary),
        *_accuracy(summary),
        *_texts(summary),
        *_validity(summary),
        *_choice(summary),
    ]


def notices(summary: Summary) -> list[str]:
    """What a reader must know before the numbers: the stand-in, what was cut, what the design cannot see."""
    manifest = summary.manifest
    told = [*_stand_in(summary), *manifest.notes, *_unfinished(summary), *summary.uneven]
    told += [_failed(arm) for arm in manifest.arms if arm.failures]
    told += [f"{arm.name}: {note}" for arm in manifest.arms for note in arm.notes]
    told += lacks(summary)
    told += [
        f"{arm} did not say how many tokens each event carries: its token times are an estimate, spread by"
        " the length of the text."
        for arm in summary.estimated
    ]
    if any(row.verdict.outcome == "too few repeats" for row in summary.rows):
        told.append(
            f"Below {MIN_REPEATS} repeats per arm no claim of difference is made, and no medal is given."
        )
    if summary.one_block:
        told.append(
            "The arms ran one after the other, each in one block, so a drift of the machine's speed between"
            " the blocks is in none of the intervals."
        )
    if summary.timing_versions not in ((), (TIMING_VERSION,)):
        versions = " and ".join(map(str, summary.timing_versions))
        told.append(
            f"The cells were timed by version {versions} of the timing definitions; this report knows"
            f" {TIMING_VERSION}."
        )
    return told


def _failed(arm: ArmManifest) -> str:
    """The first failure of an arm; the others stand with it under "What went wrong"."""
    first, *others = arm.failures
    more = f" ({len(others)} more in the report.)" if others else ""
    during = f", {first.during}" if first.during else ""
    return f"{arm.name}{during}: {first.what}{more}"


def _stand_in(summary: Summary) -> Iterator[str]:
    if summary.stand_in:
        yield (
            "The model is acorn, a small stand-in with Gemma 4 E2B's architecture that ships with the"
            " package. Its speed and accuracy say nothing about Gemma 4."
        )


def _unfinished(summary: Summary) -> Iterator[str]:
    if summary.manifest.finished_at is None:
        yield f"The ladder is not finished: this report rests on the {summary.cells} cells measured so far."


def _standing(summary: Summary) -> Iterator[Finding]:
    """One sentence over the whole table: who wins how many rows, and how many have no winner."""
    if len(summary.arms) < 2 or not summary.rows:
        return
    winners = Counter(row.verdict.leader for row in summary.rows if row.verdict.outcome == "medal")
    count = len(summary.rows)
    sources = tuple(f"/rows/{i}" for i in range(count))
    if not winners:
        yield Finding(f"None of the {count} rows has an established winner.", sources)
        return
    wins = ", ".join(f"{arm} {winners[arm]}" for arm in sorted(summary.arms, key=lambda arm: -winners[arm]))
    rest = count - winners.total()
    yield Finding(f"Rows won, of {count}: {wins}; no established winner: {rest}.", sources)


def _wins(summary: Summary) -> Iterator[Finding]:
    for i, row in enumerate(summary.rows):
        if row.verdict.outcome == "medal" and row.family == "speed":
            yield Finding(_win(summary, row), (f"/rows/{i}", *_pointer(summary, row)))


def _win(summary: Summary, row: Row) -> str:
    found, ratio = row.verdict, wording.advantage(summary, row)
    assert ratio is not None
    best, second = _value(row, found.leader), _value(row, found.runner_up)
    factor = f"{ratio.ratio:.2f} times"
    by = {
        "tok/s": f"{factor} as fast",
        "bytes": f"{found.runner_up} takes {factor} as much",
    }.get(row.unit, f"{found.runner_up} takes {factor} as long")
    return (
        f"{found.leader} wins “{row.label}”: {best} against {second} of {found.runner_up}; {by}"
        f" (95 % interval {wording.span(ratio.interval)}; {ratio.n_a} and {ratio.n_b}"
        f" repeats{wording.aside(row)})."
    )


def _open_rows(summary: Summary) -> Iterator[Finding]:
    """Rows of speed without a medal, grouped by why."""
    close = [(i, row) for i, row in enumerate(summary.rows) if _is(row, "not separated")]
    if close:
        listed = "; ".join(
            f"“{row.label}” ({row.verdict.leader} {wording.margin(summary, row)}{wording.aside(row)})"
            for _, row in close
        )
        yield Finding(f"Not separated, so without a winner: {listed}.", tuple(f"/rows/{i}" for i, _ in close))
    few = [(i, row) for i, row in enumerate(summary.rows) if _is(row, "too few repeats")]
    if few:
        listed = ", ".join(f"“{row.label}” ({wording.repeats(row)})" for _, row in few)
        yield Finding(
            f"No claim of difference, for want of {MIN_REPEATS} valid repeats per arm: {listed}.",
            tuple(f"/rows/{i}" for i, _ in few),
        )
    apart = [(i, row) for i, row in enumerate(summary.rows) if _is(row, "no contest") and row.verdict.unlike]
    if apart:
        listed = ", ".join(f"“{row.label}”" for _, row in apart)
        yield Finding(
            f"Without a winner, because no two figures are of the same work: {listed}.",
            tuple(f"/rows/{i}" for i, _ in apart),
        )


def _is(row: Row, outcome: str) -> bool:
    return row.family == "speed" and row.verdict.outcome == outcome


def _accuracy(summary: Summary) -> Iterator[Finding]:
    for i, pair in enumerate(summary.pairs):
        if pair.b == summary.arms[0]:
            yield Finding(_pair(summary, pair), (f"/pairs/{i}",))


def _pair(summary: Summary, pair: Pair) -> str:
    paired, p = pair.paired, pair.holm_p if pair.holm_p is not None else pair.paired.p
    verdict = wording.answers(summary, pair)
    if summary.alike(pair) and wording.better(pair) is None and not paired.level:
        verdict += f"; {wording.detectable(paired)}"
    few = (
        f", adjusted for few flips {wording.point_span(paired.adjusted)}" if paired.flips < FEW_FLIPS else ""
    )
    return (
        f"{pair.variant}: {pair.a} {100 * paired.score_a:.1f} %, {pair.b} {100 * paired.score_b:.1f} % of"
        f" {paired.n} questions; difference {wording.points(paired.difference)} points (95 % interval"
        f" {wording.point_span(paired.interval)}{few}); only the first is right in {paired.only_a}, only the"
        f" second in {paired.only_b}; exact McNemar {wording.probability(paired.p)}, after Holm"
        f" {wording.probability(p)}: {verdict}."
    )


def _texts(summary: Summary) -> Iterator[Finding]:
    for i, row in enumerate(summary.rows):
        if row.figure == "same_texts":
            known = [found for found in row.entries if found.value is not None]
            counts = ", ".join(f"{found.arm} {found.value:.0f} of {found.n}" for found in known)
            yield Finding(f"Prompts that got the same text in every repeat: {counts}.", (f"/rows/{i}",))


def _validity(summary: Summary) -> Iterator[Finding]:
    if summary.invalid:
        invalid = f"{len(summary.invalid)} of {summary.cells} cells are INVALID"
        yield Finding(f"{invalid}: they are in no figure, and the report lists them.", ("/invalid", "/cells"))
    elif summary.cells:
        yield Finding(f"All {summary.cells} cells are valid.", ("/invalid", "/cells"))
    yield from _unstable(summary)


def _unstable(summary: Summary) -> Iterator[Finding]:
    """How many figures of each arm in the table scatter."""
    shown = {(row.place, row.figure) for row in summary.rows}
    found = [
        (i, m.arm)
        for i, m in enumerate(summary.measures)
        if m.spread.unstable and (m.place, m.figure) in shown
    ]
    if found:
        said = ", ".join(f"{count} of {arm}" for arm, count in Counter(arm for _, arm in found).items())
        yield Finding(
            f"UNSTABLE figures, marked in the table: {said}.", tuple(f"/measures/{i}" for i, _ in found)
        )


def _choice(summary: Summary) -> Iterator[Finding]:
    """Who leads most rows, where no row has an established winner: somebody has to choose all the same."""
    compared = [
        (i, row.verdict.leader)
        for i, row in enumerate(summary.rows)
        if row.verdict.outcome in ("not separated", "too few repeats") and _one_is_ahead(row)
    ]
    if not compared or any(row.verdict.outcome == "medal" for row in summary.rows):
        return
    ahead = Counter(leader for _, leader in compared if leader is not None)
    most = max(ahead.values())
    leaders = [arm for arm in summary.arms if ahead[arm] == most]
    each = " each" if len(leaders) > 1 else ""
    yield Finding(
        f"If you have to choose today: {' and '.join(leaders)} had the best figure in {most}{each} of the"
        f" {len(compared)} rows in which one arm is ahead. That is not established:"
        " another run may say otherwise.",
        tuple(f"/rows/{i}" for i, _ in compared),
    )


def _one_is_ahead(row: Row) -> bool:
    """Whether no arm that is compared has the leader's very figure."""
    values = [found.value for found in row.entries if found.arm not in row.verdict.unlike]
    best = next(found.value for found in row.entries if found.arm == row.verdict.leader)
    return values.count(best) == 1


def _value(row: Row, arm: str | None) -> str:
    return next(wording.entry(row, found) for found in row.entries if found.arm == arm)


def _pointer(summary: Summary, row: Row) -> Iterator[str]:
    """Where the ratio of leader and runner-up stands."""
    duel = {row.verdict.leader, row.verdict.runner_up}
    for i, c in enumerate(summary.contrasts):
        if (c.place, c.figure) == (row.place, row.figure) and {c.a, c.b} == duel:
            yield f"/contrasts/{i}"
