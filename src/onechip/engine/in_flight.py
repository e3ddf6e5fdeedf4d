"""Work that the device has and the host has not read -> what it gave to each request."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

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
        chosen = self.chosen
        rows = np.array(list(self.reported))
        own, ranks, ids, best = (
            np.asarray(array)[rows].tolist()
            for array in (chosen.logprobs, chosen.ranks, chosen.top, chosen.top_logprobs)
        )
        for place, (row, most) in enumerate(self.reported.items()):
            top = tuple(zip(ids[place][:most], best[place][:most], strict=True))
            yield row, Logprobs(own[place], ranks[place], top)
