"""Several ladders as one table: summaries and published comparisons in, a line for each chip and engine out.

Lines are grouped by model, since a speed on one model says nothing of another. Nothing is tested between
ladders: they ran on different machines or at different times.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from pathlib import PurePath

import msgspec

from onechip.ladder.manifest import ArmManifest, Manifest
from onechip.ladder.medals import Row
from onechip.ladder.prices import Price, Prices, chips, of_machine
from onechip.ladder.published import Comparison, Figures, PublishedEngine
from onechip.ladder.records import Arm
from onechip.ladder.rows import lengths
from onechip.ladder.summary import Summary

SCHEMA = 1
PUBLISHED = "published"
"""The source of lines that were typed in."""
MANY = 64
MANY_SHAPE = "128/512"
"""The setting of the published comparison that a ladder's sweep is lined up with."""
E2B = re.compile(r"gemma[-_]?4[-_]?e2b([-_]it)?([-_.](bf16|f16|w4a16|q4_0|int4|qat))*", re.IGNORECASE)
"""Names under which Gemma 4 E2B itself is kept; a made-up checkpoint of its shape has another."""


class Value(msgspec.Struct, frozen=True):
    """A figure, or why there is none; `remark` is said beside it ("UNSTABLE", "64 in, 64 out")."""

    value: float | None = None
    remark: str = ""


class Score(msgspec.Struct, frozen=True):
    """Right answers of a question set, 0 to 1; n is None where it was not stated."""

    set: str
    score: float
    n: int | None


class Line(msgspec.Struct, frozen=True):
    """One engine on one chip.

    Attributes:
        source: "published", or the folder of the ladder.
        precision: of the weights, as far as it is known; "" where it is not.
        one, many: tok/s of one request end to end, and of 64 requests.
        cost: US dollars for a million output tokens at the speed of `many`.
        drafter: ratio of the best drafter to none.
        start_s: from spawning to the first token, with an empty cache.
        needs: flags and patches.
        model: as its ladder calls it.
    """

    source: str
    chip: str
    engine: str
    version: str
    precision: str
    model: str
    one: Value
    many: Value
    cost: Value
    drafter: Value
    start_s: Value
    quality: tuple[Score, ...]
    needs: str


class Group(msgspec.Struct, frozen=True):
    """All lines of one model, chip by chip; `remarks` are sentences that hold for them."""

    model: str
    lines: tuple[Line, ...]
    remarks: tuple[str, ...] = ()


class Rollup(msgspec.Struct, frozen=True):
    """Ladders side by side, one group a model."""

    groups: tuple[Group, ...]
    remarks: tuple[str, ...]
    schema: int = SCHEMA


def roll_up(
    ladders: Sequence[tuple[str, Summary]],
    comparisons: Sequence[Comparison] = (),
    prices: Prices | None = None,
) -> Rollup:
    """Lines up ladders.

    Args:
        ladders: (the name of its folder, its summary), in the order in which they are shown.
        comparisons: published ones, shown beside them where the model is the same, else by themselves.
        prices: of chips, for all lines alike; None: no costs.
    """
    prices = prices or Prices("")
    lines = [line for name, summary in ladders for line in _own(name, summary, prices)]
    lines += [line for comparison in comparisons for line in _published(comparison, prices)]
    groups = []
    for model in dict.fromkeys(line.model for line in lines):
        mine = [line for line in lines if line.model == model]
        chips = list(dict.fromkeys(line.chip for line in mine))
        mine.sort(key=lambda line: chips.index(line.chip))
        said = [text for found in comparisons if found.model == model for text in _remarks(found)]
        groups.append(Group(model, tuple(mine), tuple(said)))
    priced = prices.title if any(line.cost.value is not None for line in lines) else ""
    return Rollup(tuple(groups), tuple(_notices(ladders, comparisons, priced)))


def model_name(manifest: Manifest) -> str:
    """The model of a ladder; a name of E2B's is the published comparison's model."""
    name = PurePath(manifest.plan.model).name.removesuffix(".gguf")
    if E2B.fullmatch(name):
        return "Gemma 4 E2B"
    return "acorn, the stand-in" if manifest.plan.model == "acorn" or name == "acorn" else name


def _own(folder: str, summary: Summary, prices: Prices) -> Iterator[Line]:
    machine = summary.manifest.machine
    price = of_machine(prices, machine)
    for arm in summary.manifest.plan.arms:
        entry = summary.manifest.arm(arm.name)
        many = _many(summary, arm.name)
        yield Line(
            source=folder,
            chip=", ".join(chips(machine)),
            engine=arm.name,
            version=entry.version,
            precision=arm.form,
            model=model_name(summary.manifest),
            one=_figure(summary, arm.name, "one", "alone", "end_to_end_tok_s"),
            many=many,
            cost=_cost(price, many),
            drafter=Value(),
            start_s=_start(summary, arm.name),
            quality=tuple(
                Score(found.variant, found.score, found.n)
                for found in summary.scores
                if found.arm == arm.name
            ),
            needs=_needs(arm, entry),
        )


def _needs(arm: Arm, entry: ArmManifest) -> str:
    failed = f"{len(entry.failures)} failures" if len(entry.failures) > 1 else "1 failure"
    return "; ".join(filter(None, [" ".join(arm.flags), arm.remark, failed if entry.failures else ""]))


def _figure(
    summary: Summary, arm: str, job: str, variant: str, figure: str, level: int | None = None
) -> Value:
    """From the table of who wins what, so that the two cannot disagree."""
    for row in summary.rows:
        same = (row.place.job, row.place.variant, row.figure) == (job, variant, figure)
        if same and level in (None, row.place.level):
            return _entry(row, arm)
    return Value()


def _entry(row: Row, arm: str) -> Value:
    found = next(entry for entry in row.entries if entry.arm == arm)
    remark = {"invalid": "INVALID", "not run": ""}.get(found.remark, found.remark)
    return Value(found.value, remark)


def _many(summary: Summary, arm: str) -> Value:
    """The published setting where it was run; else the most requests with the longest output, with a word."""
    exact = _figure(summary, arm, "sweep", MANY_SHAPE, "whole_batch_tok_s", MANY)
    if exact != Value():
        return exact
    rows = [row for row in summary.rows if row.place.job == "sweep" and row.figure == "whole_batch_tok_s"]
    if not rows:
        return Value()
    row = max(rows, key=lambda row: (row.place.level, int(row.place.variant.partition("/")[2])))
    found = _entry(row, arm)
    where = f"{row.place.level} requests, {lengths(row.place.variant)}"
    return Value(found.value, "; ".join(filter(None, [found.remark, where])))


def _cost(price: Price | None, many: Value) -> Value:
    """In the setting of the speed that it is computed from."""
    if price is None or many.value is None:
        return Value()
    return Value(price.usd_per_million(many.value), many.remark)


def _start(summary: Summary, arm: str) -> Value:
    cold = _figure(summary, arm, "start", "cold", "total_s")
    if cold != Value():
        return cold
    warm = _figure(summary, arm, "start", "warm", "total_s")
    return Value(warm.value, "; ".join(filter(None, [warm.remark, "warm cache"]))) if warm.value else warm


def _published(comparison: Comparison, prices: Prices) -> Iterator[Line]:
    for chip, name in comparison.chips.items():
        for engine in comparison.engine:
            if chip in engine.on:
                yield _line(comparison, name, engine, engine.on[chip], prices.find(name))


def _line(
    comparison: Comparison, chip: str, engine: PublishedEngine, found: Figures, price: Price | None
) -> Line:
    return Line(
        source=comparison.source,
        chip=chip,
        engine=engine.name,
        version=engine.version,
        precision=found.precision,
        model=comparison.model,
        one=Value(found.one, found.fails),
        many=Value(found.many),
        cost=_cost(price, Value(found.many)),
        drafter=Value(found.drafter, found.drafter_fails),
        start_s=Value(found.start_s),
        quality=(),
        needs=found.needs,
    )


def _remarks(comparison: Comparison) -> Iterator[str]:
    yield f"{comparison.source}: {comparison.title}."
    yield f"{comparison.source}: speeds are of {'; '.join(comparison.settings.values())}."
    for found in comparison.quality:
        chips = " and ".join(comparison.chips[chip] for chip in found.chips) or "chips not stated"
        of = f"{found.set}, {found.precision}" if found.precision else found.set
        span = f"{found.low:.4f} to {found.high:.4f}"
        yield f"{comparison.source}: quality on {of} ({chips}): {span} over engines."
    for remark in comparison.remarks:
        yield f"{comparison.source}: {remark}"


def _notices(
    ladders: Sequence[tuple[str, Summary]], comparisons: Iterable[Comparison], priced: str
) -> Iterator[str]:
    yield (
        "Nothing is tested between ladders: other machines, other times and other settings are in every"
        " difference. Who wins what within one ladder stands in its own report."
    )
    if ladders:
        yield (
            "Own lines: one request is job one alone, end to end; start is with an empty cache; many requests"
            " are the whole batch of the sweep. A setting unlike the column's head stands beside its figure."
        )
    if priced:
        yield (
            f"Costs are computed here, of published speeds too: {priced}; a chip's price for an hour over the"
            " output tokens of an hour."
        )
    for name, summary in ladders:
        m = summary.manifest
        invalid = f", {len(summary.invalid)} of them INVALID" if summary.invalid else ""
        unfinished = "" if m.finished_at else "; it is not finished"
        cells = f"{summary.cells} cells{invalid}{unfinished}"
        yield f"{name}: {m.plan.model}, begun {m.started_at[:10]}, {cells}."
    models = {model_name(summary.manifest) for _, summary in ladders}
    for found in comparisons:
        if ladders and found.model not in models:
            yield (
                f"No ladder here is of {found.model}, so the {found.source} figures stand by themselves and"
                " compare with nothing."
            )
    if "acorn, the stand-in" in models:
        yield "acorn is a small stand-in: its figures say nothing about Gemma 4."
