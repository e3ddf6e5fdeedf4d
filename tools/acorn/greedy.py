"""Greedy answers without a cache: weights and prompts in, token ids out, by whole forward passes.

Each pass guesses all tokens of an answer at once from the guess before it (Jacobi decoding, Santilli et al.
2023, arXiv:2305.10427): what no longer changes is the greedy text, and a good first guess gets there soon.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import NDArray

from onechip.models import decoder
from onechip.models.config import ModelConfig
from onechip.models.layout import Params
from onechip.models.tokenizer import Tokenizer

STOP_IDS = (1, 50, 106)
TOKENS_AT_ONCE = 6400
"""Of one forward pass, which bounds its memory."""


@dataclass(frozen=True, slots=True)
class Task:
    """A prompt and the answer that the generator gives, end token included: the first guess."""

    prompt: str
    answer: str


@partial(jax.jit, static_argnames=("config", "dtype"))
def _predict(config: ModelConfig, params: Params, tokens: jax.Array, dtype: jnp.dtype) -> jax.Array:
    """tokens [B, T] -> the likeliest next token after each, [B, T]."""
    positions = jnp.broadcast_to(jnp.arange(tokens.shape[1], dtype=jnp.int32), tokens.shape)
    return decoder.forward(config, params, tokens, positions, dtype=dtype).argmax(-1).astype(jnp.int32)


class Greedy:
    """Answers tasks with one set of weights.

    Args:
        params: dense or int4.
        length: tokens of prompt and answer together at most; what is longer counts as it stands there.
    """

    def __init__(
        self, config: ModelConfig, params: Params, tokenizer: Tokenizer, dtype: jnp.dtype, length: int
    ) -> None:
        self._config, self._params, self._tokenizer = config, params, tokenizer
        self._dtype, self._length = dtype, length
        self._count = max(1, TOKENS_AT_ONCE // length)

    def answers(self, tasks: Sequence[Task]) -> list[list[int]]:
        """The greedy token ids of each task, the end token included."""
        return [ids for part in self._parts(tasks) for ids in self._some(part)]

    def exact(self, tasks: Sequence[Task]) -> int:
        """How many answers are the generator's to the last token: one forward pass, no guessing."""
        right = 0
        for part in self._parts(tasks):
            tokens, starts, ends = self._rows(part)
            predicted = self._next(tokens)
            right += sum(
                bool((predicted[row, first - 1 : end - 1] == tokens[row, first:end]).all())
                for row, (first, end) in enumerate(zip(starts, ends, strict=True))
            )
        return right

    def _parts(self, tasks: Sequence[Task]) -> Iterator[Sequence[Task]]:
        return (tasks[start : start + self._count] for start in range(0, len(tasks), self._count))

    def _some(self, tasks: Sequence[Task]) -> list[list[int]]:
        tokens, starts, _ = self._rows(tasks)
        said: list[list[int]] = [[] for _ in tasks]
        while True:
            predicted = self._next(tokens)
            for row, first in enumerate(starts):
                tokens[row, first:] = predicted[row, first - 1 : -1]
            settled = [_up_to_stop(tokens[row, first:]) for row, first in enumerate(starts)]
            if settled == said:
                return settled
            said = settled

    def _next(self, tokens: NDArray[np.int32]) -> NDArray[np.int32]:
        return np.array(_predict(self._config, self._params, tokens, self._dtype))

    def _rows(self, tasks: Sequence[Task]) -> tuple[NDArray[np.int32], list[int], list[int]]:
        """tokens [rows, length], and where each answer starts and ends."""
        tokens = np.zeros((self._count, self._length), np.int32)
        starts, ends = [], []
        for row, task in enumerate(tasks):
            prompt, answer = self._tokenizer.encode(task.prompt), self._tokenizer.encode(task.answer)
            ids = (prompt + answer)[: self._length]
            tokens[row, : len(ids)] = ids
            starts.append(len(prompt))
            ends.append(len(ids))
        return tokens, starts, ends


def _up_to_stop(ids: NDArray[np.int32]) -> list[int]:
    stops = np.flatnonzero(np.isin(ids, STOP_IDS))
    return ids[: stops[0] + 1 if stops.size else None].tolist()
