"""What a report says in words: the summary in, sentences out.

No sentence holds a number or a name that is not read from the summary, and each says where it was read: JSON
pointers into summary.json. Those that say who wins, by how much, or how many are bound to queries, and can be
checked again (`onechip ladder claims`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from onechip.ladder.answers import Control, Pair
from onechip.ladder.manifest import ArmManifest
from onechip.ladder.medals import Row
from onechip.ladder.queries import Query
from onechip.ladder.records import TIMING_VERSION
from onechip.ladder.report import wording
from onechip.ladder.report.differences import lacks
from onechip.ladder.report.sentence import Finding, Sentence
from onechip.ladder.results import LadderResults
from onechip.ladder.stats import FEW_FLIPS, MIN_REPEATS
from onechip.ladder.summary import Summary


def findings(summary: Summary) -> list[Finding]:
    """Who wins what and by how much; what is not separated; what cannot be claimed; accuracy; validity."""
    results = LadderResults(summary)
    return [
        *_standing(summary, results),
        *_wins(summary, results),
        *_open_rows(summary),
        *_accuracy(summary, results),
        *_texts(summary, results),
        *_validity(summary, results),
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


def _standing(summary: Summary, results: LadderResults) -> Iterator[Finding]:
    """One sentence over the whole table: who wins how many rows, and how many have no winner."""
    if len(summary.arms) < 2 or not summary.rows:
        return
    winners = Counter(row.verdict.leader for row in summary.rows if row.verdict.outcome == "medal")
    count = len(summary.rows)
    sources = tuple(f"/rows/{i}" for i in range(count))
    if not winners:
        yield Finding(f"None of the {count} rows has an established winner.", sources)
        return
    sentence = Sentence(results)
    ranked = sorted(summary.arms, key=lambda arm: -winners[arm])
    wins = ", ".join(f"{arm} {sentence.number(Query('wins', (arm,)), _whole)}" for arm in ranked)
    rest = count - winners.total()
    yield sentence.finding(f"Rows won, of {count}: {wins}; no established winner: {rest}.", sources)


def _wins(summary: Summary, results: LadderResults) -> Iterator[Finding]:
    for i, row in enumerate(summary.rows):
        if row.verdict.outcome == "medal" and row.family == "speed":
            sentence = Sentence(results)
            yield sentence.finding(_win(summary, row, sentence), (f"/rows/{i}", *_pointer(summary, row)))


def _win(summary: Summary, row: Row, sentence: Sentence) -> str:
    ratio, runner_up = wording.advantage(summary, row), row.verdict.runner_up
    assert ratio is not None
    assert runner_up is not None
    leader = sentence.name(Query("winner", of=row.label))
    best, second = (
        sentence.number(Query("value", (arm,), row.label), lambda value: wording.quantity(value, row.unit))
        for arm in (leader, runner_up)
    )
    better_first = (leader, runner_up) if row.better == "higher" else (runner_up, leader)
    factor = f"{sentence.number(Query('ratio', better_first, row.label), '{:.2f}'.format)} times"
    by = {
        "tok/s": f"{factor} as fast",
        "bytes": f"{runner_up} takes {factor} as much",
    }.get(row.unit, f"{runner_up} takes {factor} as long")
    unit = "pairs of blocks" if ratio.blocks else "repeats"
    return (
        f"{leader} wins “{row.label}”: {best} against {second} of {runner_up}; {by}"
        f" (95 % interval {wording.span(ratio.interval)}; {ratio.n_a} and {ratio.n_b}"
        f" {unit}{wording.aside(row)})."
    )


def _whole(value: float) -> str:
    return f"{value:.0f}"


def _open_rows(summary: Summary) -> Iterator[Finding]:
    """Rows of speed without a medal, grouped by why."""
    close = [(i, row) for i, row in enumerate(summary.rows) if _is(row, "not separated")]
    if close:
        listed = "; ".join(
            f"“{row.label}” ({row.verdict.leader} {wording.margin(summary, row)}{_shows(summary, row)}"
            f"{wording.aside(row)})"
            for _, row in close
        )
        sources = [pointer for i, row in close for pointer in (f"/rows/{i}", *_pointer(summary, row))]
        yield Finding(
            f"Not separated, so without a winner: {listed}. What “would show” is the smallest ratio that so"
            " many repeats of this spread show four times in five.",
            tuple(sources),
        )
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


def _shows(summary: Summary, row: Row) -> str:
    """What the repeats of leader and runner-up could have shown."""
    ratio = wording.advantage(summary, row)
    return "" if ratio is None or ratio.detectable is None else f", {ratio.detectable:.2f}× would show"


def _is(row: Row, outcome: str) -> bool:
    return row.family == "speed" and row.verdict.outcome == outcome


def _accuracy(summary: Summary, results: LadderResults) -> Iterator[Finding]:
    for i, pair in enumerate(summary.pairs):
        if pair.b == summary.arms[0]:
            sentence = Sentence(results)
            yield sentence.finding(_pair(summary, pair, sentence), (f"/pairs/{i}",))
    for i, control in enumerate(summary.controls):
        yield Finding(_control(control), (f"/controls/{i}",))


def _control(control: Control) -> str:
    """An engine's own flips, to hold those between arms against."""
    interval = f"{100 * control.interval.low:.1f} to {100 * control.interval.high:.1f} %"
    return (
        f"{control.variant}, asked {control.askings} times: from one asking to another {control.arm} flips"
        f" {control.flips:.1f} of {control.n} of its own verdicts ({100 * control.rate:.1f} %, 95 % interval"
        f" {interval}); {control.texts:.1f} texts differ."
    )


def _pair(summary: Summary, pair: Pair, sentence: Sentence) -> str:
    difference = sentence.number(
        Query("difference", (pair.a, pair.b), f"acc {pair.variant}: score"), wording.points, " points"
    )
    paired, p = pair.paired, pair.holm_p if pair.holm_p is not None else pair.paired.p
    verdict = wording.answers(summary, pair)
    if summary.alike(pair) and wording.better(pair) is None and not paired.level:
        verdict += f"; {wording.detectable(paired)}"
    few = (
        f", adjusted for few flips {wording.point_span(paired.adjusted)}" if paired.flips < FEW_FLIPS else ""
    )
    return (
        f"{pair.variant}: {pair.a} {100 * paired.score_a:.1f} %, {pair.b} {100 * paired.score_b:.1f} % of"
        f" {paired.n} questions; difference {difference} points (95 % interval"
        f" {wording.point_span(paired.interval)}{few}); only the first is right in {paired.only_a}, only the"
        f" second in {paired.only_b}; exact McNemar {wording.probability(paired.p)}, after Holm"
        f" {wording.probability(p)}: {verdict}."
    )


def _texts(summary: Summary, results: LadderResults) -> Iterator[Finding]:
    for i, row in enumerate(summary.rows):
        if row.figure == "same_texts":
            sentence = Sentence(results)
            counts = ", ".join(
                f"{found.arm} {sentence.number(Query('value', (found.arm,), row.label), _whole)} of {found.n}"
                for found in row.entries
                if found.value is not None
            )
            text = f"Prompts that got the same text in every repeat: {counts}."
            yield sentence.finding(text, (f"/rows/{i}",))


def _validity(summary: Summary, results: LadderResults) -> Iterator[Finding]:
    if summary.cells:
        sentence, sources = Sentence(results), ("/invalid", "/cells")
        cells = sentence.number(Query("cells"), _whole)
        if summary.invalid:
            invalid = f"{sentence.number(Query('invalid'), _whole)} of {cells} cells are INVALID"
            text = f"{invalid}: they are in no figure, and the report lists them."
        else:
            text = f"All {cells} cells are valid."
        yield sentence.finding(text, sources)
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


def _pointer(summary: Summary, row: Row) -> Iterator[str]:
    """Where the ratio of leader and runner-up stands."""
    duel = {row.verdict.leader, row.verdict.runner_up}
    for i, c in enumerate(summary.contrasts):
        if (c.place, c.figure) == (row.place, row.figure) and {c.a, c.b} == duel:
            yield f"/contrasts/{i}"
