"""Accuracy: scored answers of the `acc` cells in, scores, paired comparisons and controls out.

Arms are compared question by question, never by their totals alone. Where a ladder asked its sets again, each
arm is also compared with itself: what an engine flips of its own answers no difference between arms explains.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import combinations

import msgspec

from onechip.ladder import stats
from onechip.ladder.records import CellRecord, RequestRecord

Sheet = dict[str, RequestRecord]
"""Question id -> the request that answered it."""


class Score(msgspec.Struct, frozen=True):
    """One arm's answers to one question set.

    Attributes:
        n, right: questions answered in valid cells, and how many of them rightly (headline scorer).
        interval: Wilson, of this score alone; differences are judged by pairs, not by it.
        truncated: answers that ended at the length limit. unparsed: answers that no scorer could read.
        scorers: right answers by scorer.
    """

    arm: str
    variant: str
    n: int
    right: int
    score: float
    interval: stats.Interval
    truncated: int
    unparsed: int
    scorers: dict[str, int]


class Flip(msgspec.Struct, frozen=True):
    """A question that changed between two sheets.

    Attributes:
        asked, expected: text of the question, and its right answer.
        rights: whether each sheet is right, a first. texts: what each wrote, tool calls as name(arguments).
        differs_at: index of the first character in which the texts differ; None if they do not.
    """

    question: str
    asked: str
    expected: str
    rights: tuple[bool, bool]
    texts: tuple[str, str]
    differs_at: int | None


class Pair(msgspec.Struct, frozen=True):
    """Arm a against arm b over the questions that both answered in valid cells.

    `flips` are the questions that only one of them got right. `holm_p` is corrected over all comparisons with
    the reference arm, and None for comparisons without it.
    """

    variant: str
    a: str
    b: str
    paired: stats.Paired
    flips: tuple[Flip, ...]
    holm_p: float | None = None


class Control(msgspec.Struct, frozen=True):
    """An arm against itself: one question set, asked more than once.

    Attributes:
        n: questions that every asking answered in a valid cell.
        askings: how many; every two of them are compared.
        flips: mean number of questions whose verdict differs between two askings; `rate` is its share of n,
            and `interval` that of the rate (Clopper and Pearson).
        texts: mean number of questions whose text differs between two askings.
        flipped: the questions whose verdict was not the same in all askings: the first one, and the first
            that differs from it.
    """

    arm: str
    variant: str
    n: int
    askings: int
    flips: float
    rate: float
    interval: stats.Interval
    texts: float
    flipped: tuple[Flip, ...]


def sheets(records: Iterable[CellRecord], asking: int = 0) -> dict[tuple[str, str], Sheet]:
    """(arm, question set) -> its answer sheet, from valid `acc` cells of one asking."""
    found: dict[tuple[str, str], Sheet] = {}
    for record in records:
        cell = record.cell
        if cell.job == "acc" and cell.repeat == asking and not record.invalid:
            sheet = found.setdefault((cell.arm, cell.variant), {})
            sheet.update({str(request.extra["question"]): request for request in record.requests})
    return found


def scores(found: dict[tuple[str, str], Sheet]) -> tuple[Score, ...]:
    """The score of every sheet."""
    return tuple(
        _score(arm, variant, list(sheet.values())) for (arm, variant), sheet in found.items() if sheet
    )


def pairs(found: dict[tuple[str, str], Sheet], arms: Sequence[str]) -> tuple[Pair, ...]:
    """Every two arms over every set that both answered.

    Args:
        arms: in the ladder's order; the first is the reference, and stands as b in its pairs.
    """
    made = []
    for variant in dict.fromkeys(variant for _, variant in found):
        for b, a in combinations(arms, 2):
            pair = _pair(variant, a, b, found.get((a, variant), {}), found.get((b, variant), {}))
            if pair is not None:
                made.append(pair)
    family = [i for i, pair in enumerate(made) if pair.b == arms[0]]
    for i, adjusted in zip(family, stats.holm([made[i].paired.p for i in family]), strict=True):
        made[i] = msgspec.structs.replace(made[i], holm_p=adjusted)
    return tuple(made)


def controls(records: Sequence[CellRecord]) -> tuple[Control, ...]:
    """Every arm against itself over every set that it was asked more than once."""
    last = max((record.cell.repeat for record in records if record.cell.job == "acc"), default=0)
    askings = [sheets(records, asking) for asking in range(last + 1)]
    made = (
        _control(arm, variant, [found[arm, variant] for found in askings if (arm, variant) in found])
        for arm, variant in dict.fromkeys(key for found in askings for key in found)
    )
    return tuple(control for control in made if control is not None)


def changes(a: Sheet, b: Sheet, *, texts: bool = False) -> tuple[Flip, ...]:
    """The questions of both sheets that only one of them got right.

    Args:
        texts: also those with the same verdict and another text.
    """
    found = (_flip(question, a[question], b[question]) for question in b if question in a)
    return tuple(
        flip for flip in found if flip.rights[0] != flip.rights[1] or (texts and flip.differs_at is not None)
    )


def first_difference(a: str, b: str) -> int | None:
    """Index of the first character in which two texts differ; None if they are the same."""
    if a == b:
        return None
    return next((i for i, (x, y) in enumerate(zip(a, b, strict=False)) if x != y), min(len(a), len(b)))


def written(request: RequestRecord) -> str:
    """What an engine wrote, tool calls as name(arguments)."""
    calls = [f"{call['name']}({call['arguments']})" for call in request.extra.get("tool_calls", [])]
    return "\n".join(part for part in (request.text, *calls) if part)


def _score(arm: str, variant: str, requests: Sequence[RequestRecord]) -> Score:
    right = sum(_correct(request) for request in requests)
    names = dict.fromkeys(name for request in requests for name in request.extra.get("scores", {}))
    return Score(
        arm=arm,
        variant=variant,
        n=len(requests),
        right=right,
        score=right / len(requests),
        interval=stats.score_interval(right, len(requests)),
        truncated=sum(request.finish == "length" for request in requests),
        unparsed=sum(_unread(request) for request in requests),
        scorers={name: sum(bool(r.extra.get("scores", {}).get(name)) for r in requests) for name in names},
    )


def _pair(variant: str, a: str, b: str, sheet_a: Sheet, sheet_b: Sheet) -> Pair | None:
    common = [question for question in sheet_b if question in sheet_a]
    if not common:
        return None
    right_a, right_b = ([_correct(sheet[question]) for question in common] for sheet in (sheet_a, sheet_b))
    return Pair(variant, a, b, stats.compare_paired(right_a, right_b), changes(sheet_a, sheet_b))


def _control(arm: str, variant: str, askings: Sequence[Sheet]) -> Control | None:
    common = [question for question in askings[0] if all(question in sheet for sheet in askings)]
    if len(askings) < 2 or not common:
        return None
    duels = list(combinations(askings, 2))
    flips = sum(_correct(x[q]) != _correct(y[q]) for x, y in duels for q in common) / len(duels)
    texts = sum(written(x[q]) != written(y[q]) for x, y in duels for q in common) / len(duels)
    flipped: dict[str, Flip] = {}
    for later in askings[1:]:
        flipped = {flip.question: flip for flip in changes(askings[0], later)} | flipped
    return Control(
        arm=arm,
        variant=variant,
        n=len(common),
        askings=len(askings),
        flips=flips,
        rate=flips / len(common),
        interval=stats.flip_interval(flips, len(common)),
        texts=texts,
        flipped=tuple(flipped[question] for question in common if question in flipped),
    )


def _flip(question: str, a: RequestRecord, b: RequestRecord) -> Flip:
    texts = written(a), written(b)
    asked, expected = str(b.extra.get("asked", "")), str(b.extra.get("expected", ""))
    rights = _correct(a), _correct(b)
    return Flip(question, asked, expected, rights, texts, first_difference(*texts))


def _correct(request: RequestRecord) -> bool:
    return bool(request.extra["correct"])


def _unread(request: RequestRecord) -> bool:
    read = request.extra.get("answers", {})
    return bool(read) and all(answer is None for answer in read.values())
