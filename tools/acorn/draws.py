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
    def held_out(self) -> bool:
        """Reserved by hash, whichever number comes first in + and *.

        What every sum is worked out with is for everybody: tables, single digits, whole tens.
        """
        pair = (self.left, self.right)
        if self.sign in "+-":
            common = min(pair) < 10 or not self.left % 10 or not self.right % 10
        else:
            largest = max(pair) if self.sign == "*" else self.result
            common = largest <= LARGEST_TABLE_FACT or not largest % 10
        if self.sign in "+*":
            pair = (min(pair), max(pair))
        return not common and is_held_out(f"{pair[0]}{self.sign}{pair[1]}")

    @property
    def worked(self) -> str:
        """The sum as an answer writes it: '23 * 4 = 80 + 12 = 92', '47 + 38 = 70 + 15 = 85', '3 + 4 = 7'."""
        return " = ".join([str(self), *self._steps, str(self.result)])

    @property
    def _steps(self) -> list[str]:
        """How the result is found from tens and units; nothing where it can be known by heart."""
        left, right = divmod(self.left, 10), divmod(self.right, 10)
        if self.sign == "+":
            tens, units = 10 * (left[0] + right[0]), left[1] + right[1]
            return (
                [f"{tens} + {units}"] if tens and units and {tens, units} != {self.left, self.right} else []
            )
        if self.sign == "-":
            tens, units = self.right - right[1], right[1]
            split = f"{self.left} - {tens} - {units}"
            return [split, f"{self.left - tens} - {units}"] if tens and units else []
        if self.sign == "*":
            parts = f"{10 * left[0] * self.right} + {left[1] * self.right}"
            return [parts] if self.left > LARGEST_TABLE_FACT and left[1] else []
        tens, units = divmod(self.result, 10)
        if self.result <= LARGEST_TABLE_FACT or not units:
            return []
        parts = f"{10 * tens * self.right} / {self.right} + {units * self.right} / {self.right}"
        return [parts, f"{10 * tens} + {units}"]

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
