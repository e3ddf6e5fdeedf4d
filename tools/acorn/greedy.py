"""Greedy answers without a cache: weights and prompts in, texts out, by whole forward passes.

Each pass guesses all tokens of an answer at once from the guess before it (Jacobi decoding, Santilli et al.
2023, arXiv:2305.10427): what no longer changes is the greedy text, and a good first guess gets there soon.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import NDArray
from tokenizers import Tokenizer

from onechip.models import gemma4
from onechip.models.config import ModelConfig
from onechip.models.layout import Params

STOP_IDS = (1, 50, 106)
ROWS = 20
"""Prompts answered at once."""


@dataclass(frozen=True, slots=True)
class Task:
    """A prompt and the answer that the generator gives, end token included: the first guess."""

    prompt: str
    answer: str


@partial(jax.jit, static_argnames=("config", "dtype"))
def _predict(config: ModelConfig, params: Params, tokens: jax.Array, dtype: jnp.dtype) -> jax.Array:
    """tokens [B, T] -> the likeliest next token after each, [B, T]."""
    positions = jnp.broadcast_to(jnp.arange(tokens.shape[1], dtype=jnp.int32), tokens.shape)
    return gemma4.forward(config, params, tokens, positions, dtype=dtype).argmax(-1).astype(jnp.int32)


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

    def answers(self, tasks: Sequence[Task]) -> list[str]:
        """The greedy text of each task, special tokens and the end token included."""
        return [
            text for start in range(0, len(tasks), ROWS) for text in self._some(tasks[start : start + ROWS])
        ]

    def exact(self, tasks: Sequence[Task]) -> int:
        """How many answers are the generator's to the last token: one forward pass, no guessing."""
        right = 0
        for start in range(0, len(tasks), ROWS):
            tokens, starts, ends = self._rows(tasks[start : start + ROWS])
            predicted = self._next(tokens)
            right += sum(
                bool((predicted[row, first - 1 : end - 1] == tokens[row, first:end]).all())
                for row, (first, end) in enumerate(zip(starts, ends, strict=True))
            )
        return right

    def _some(self, tasks: Sequence[Task]) -> list[str]:
        tokens, starts, _ = self._rows(tasks)
        said: list[list[int]] = [[] for _ in tasks]
        while True:
            predicted = self._next(tokens)
            for row, first in enumerate(starts):
                tokens[row, first:] = predicted[row, first - 1 : -1]
            settled = [_up_to_stop(tokens[row, first:]) for row, first in enumerate(starts)]
            if settled == said:
                return [self._tokenizer.decode(ids, skip_special_tokens=False) for ids in settled]
            said = settled

    def _next(self, tokens: NDArray[np.int32]) -> NDArray[np.int32]:
        return np.array(_predict(self._config, self._params, tokens, self._dtype))

    def _rows(self, tasks: Sequence[Task]) -> tuple[NDArray[np.int32], list[int], list[int]]:
        """tokens [ROWS, length], and where each answer starts and ends."""
        tokens = np.zeros((ROWS, self._length), np.int32)
        starts, ends = [], []
        for row, task in enumerate(tasks):
            prompt, answer = self._ids(task.prompt), self._ids(task.answer)
            ids = (prompt + answer)[: self._length]
            tokens[row, : len(ids)] = ids
            starts.append(len(prompt))
            ends.append(len(ids))
        return tokens, starts, ends

    def _ids(self, text: str) -> list[int]:
        return list(self._tokenizer.encode(text, add_special_tokens=False).ids)


def _up_to_stop(ids: NDArray[np.int32]) -> list[int]:
    stops = np.flatnonzero(np.isin(ids, STOP_IDS))
    return ids[: stops[0] + 1 if stops.size else None].tolist()
