"""Random choices for the generators: a seed in, names, things, numbers and sums out, always the same ones.

Some sums are kept for the held-out set: `Sum.held_out` says which, by a hash; training never sees them.
"""

from __future__ import annotations

import random
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeVar

Item = TypeVar("Item")

HELD_OUT_SHARE = 8
"""One sum (and one set of call arguments) in this many is never trained on."""

LARGEST_TABLE_FACT = 12
"""Sums of numbers up to this are the tables that everything else is computed with: they are not held out."""


def words(text: str) -> tuple[str, ...]:
    return tuple(text.split())


NAMES = words(
    "Ada Anna Ben Carl Clara David Dora Ella Emil Eva Felix Fred Greta Hanna Hugo Ida Iris Jack Jane Jonas "
    "Karl Lena Leo Lina Luis Maria Max Mia Nina Noah Olga Oscar Paul Rosa Sam Sara Tim Tom Vera Yuri"
)
THINGS = words(
    "apples pears plums eggs books pencils marbles stickers cards coins shells stamps beads buttons candles "
    "cookies flowers balloons"
)
CONTAINERS = words("boxes bags baskets jars crates trays")
PLACES = ("shop", "market", "school", "garden", "library", "farm")


def is_held_out(key: str) -> bool:
    """Whether what `key` names is reserved for the held-out set; the same on every machine."""
    return zlib.crc32(key.encode()) % HELD_OUT_SHARE == 0


@dataclass(frozen=True, slots=True)
class Sum:
    """One calculation on whole numbers; a division leaves no remainder."""

    left: int
    sign: str
    right: int

    @property
    def result(self) -> int:
        if self.sign == "+":
            return self.left + self.right
        if self.sign == "-":
            return self.left - self.right
        if self.sign == "*":
            return self.left * self.right
        return self.left // self.right

    @property
    def parts(self) -> tuple[Sum, ...]:
        """The sums by which an answer gets at a product or quotient beyond the tables."""
        if self.sign == "*" and self.left > LARGEST_TABLE_FACT and self.left % 10:
            units = self.left % 10
            return (Sum((self.left - units) * self.right, "+", units * self.right),)
        if self.sign == "/" and self.result > LARGEST_TABLE_FACT and self.result % 10:
            units = self.result % 10
            tens = self.result - units
            by = self.right
            return Sum(tens * by, "/", by), Sum(units * by, "/", by), Sum(tens, "+", units)
        return ()

    @property
    def held_out(self) -> bool:
        """Whether it, or a sum that its answer states on the way, is reserved."""
        return self._is_reserved or any(part._is_reserved for part in self.parts)

    @property
    def _is_reserved(self) -> bool:
        """By hash, whichever number comes first in + and *; tables and tens are for everybody."""
        pair = (self.left, self.right) if self.sign in "-/" else tuple(sorted((self.left, self.right)))
        largest = max(self.result, self.right) if self.sign in "-/" else pair[1]
        if largest <= LARGEST_TABLE_FACT or self._is_about_tens:
            return False
        return is_held_out(f"{pair[0]}{self.sign}{pair[1]}")

    @property
    def _is_about_tens(self) -> bool:
        """20 + 4 or 80 / 4: place value and the tables say it already."""
        if self.sign == "+":
            return min(self.left, self.right) < 10 and max(self.left, self.right) % 10 == 0
        return self.sign == "/" and self.result % 10 == 0

    @property
    def worked(self) -> str:
        """The sum as an answer writes it: '47 + 38 = 85', '23 * 4 = 80 + 12 = 92'."""
        steps = [str(self)]
        if self.sign == "*":
            steps += [str(part) for part in self.parts]
        elif self.parts:
            tens, units, total = self.parts
            steps += [f"{tens} + {units}", str(total)]
        return " = ".join([*steps, str(self.result)])

    def __str__(self) -> str:
        return f"{self.left} {self.sign} {self.right}"


class Draw:
    """A seeded source of the generators' choices."""

    def __init__(self, seed: int | str) -> None:
        self.random = random.Random(seed)

    def pick(self, *choices: Item) -> Item:
        return self.random.choice(choices)

    def among(self, choices: Sequence[Item]) -> Item:
        return self.random.choice(choices)

    def some(self, choices: Sequence[Item], count: int) -> list[Item]:
        """`count` different ones, in random order."""
        return self.random.sample(choices, count)

    def chance(self, share: float) -> bool:
        return self.random.random() < share

    def number(self, low: int, high: int) -> int:
        """Between `low` and `high`, both included."""
        return self.random.randint(low, high)

    def name(self) -> str:
        return self.among(NAMES)

    def two_names(self) -> list[str]:
        return self.some(NAMES, 2)

    def thing(self) -> str:
        return self.among(THINGS)

    def container(self) -> str:
        return self.among(CONTAINERS)

    def weighted(self, choices: dict[Item, int]) -> Item:
        return self.random.choices(list(choices), list(choices.values()))[0]
