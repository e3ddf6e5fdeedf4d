"""Who was given the same work: cell records in, groups of arms at each place out, and what sets them apart.

Figures of arms that were asked something else (prompts, lengths, limits) say nothing about each other.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import combinations
from typing import Any

from onechip.ladder.figures import Place
from onechip.ladder.records import CellRecord

Groups = tuple[tuple[str, ...], ...]
"""Arms by what they were asked at one place, in the order of their cells."""

Probes = Mapping[str, Mapping[str, Any]]
"""Arm -> what its engine can do (probe.Features, as kept in the manifest)."""

WAYS = {"ids": "token ids", "text": "text", "chat": "chat messages"}
"""prompts.Way in words."""


def groups(records: Iterable[CellRecord]) -> dict[Place, Groups]:
    """The groups at each place but the starts, which are each arm's own.

    Two arms are in one group if any cell's definition is common to them: blocks of questions that only one of
    them has reached are no other work.
    """
    asked: dict[Place, dict[str, set[str]]] = {}
    for record in records:
        cell = record.cell
        if cell.job != "start":
            arms = asked.setdefault(Place.of(cell), {})
            arms.setdefault(cell.arm, set()).add(cell.definition)
    return {place: _grouped(arms) for place, arms in asked.items()}


def _grouped(asked: Mapping[str, set[str]]) -> Groups:
    """Arms joined by what they have in common, also through a third."""
    kind = {arm: number for number, arm in enumerate(asked)}
    for one, other in combinations(asked, 2):
        if not asked[one].isdisjoint(asked[other]):
            low, high = sorted((kind[one], kind[other]))
            kind = {arm: low if number == high else number for arm, number in kind.items()}
    numbers = sorted(set(kind.values()))
    return tuple(tuple(arm for arm in asked if kind[arm] == number) for number in numbers)


def sentences(found: Mapping[Place, Groups], probes: Probes) -> Iterator[str]:
    """One sentence for each job with more than one kind of work; more where its variants differ in that."""
    for job in dict.fromkeys(place.job for place in found):
        variants: dict[Groups, list[str]] = {}
        for place, made in found.items():
            if place.job == job:
                variants.setdefault(made, []).append(place.variant)
        for made, names in variants.items():
            if len(made) > 1:
                where = f" ({', '.join(dict.fromkeys(names))})" if len(variants) > 1 else ""
                yield f"Job {job}{where}: {_kinds(job, made, probes)}"


def _kinds(job: str, made: Groups, probes: Probes) -> str:
    """The groups by name, each with what sets it apart as far as the probes tell."""
    told = [_common([_traits(job, probes.get(arm, {})) for arm in members]) for members in made]
    apart = [{trait for trait in traits if not all(trait in other for other in told)} for traits in told]
    listed = [
        _and(members) + (f" ({', '.join(trait for trait in traits if trait in own)})" if own else "")
        for members, traits, own in zip(made, told, apart, strict=True)
    ]
    explained = len({frozenset(own) for own in apart}) == len(made)
    why = "" if explained else ", as prompts, lengths or limits differ"
    return (
        f"{len(made)} kinds of work{why}: {'; '.join(listed)}. An arm is compared only with those that were"
        " given the same work."
    )


def _traits(job: str, probe: Mapping[str, Any]) -> list[str]:
    """What an arm's probe (probe.Features) says of how this job asked it."""
    if not probe:
        return []
    held = "held to the length" if probe.get("fixed") else "not held to a length"
    if job == "sweep":
        way = probe.get("prompts")
        return [*([f"prompts as {WAYS.get(way, way)}"] if way else []), held]
    if job == "one":
        return [held]
    switch = "thinking switched off" if probe.get("thinking_off") else "no switch for thinking"
    return [switch, *([f"context of {probe['context']:,} tokens"] if probe.get("context") else [])]


def _common(told: Sequence[Sequence[str]]) -> list[str]:
    """The traits that all members of a group have."""
    return [trait for trait in told[0] if all(trait in traits for traits in told)]


def _and(names: Sequence[str]) -> str:
    *most, last = names
    return f"{', '.join(most)} and {last}" if most else last
