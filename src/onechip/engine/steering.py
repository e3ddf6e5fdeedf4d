"""What the host adds to the choice of each token: guides' masks, penalties and bias, wishes for
log-probabilities.

Everything of a request stands here from its start to its end; `steer` puts what holds for one step into
arrays, while the device computes the logits that they will be applied to.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

import jax
import numpy as np
from numpy.typing import NDArray

from onechip.engine.sampling import Steer, adjustable, words
from onechip.engine.types import Event, Request
from onechip.errors import EngineError


class Adjustments:
    """Penalties and bias of one request: which logits change, and how."""

    def __init__(self, request: Request, most: int) -> None:
        """`most`: see `adjustable`."""
        self._params = request.sampling
        self._columns: dict[int, int] = {}
        self._ids = np.zeros(most, np.int32)
        self._counts = np.zeros(most, np.int32)
        self._seen = np.zeros(most, np.bool_)
        self._bias = np.zeros(most, np.float32)
        if self._params.repetition_penalty != 1:
            for token in set(request.prompt):
                self._seen[self._column(token)] = True
        for token, bias in self._params.logit_bias:
            self._bias[self._column(token)] += bias

    def take(self, token: int) -> None:
        """The answer has this token now."""
        column = self._column(token)
        self._counts[column] += 1
        self._seen[column] = True

    def write(self, ids: NDArray[np.int32], scale: NDArray[np.float32], bias: NDArray[np.float32]) -> None:
        """Write what holds for the next token into the first entries of a row of each; see Steer."""
        count, params = len(self._columns), self._params
        counts = self._counts[:count]
        ids[:count] = self._ids[:count]
        scale[:count] = np.where(self._seen[:count], params.repetition_penalty, 1)
        bias[:count] = (
            self._bias[:count] - params.frequency_penalty * counts - params.presence_penalty * (counts > 0)
        )

    def _column(self, token: int) -> int:
        column = self._columns.setdefault(token, len(self._columns))
        self._ids[column] = token
        return column


class Steering:
    """The steered requests of an engine, and what holds for their next tokens. For the engine's thread."""

    def __init__(self, slots: int, vocabulary: int, context: int) -> None:
        self._slots = slots
        self._vocabulary = vocabulary
        self._most = adjustable(vocabulary, context)
        self._requests: dict[str, tuple[Request, Adjustments | None]] = {}
        # What a step does not need is on the device already; handing it over costs more than a tiny model.
        self._nothing: Steer = jax.device_put(self._unsteered())

    def add(self, request: Request) -> None:
        """A request begins; one that is not steered is of no interest."""
        if request.steered:
            adjusts = request.sampling.adjusts
            self._requests[request.id] = request, Adjustments(request, self._most) if adjusts else None

    def take(self, events: Iterable[Event]) -> None:
        """Answers went on, or ended."""
        for event in events:
            known = self._requests.get(event.request_id)
            if known is None:
                continue
            if event.finish is not None:
                del self._requests[event.request_id]
                continue
            request, adjustments = known
            for token in event.tokens:
                for guide in request.guides:
                    guide.take(token)
                if adjustments is not None:
                    adjustments.take(token)

    def steer(self, rows: Sequence[tuple[int, str]]) -> tuple[Steer, list[Event]]:
        """What holds for the next token of each (slot, request id), and the ends of requests whose guides
        fail.
        """
        known = [(slot, *self._requests[id]) for slot, id in rows if id in self._requests]
        guided = [(slot, request) for slot, request, _ in known if request.guides]
        adjusted = [(slot, adjustments) for slot, _, adjustments in known if adjustments is not None]
        reported = [slot for slot, request, _ in known if request.sampling.logprobs is not None]
        steer, failed = self._nothing, []
        if guided:
            allowed = np.full((self._slots, words(self._vocabulary)), 0xFFFFFFFF, np.uint32)
            failed = _forbid(guided, allowed)
            steer = replace(steer, allowed=allowed, masked=self._flags(slot for slot, _ in guided))
        if adjusted:
            ids, scale, bias = changes = self._no_changes()
            for slot, adjustments in adjusted:
                adjustments.write(*(array[slot] for array in changes))
            flags = self._flags(slot for slot, _ in adjusted)
            steer = replace(steer, adjusted=flags, ids=ids, scale=scale, bias=bias)
        if reported:
            steer = replace(steer, reported=self._flags(reported))
        return steer, failed

    def reported(self, rows: Sequence[tuple[int, str]]) -> dict[int, int]:
        """How many of the likeliest tokens each slot wants to know, of those that want log-probabilities."""
        found: dict[int, int] = {}
        for slot, request_id in rows:
            request, _ = self._requests.get(request_id, (None, None))
            if request is not None and request.sampling.logprobs is not None:
                found[slot] = request.sampling.logprobs
        return found

    def _flags(self, slots: Iterable[int]) -> NDArray[np.bool_]:
        flags = np.zeros(self._slots, np.bool_)
        flags[list(slots)] = True
        return flags

    def _no_changes(self) -> tuple[NDArray[np.int32], NDArray[np.float32], NDArray[np.float32]]:
        shape = self._slots, self._most
        ids = np.full(shape, self._vocabulary, np.int32)
        return ids, np.ones(shape, np.float32), np.zeros(shape, np.float32)

    def _unsteered(self) -> Steer:
        ids, scale, bias = self._no_changes()
        nobody = self._flags(())
        allowed = np.zeros((self._slots, words(self._vocabulary)), np.uint32)
        return Steer(allowed, nobody, nobody, nobody, ids, scale, bias)


def _forbid(guided: Sequence[tuple[int, Request]], allowed: NDArray[np.uint32]) -> list[Event]:
    """Ask the guides of each slot about its row of `allowed` -> the ends of requests whose guides fail."""
    failed: list[Event] = []
    for slot, request in guided:
        try:
            for guide in request.guides:
                guide.forbid(allowed[slot])
        except EngineError as error:
            failed.append(Event(request.id, finish="error", error=str(error)))
            allowed[slot] = 0xFFFFFFFF
    return failed
