"""Comparisons that somebody published, typed in: a TOML file beside this in, its figures out.

Nothing is derived here, and what was not published is absent.
"""

from __future__ import annotations

import tomllib
from contextlib import AbstractContextManager
from importlib import resources
from pathlib import Path

import msgspec

NEWEST = "2026-11.toml"
CLAIMS = "2026-11.claims.yaml"


class Figures(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One engine on one chip.

    Attributes:
        one, many: output tok/s in Comparison.settings' words; None where not published.
        drafter: ratio of the best drafter to none. drafter_fails: why there is none, "" if unsaid.
        start_s: seconds to start.
        precision: of the weights, as stated; "" where it was not.
        needs: flags and patches that it needed there.
        fails: why the engine does not run there; "" if it does.
    """

    one: float | None = None
    many: float | None = None
    drafter: float | None = None
    drafter_fails: str = ""
    start_s: float | None = None
    precision: str = ""
    needs: str = ""
    fails: str = ""


class PublishedEngine(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """An engine with its version ("" where not stated); `on`: a key of Comparison.chips -> its figures."""

    name: str
    version: str
    on: dict[str, Figures]


class Quality(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A range of scores, 0 to 1, over engines; `chips` is empty where it was not stated which."""

    set: str
    precision: str
    chips: tuple[str, ...]
    low: float
    high: float


class Comparison(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A published comparison.

    Attributes:
        source: the mark that its figures carry in every report.
        settings: how each figure was measured, in words.
        chips: short name -> name.
        remarks: what else was said, one sentence each.
    """

    title: str
    source: str
    model: str
    settings: dict[str, str]
    chips: dict[str, str]
    engine: tuple[PublishedEngine, ...]
    quality: tuple[Quality, ...] = ()
    remarks: tuple[str, ...] = ()

    def figures(self, engine: str, chip: str) -> Figures:
        """Of an engine on a chip; raises KeyError where it was not published."""
        return next(found for found in self.engine if found.name == engine).on[chip]


def claims_file() -> AbstractContextManager[Path]:
    """What was said of the newest comparison, for claims.load."""
    return resources.as_file(resources.files("onechip.ladder.published").joinpath(CLAIMS))


def load(name: str = NEWEST) -> Comparison:
    """A comparison of this package."""
    text = resources.files("onechip.ladder.published").joinpath(name).read_text("utf-8")
    return msgspec.convert(tomllib.loads(text), Comparison)
