"""Accuracy: scored answers of the `acc` cells in, scores and paired comparisons out.

Arms are compared question by question, never by their totals alone.
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
    """A question that only arm `right` got right; `texts` are what both arms of the pair wrote, a first."""

    question: str
    expected: str
    right: str
    texts: tuple[str, str]


class Pair(msgspec.Struct, frozen=True):
    """Arm a against arm b over the questions that both answered in valid cells.

    `holm_p` is corrected over all comparisons with the reference arm, and None for comparisons without it.
    """

    variant: str
    a: str
    b: str
    paired: stats.Paired
    flips: tuple[Flip, ...]
    holm_p: float | None = None


def sheets(records: Iterable[CellRecord]) -> dict[tuple[str, str], Sheet]:
    """(arm, question set) -> its answer sheet, from the first repeat of valid `acc` cells."""
    found: dict[tuple[str, str], Sheet] = {}
    for record in records:
        cell = record.cell
        if cell.job == "acc" and cell.repeat == 0 and not record.invalid:
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
    right_a = [_correct(sheet_a[question]) for question in common]
    right_b = [_correct(sheet_b[question]) for question in common]
    flips = tuple(
        Flip(
            q,
            str(sheet_a[q].extra.get("expected", "")),
            a if x else b,
            (_text(sheet_a[q]), _text(sheet_b[q])),
        )
        for q, x, y in zip(common, right_a, right_b, strict=True)
        if x != y
    )
    return Pair(variant, a, b, stats.compare_paired(right_a, right_b), flips)


def _correct(request: RequestRecord) -> bool:
    return bool(request.extra["correct"])


def _unread(request: RequestRecord) -> bool:
    read = request.extra.get("answers", {})
    return bool(read) and all(answer is None for answer in read.values())


def _text(request: RequestRecord) -> str:
    """What was written, tool calls as name(arguments)."""
    calls = [f"{call['name']}({call['arguments']})" for call in request.extra.get("tool_calls", [])]
    return "\n".join(part for part in (request.text, *calls) if part)
