"""What chips cost: a dated price file in, the price of a million tokens on a chip out.

A chip that the file does not list has no price, and a machine with several chips none either: which share of
it an engine used is not known.
"""

from __future__ import annotations

import datetime
import re
import tomllib
from collections.abc import Iterable, Iterator, Mapping
from importlib import resources
from pathlib import Path

import msgspec

from onechip.errors import LadderError
from onechip.ladder.figures import Measure, Place
from onechip.ladder.stats import Interval

SHIPPED = "prices.toml"
MILLION = 1e6
S_PER_HOUR = 3600.0
NOWHERE = "not available"


class Price(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One chip by the hour.

    Attributes:
        match: regular expression that is searched in the chip's name, whatever its case.
        what: is rented for it. source: where the price was read. date: when.
    """

    name: str
    match: str
    usd_per_hour: float
    what: str
    source: str
    date: datetime.date

    def usd_per_million(self, tok_s: float) -> float:
        """What a million tokens cost that come at this speed, the whole hour being paid for."""
        return self.usd_per_hour / S_PER_HOUR / tok_s * MILLION


class Cost(msgspec.Struct, frozen=True):
    """US dollars for a million output tokens of an arm at a place of the sweep, the prompts' work included.

    Attributes:
        interval: 95 %, from that of the speed alone; None where that has none.
    """

    arm: str
    place: Place
    usd: float
    interval: Interval | None


class Prices(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A price file; the first chip that matches counts."""

    title: str
    chip: tuple[Price, ...] = ()

    def find(self, name: str) -> Price | None:
        """The price of a chip by its name ("NVIDIA L4"); None if it is not listed."""
        return next((price for price in self.chip if re.search(price.match, name, re.IGNORECASE)), None)


def load(path: Path | None = None) -> Prices:
    """A price file, or that of the package.

    Raises:
        LadderError: it cannot be read, or says something that is no price.
    """
    where = SHIPPED if path is None else str(path)
    try:
        found = resources.files("onechip.ladder").joinpath(SHIPPED) if path is None else path
        prices = msgspec.convert(tomllib.loads(found.read_text("utf-8")), Prices)
        for price in prices.chip:
            re.compile(price.match)
    except OSError as error:
        raise LadderError(f"The price file {where} cannot be read: {error.strerror}.") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError, msgspec.ValidationError) as error:
        raise LadderError(
            f"The price file {where} is not as it should be: {error}. The package's own,"
            f" onechip/ladder/{SHIPPED}, shows how."
        ) from None
    except re.error as error:
        raise LadderError(
            f"The price file {where}: “{error.pattern!s}” is no regular expression: {error}."
        ) from None
    wrong = [price.name for price in prices.chip if price.usd_per_hour <= 0]
    if wrong:
        raise LadderError(f"The price file {where}: usd_per_hour of {wrong[0]} must be above 0.")
    return prices


def chips(machine: Mapping[str, str]) -> list[str]:
    """Chips that engines run on, by Manifest.machine: its GPUs, else its TPUs, else its processor."""
    for kind in ("gpu", "tpu"):
        named = machine.get(kind, NOWHERE)
        if named != NOWHERE:
            return named.split(", ")
    return [machine.get("cpu", NOWHERE)]


def of_machine(prices: Prices, machine: Mapping[str, str]) -> Price | None:
    """The price of a machine's chip; None if it has several, or one that is not listed."""
    names = chips(machine)
    return prices.find(names[0]) if len(names) == 1 else None


def costs(measures: Iterable[Measure], price: Price) -> Iterator[Cost]:
    """Of every arm at every place of the sweep, at the speed of the whole batch."""
    for m in measures:
        if m.place.job == "sweep" and m.figure == "whole_batch_tok_s":
            speed = m.spread.interval
            between = (
                None
                if speed is None
                else Interval(price.usd_per_million(speed.high), price.usd_per_million(speed.low))
            )
            yield Cost(m.arm, m.place, price.usd_per_million(m.headline), between)
