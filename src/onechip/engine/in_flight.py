"""Work that the device has and the host has not read -> what it gave to each request."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from onechip.engine.sampling import Chosen
from onechip.engine.turns import DecodeWindow, PrefillChunk, Result
from onechip.engine.types import Logprobs


@dataclass(frozen=True, slots=True)
class InFlight:
    """One program's work.

    Attributes:
        tokens: device array, [steps, slots] of a window; of a chunk what is ready when it has run.
        chosen: of a steered step or a scored chunk, with log-probabilities; its tokens are `tokens`.
        reported: how many of the likeliest tokens each row wants to know; only those that asked.
    """

    work: PrefillChunk | DecodeWindow
    tokens: Any
    chosen: Chosen | None = None
    reported: Mapping[int, int] = field(default_factory=dict)

    def results(self) -> list[Result]:
        """Wait for the device, and give each request its tokens; parts of prompts give none but if scored."""
        tokens = np.asarray(self.tokens)
        logprobs = dict(self._logprobs())
        if isinstance(self.work, DecodeWindow):
            columns = np.atleast_2d(tokens).T.tolist()
            return [
                Result(slot, request_id, tuple(columns[slot]), (logprobs[slot],) if slot in logprobs else ())
                for slot, request_id in self.work.rows
            ]
        if not self.work.scored:
            return []
        [part] = self.work.parts
        told = tuple(tokens[: part.valid].tolist()), tuple(logprobs.values())
        return [Result(part.slot, part.request.id, *told)]

    def _logprobs(self) -> Iterator[tuple[int, Logprobs]]:
        """Of each reported row."""
        if self.chosen is None or not self.reported:
            return
        rows, chosen = np.array(list(self.reported)), self.chosen
        tokens, own, ranks, ids, best = (
            np.asarray(array)[rows]
            for array in (chosen.tokens, chosen.logprobs, chosen.ranks, chosen.top, chosen.top_logprobs)
        )
        own = _same_in_both(tokens, own, ids, best)
        lists = zip(
            self.reported.items(), own.tolist(), ranks.tolist(), ids.tolist(), best.tolist(), strict=True
        )
        for (row, most), logprob, rank, likely, logprobs in lists:
            yield row, Logprobs(logprob, rank, tuple(zip(likely[:most], logprobs[:most], strict=True)))


def _same_in_both(
    tokens: NDArray[np.int32], own: NDArray[np.float32], ids: NDArray[np.int32], best: NDArray[np.float32]
) -> NDArray[np.float32]:
    """The log-probabilities of tokens [rows], to the bit as those among the likeliest [rows, n], so that a
    client can compare them.
    """
    same = ids == tokens[:, None]
    there = np.take_along_axis(best, same.argmax(axis=1)[:, None], axis=1)[:, 0]
    return np.where(same.any(axis=1), there, own)
