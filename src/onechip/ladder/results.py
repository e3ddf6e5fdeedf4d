"""What queries are answered from: a ladder's summary, or a published comparison."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Literal

from onechip.errors import UsageError
from onechip.ladder.figures import KINDS, Place
from onechip.ladder.medals import Row
from onechip.ladder.published import Comparison, Figures
from onechip.ladder.queries import NOBODY, Answer, Duel, Known
from onechip.ladder.stats import Interval
from onechip.ladder.summary import Summary

FIGURE = re.compile(r"(?P<job>\w+) (?P<variant>\S+)(?: at (?P<level>\d+))?: (?P<figure>\w+)")
PUBLISHED_UNITS = {"one": "tok/s", "many": "tok/s", "drafter": "", "start_s": "s"}
"""Figures of a published comparison, and their units."""


class LadderResults:
    """A ladder's summary; `of` is a row's label, or as in FIGURE."""

    def __init__(self, summary: Summary) -> None:
        self.summary = summary
        self._labels = {row.label: row for row in summary.rows}
        self._measures = {(m.place, m.figure, m.arm): m for m in summary.measures}
        self._scores = {(s.variant, s.arm): s for s in summary.scores}

    def arms(self, of: str) -> Sequence[str]:
        place, figure = self._place(of)
        if place.job == "acc":
            return [arm for arm in self.summary.arms if (place.variant, arm) in self._scores]
        if figure == "same_texts":
            return [entry.arm for entry in self._row(of).entries if entry.value is not None]
        return [arm for arm in self.summary.arms if (place, figure, arm) in self._measures]

    def known(self, arm: str, of: str) -> Known:
        place, figure = self._place(of)
        if arm not in self.arms(of):
            raise UsageError(self._missing(arm, of))
        if place.job == "acc":
            score = self._scores[place.variant, arm]
            return Known(arm, score.score, "%", score.interval)
        if figure == "same_texts":
            entry = next(entry for entry in self._row(of).entries if entry.arm == arm)
            return Known(arm, entry.value or 0.0, "")
        measure = self._measures[place, figure, arm]
        return Known(arm, measure.headline, KINDS[figure].unit, measure.spread.interval)

    def ratio(self, a: str, b: str, of: str) -> Duel:
        place, figure = self._place(of)
        ratio = self.summary.ratio(place, figure, a, b)
        if ratio is None:
            raise UsageError(f"{a!r} and {b!r} are not compared by ratio in {of!r}.")
        return Duel(ratio.ratio, "", ratio.interval, ratio.enough)

    def difference(self, a: str, b: str, of: str) -> Duel:
        """Of scores, in questions that both answered."""
        place, _ = self._place(of)
        paired = self.summary.paired(place.variant, a, b) if place.job == "acc" else None
        if paired is None:
            raise UsageError(
                f"{a!r} and {b!r} are not compared by difference in {of!r}; only scores are, speeds by ratio."
            )
        wider = Interval(
            min(paired.interval.low, paired.adjusted.low), max(paired.interval.high, paired.adjusted.high)
        )
        return Duel(paired.difference, "points", wider, True)

    def winner(self, of: str) -> Answer:
        row = self._row(of)
        leader = row.verdict.leader if row.verdict.outcome == "medal" else None
        return Answer(leader or NOBODY, basis=f"its verdict is {row.verdict.outcome!r}")

    def wins(self, arm: str) -> Answer:
        if arm not in self.summary.arms:
            raise UsageError(self._no_arm(arm))
        verdicts = (row.verdict for row in self.summary.rows)
        return Answer(sum(found.outcome == "medal" and found.leader == arm for found in verdicts))

    def count(self, what: Literal["cells", "invalid"]) -> Answer:
        return Answer(self.summary.cells if what == "cells" else len(self.summary.invalid))

    def _place(self, of: str) -> tuple[Place, str]:
        row = self._labels.get(of)
        if row is not None:
            return row.place, row.figure
        match = FIGURE.fullmatch(of)
        if match is None or match["figure"] not in (*KINDS, "score"):
            raise UsageError(self._no_figure(of))
        places = {
            place
            for place in (*(m.place for m in self.summary.measures), *(r.place for r in self.summary.rows))
            if (place.job, place.variant) == (match["job"], match["variant"])
            and match["level"] in (None, str(place.level))
        }
        if len(places) != 1:
            raise UsageError(self._no_figure(of))
        return places.pop(), match["figure"]

    def _row(self, of: str) -> Row:
        if of not in self._labels:
            raise UsageError(f"there is no row {of!r}; the rows are: {', '.join(self._labels)}.")
        return self._labels[of]

    def _no_figure(self, of: str) -> str:
        return (
            f"there is no figure {of!r}; give a row's label ({', '.join(self._labels)}) or, like"
            f" 'sweep 128/512 at 64: whole_batch_tok_s', what was run and one of {', '.join(KINDS)}, score."
        )

    def _no_arm(self, arm: str) -> str:
        return f"there is no arm {arm!r}; the arms are: {', '.join(self.summary.arms)}."

    def _missing(self, arm: str, of: str) -> str:
        if arm not in self.summary.arms:
            return self._no_arm(arm)
        return f"{arm!r} has no valid figure of {of!r}."


class PublishedResults:
    """A published comparison; `of` is "CHIP: FIGURE", like "v5e-1: many". Nothing in it can be tested."""

    def __init__(self, comparison: Comparison) -> None:
        self.comparison = comparison

    def arms(self, of: str) -> Sequence[str]:
        chip, figure = self._place(of)
        return [
            engine.name
            for engine in self.comparison.engine
            if getattr(engine.on.get(chip, Figures()), figure) is not None
        ]

    def known(self, arm: str, of: str) -> Known:
        chip, figure = self._place(of)
        names = [engine.name for engine in self.comparison.engine]
        if arm not in names:
            raise UsageError(f"there is no engine {arm!r}; the engines are: {', '.join(names)}.")
        if arm not in self.arms(of):
            raise UsageError(f"{arm!r} has no published figure of {of!r}.")
        value = getattr(self.comparison.figures(arm, chip), figure)
        return Known(arm, float(value), PUBLISHED_UNITS[figure])

    def ratio(self, a: str, b: str, of: str) -> None:
        return None

    def difference(self, a: str, b: str, of: str) -> None:
        return None

    def winner(self, of: str) -> Answer:
        raise UsageError("a published comparison has no repeats, so no winner is established in it.")

    def wins(self, arm: str) -> Answer:
        raise UsageError("a published comparison has no repeats, so no row is won in it.")

    def count(self, what: Literal["cells", "invalid"]) -> Answer:
        raise UsageError("a published comparison has no cells.")

    def _place(self, of: str) -> tuple[str, str]:
        chip, _, figure = of.partition(": ")
        if chip not in self.comparison.chips or figure not in PUBLISHED_UNITS:
            raise UsageError(
                f"there is no figure {of!r}; give CHIP: FIGURE, of {', '.join(self.comparison.chips)} and of"
                f" {', '.join(PUBLISHED_UNITS)}."
            )
        return chip, figure
