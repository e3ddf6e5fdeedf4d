"""What the host adds to the choice of each token: guides' masks, penalties and bias, wishes for
log-probabilities.

Everything of a request stands here from its start to its end; `steer` puts what holds for one step into
arrays, while the device computes the logits that they will be applied to.
"""

from __future__ import annotations

import traceback
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import NamedTuple

import jax
import numpy as np
from numpy.typing import NDArray

from onechip.engine.guides.masks import Mask, forbid
from onechip.engine.sampling import WORD, Steer, adjustable, words
from onechip.engine.types import Event, Request
from onechip.errors import OnechipError, RequestError


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


class _Steered:
    """A request that is steered, and how far it is; `failure` is what a guide broke with."""

    def __init__(self, request: Request, adjustments: Adjustments | None) -> None:
        self.request = request
        self.adjustments = adjustments
        self.failure: BaseException | None = None
        self._taken = 0

    def take(self, token: int) -> None:
        """The answer has this token now."""
        self._taken += 1
        for guide in self.request.guides:
            guide.take(token)
        if self.adjustments is not None:
            self.adjustments.take(token)

    def forbid(self, allowed: Mask) -> None:
        """Clear the bits of tokens that may not come next.

        Raises:
            RequestError: a guide cannot say, or none is left.
            BaseException: a guide is broken.
        """
        if self.failure is not None:
            raise self.failure
        for guide in self.request.guides:
            guide.forbid(allowed)
        params = self.request.sampling
        early = self._taken < params.min_tokens
        if early:  # the device bans them too, but could not tell why nothing is left
            forbid(allowed, params.stop_token_ids)
        if not allowed.any():
            what = "min_tokens and what else was asked for leave" if early else "What was asked for leaves"
            raise RequestError(f"{what} no token that may come next.")


class Step(NamedTuple):
    """What the host adds to one step.

    Attributes:
        reported: how many of the likeliest tokens each slot wants to know; only those that asked.
        failed: the ends of requests whose guides fail.
    """

    steer: Steer
    reported: dict[int, int]
    failed: list[Event]


class Steering:
    """The steered requests of an engine, and what holds for their next tokens. For the engine's thread."""

    def __init__(self, slots: int, vocabulary: int, context: int) -> None:
        self._slots = slots
        self._vocabulary = vocabulary
        self._most = adjustable(vocabulary, context)
        self._requests: dict[str, _Steered] = {}
        self._anything = _mask_of(vocabulary)
        # What a step does not need is on the device already; handing it over costs more than a tiny model.
        self._nothing: Steer = jax.device_put(self._unsteered())

    def add(self, request: Request) -> None:
        """A request begins; one that is not steered is of no interest."""
        if request.steered:
            adjusts = request.sampling.adjusts
            self._requests[request.id] = _Steered(
                request, Adjustments(request, self._most) if adjusts else None
            )

    def take(self, events: Iterable[Event]) -> None:
        """Answers went on, or ended."""
        for event in events:
            known = self._requests.get(event.request_id)
            if known is None:
                continue
            if event.finish is not None:
                del self._requests[event.request_id]
                continue
            try:
                for token in event.tokens:
                    known.take(token)
            except BaseException as error:  # `forbid`, which can end the request, says so
                known.failure = error

    def steer(self, rows: Sequence[tuple[int, str]]) -> Step:
        """What holds for the next token of each (slot, request id)."""
        known = [(slot, self._requests[id]) for slot, id in rows if id in self._requests]
        guided = [(slot, steered) for slot, steered in known if steered.request.guides]
        adjusted = [(slot, steered.adjustments) for slot, steered in known if steered.adjustments is not None]
        wanted = ((slot, steered.request.sampling.logprobs) for slot, steered in known)
        reported = {slot: count for slot, count in wanted if count is not None}
        steer, failed = self._nothing, list[Event]()
        if guided:
            allowed = np.tile(self._anything, (self._slots, 1))
            failed = self._forbid(guided, allowed)
            steer = replace(steer, allowed=allowed, masked=self._flags(slot for slot, _ in guided))
        if adjusted:
            ids, scale, bias = changes = self._no_changes()
            for slot, adjustments in adjusted:
                adjustments.write(*(array[slot] for array in changes))
            flags = self._flags(slot for slot, _ in adjusted)
            steer = replace(steer, adjusted=flags, ids=ids, scale=scale, bias=bias)
        if reported:
            steer = replace(steer, reported=self._flags(reported))
        return Step(steer, reported, failed)

    def _forbid(self, guided: Sequence[tuple[int, _Steered]], allowed: NDArray[np.uint32]) -> list[Event]:
        """Ask the guides of each slot about its row of `allowed` -> the ends of those that cannot go on."""
        failed: list[Event] = []
        for slot, steered in guided:
            try:
                steered.forbid(allowed[slot])
            except BaseException as error:  # what Rust panics with is no Exception
                failed.append(_failure(steered.request, error))
                allowed[slot] = self._anything
        return failed

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


def _mask_of(vocabulary: int) -> Mask:
    """The bits of all tokens, and no others."""
    bits = np.zeros(WORD * words(vocabulary), np.uint8)
    bits[:vocabulary] = 1
    return np.packbits(bits, bitorder="little").view(np.uint32)


def _failure(request: Request, error: BaseException) -> Event:
    """The end of a request whose guides cannot go on; a guide that is broken costs no other request."""
    if isinstance(error, OnechipError):
        refused = isinstance(error, RequestError)
        return Event(request.id, finish="error", error=error.message, refused=refused)
    traceback.print_exception(error)
    return Event(request.id, finish="error", error="what guides the answer failed; see the server's log")
