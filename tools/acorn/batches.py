"""Rows to train on: conversations in, packed token rows with positions, documents and loss weights out."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import jax
import numpy as np
from numpy.typing import NDArray

from onechip.models.tokenizer import Tokenizer
from tools.acorn.draws import Draw
from tools.acorn.samples import Piece, Sampler


@dataclass(frozen=True, slots=True)
class Shape:
    """How many rows of how many tokens a step takes, and whether they hold long conversations."""

    rows: int
    length: int
    long: bool


SHORT = Shape(12, 320, long=False)
LONG = Shape(2, 1024, long=True)
LONG_EVERY = 6
"""One step in this many sees the long rows: attention over 1,024 tokens costs three times as much a token."""

MISSES = 20


@dataclass(frozen=True, slots=True)
class Encoded:
    """One conversation as ids; `learned[i]` says whether id i is the model's own."""

    ids: NDArray[np.int32]
    learned: NDArray[np.bool_]


@jax.tree_util.register_dataclass
@dataclass(frozen=True, slots=True)
class Batch:
    """What one step computes on, [rows, length] each but for the mask.

    Attributes:
        tokens, targets, positions: int32; a target is the token after; each document has positions from 0.
        weights: float32, 1 where the target is learned.
        documents: int32, which of the row's documents a token belongs to; 0 is padding.
    """

    tokens: NDArray[np.int32]
    targets: NDArray[np.int32]
    positions: NDArray[np.int32]
    weights: NDArray[np.float32]
    documents: NDArray[np.int32]


def encode(tokenizer: Tokenizer, pieces: list[Piece]) -> Encoded:
    parts = [tokenizer.encode(piece.text) for piece in pieces]
    ids = np.array([token for part in parts for token in part], np.int32)
    learned = np.repeat([piece.learned for piece in pieces], [len(part) for part in parts])
    return Encoded(ids, learned)


def pack(shape: Shape, conversations: Iterator[Encoded]) -> Batch:
    """Fill rows first-fit until MISSES conversations fitted nowhere; one longer than a row is cut there."""
    size = (shape.rows, shape.length)
    tokens, targets, positions, documents = (np.zeros(size, np.int32) for _ in range(4))
    weights = np.zeros(size, np.float32)
    used, count, misses = [0] * shape.rows, [0] * shape.rows, 0
    for conversation in conversations:
        ids, learned = conversation.ids[: shape.length + 1], conversation.learned[: shape.length + 1]
        length = len(ids) - 1
        row = next((row for row in range(shape.rows) if used[row] + length <= shape.length), None)
        if row is None:
            misses += 1
            if misses == MISSES:
                break
            continue
        place = slice(used[row], used[row] + length)
        count[row] += 1
        tokens[row, place], targets[row, place] = ids[:-1], ids[1:]
        positions[row, place], documents[row, place] = np.arange(length), count[row]
        weights[row, place] = learned[1:]
        used[row] += length
    return Batch(tokens, targets, positions, weights, documents)


class Batches:
    """The batch of each step, from the seed and the step alone, so that a resumed run sees the same ones."""

    def __init__(self, tokenizer: Tokenizer, seed: int) -> None:
        self._tokenizer = tokenizer
        self._sampler = Sampler()
        self._seed = seed

    def at(self, step: int) -> Batch:
        shape = LONG if step % LONG_EVERY == LONG_EVERY - 1 else SHORT
        draw = Draw(f"batch {self._seed} {step}")
        make = self._sampler.long if shape.long else self._sampler.short
        return pack(shape, self._stream(draw, make))

    def _stream(self, draw: Draw, make: Callable[[Draw], list[Piece]]) -> Iterator[Encoded]:
        while True:
            yield encode(self._tokenizer, make(draw))
