"""Where engines differ in what they can be asked: a summary's probes in, one table and its sentences out."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from onechip.ladder.report.table import Table
from onechip.ladder.report.wording import NONE
from onechip.ladder.summary import Summary


class Feature(NamedTuple):
    """One thing that an engine may be able to do: a key of probe.Features, and what its lack costs here."""

    key: str
    label: str
    cost: str


FEATURES = (
    Feature(
        "fixed",
        "holds an answer to a length, by",
        "cells of fixed length (sweep) are INVALID where the model stops early",
    ),
    Feature("limit", "ends an answer at a limit, by", "cells of fixed length are INVALID, answers run on"),
    Feature("usage", "usage at the end of a stream", "cells of fixed length are INVALID: nobody counts"),
    Feature("counts", "usage in every event", "tokens of an event with several are spread by length of text"),
    Feature("cached", "says what came from its prefix cache", "a hit in that cache would not be seen"),
    Feature("completions", "/v1/completions", "the sweep's prompts go through the chat template"),
    Feature("token_ids", "token ids as a prompt", "the sweep's prompts are words of one token, by its count"),
    Feature("tokenize", "/tokenize", "token ids need the checkpoint's tokenizer here"),
    Feature("thinking_off", "the template's thinking switch", "job acc asks without it"),
    Feature("tools", "takes tools", "question sets of function calls are left out"),
    Feature("calls", "gave a tool call when wished for", "calls that stay text score as none"),
    Feature("greedy", "temperature 0 gives one text", "texts and scores waver from run to run"),
    Feature("seed", "a seed gives one text", "nothing: no job samples"),
    Feature("logprobs", "log-probabilities", "nothing here: where texts part, the gap cannot be shown"),
)


def differences(summary: Summary) -> Table:
    """Features by arms, as the probe found them at the start of each arm; empty if no arm came so far."""
    probes = _probes(summary)
    rows = [_row(feature, probes) for feature in FEATURES if any(feature.key in p for p in probes.values())]
    if rows:
        for key, label in (("context", "context, tokens"), ("prompts", "the sweep's prompts are")):
            rows.append((label, *(str(found.get(key) or NONE) for found in probes.values()), ""))
    head = ("asked of it", *probes, "what its lack costs")
    return Table("What each engine can do, found by asking", head, tuple(rows), tuple(range(len(head))))


def lacks(summary: Summary) -> Iterator[str]:
    """What a reader must know of arms that cannot keep the contract of fixed lengths, a sentence each."""
    if "sweep" not in summary.manifest.plan.jobs:
        return
    for arm, found in _probes(summary).items():
        if "fixed" in found and found["fixed"] is None:
            yield (
                f"{arm} has no field that holds an answer to a length: its cells of the sweep are INVALID"
                " where the model stops early. Jobs one and acc count what came, and stay valid."
            )


def _probes(summary: Summary) -> dict[str, Mapping[str, Any]]:
    return {arm.name: arm.probe for arm in summary.manifest.arms}


def _row(feature: Feature, probes: Mapping[str, Mapping[str, Any]]) -> tuple[str, ...]:
    values = [found.get(feature.key, NONE) if found else NONE for found in probes.values()]
    lacking = any(value is None or value is False for value in values)
    return feature.label, *(_shown(value) for value in values), feature.cost if lacking else ""


def _shown(value: Any) -> str:
    if value is None or value is False:
        return "no"
    return "yes" if value is True else str(value)
