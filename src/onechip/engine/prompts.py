"""The prompts' part of a turn: who begins with what of the cache, and which chunks run. No JAX, no clock.

A prompt begins when its first chunk is planned, not when it gets its slot: those that came together find what
the first of them computes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from onechip.engine.prefixes import Copies, Tokens
from onechip.engine.turns import PrefillChunk, PrefillPart, Running, State


class Prompts:
    """Plans what a turn sends of prompts; what is sent is noted in `slots` and `prefixes`.

    Attributes:
        copies: those that no chunk has taken along yet.
    """

    def __init__(self, state: State) -> None:
        self.slots = list(state.slots)
        self.prefixes = state.prefixes
        self.copies = Copies()
        self._limits = state.limits
        self._waiting = state.waiting
        if self.prefixes is not None and any(slot and not slot.begun for slot in self.slots):
            decoding = {i: slot.content for i, slot in enumerate(self.slots) if slot and slot.joined}
            self.prefixes = self.prefixes.holding(decoding)

    def chunks(self, budget: int) -> tuple[PrefillChunk, ...]:
        """Chunks within the budget, first come first."""
        chunks: list[PrefillChunk] = []
        while (chunk := self._next_chunk()) is not None:
            if chunks and chunk.bucket > budget:
                break
            budget -= chunk.bucket
            chunks.append(replace(chunk, copies=self.copies))
            self.copies = Copies()
            for part in chunk.parts:
                self._note(part)
        return tuple(chunks)

    def _next_chunk(self) -> PrefillChunk | None:
        """What comes first of the prompts that are not in; None if all are."""
        room, parts = self._limits.chunk_buckets[-1], list[PrefillPart]()
        pending = self._pending()
        for place, (index, _) in enumerate(pending, start=1):
            if not room or (parts and self._alone(index, parts)):
                break
            if not self._begin(index, parts, [running.tokens for _, running in pending[place:]]):
                break
            running = self.slots[index]
            assert running is not None
            if running.left:
                if running.request.scored and self._decoding:
                    room = min(room, self._limits.scored_beside)
                valid = min(running.unbroken, room)
                parts.append(PrefillPart(index, running.request, running.prefilled, valid))
                room -= valid
                if valid < running.left:
                    break
        if not parts:
            return None
        largest = self._limits.chunk_buckets[-1]
        bucket = largest if parts[0].request.scored else self._limits.chunk_bucket(largest - room)
        return PrefillChunk(tuple(parts), bucket)

    @property
    def _decoding(self) -> bool:
        return any(slot is not None and slot.wants_tokens for slot in self.slots)

    def _alone(self, index: int, parts: Sequence[PrefillPart]) -> bool:
        """Whether this slot's prompt cannot share a chunk with these parts."""
        slot = self.slots[index]
        scored = parts[0].request.scored or (slot is not None and slot.request.scored)
        return scored or not self._limits.shared_chunks

    def _pending(self) -> list[tuple[int, Running]]:
        """Slots whose prompts are not in, in the order in which they came; those that are scored are last: a
        long list of them would hold up all others.
        """
        pending = [(i, slot) for i, slot in enumerate(self.slots) if slot and (slot.left or not slot.begun)]
        return sorted(pending, key=lambda entry: (entry[1].request.scored, entry[1].order))

    def _begin(self, index: int, parts: Sequence[PrefillPart], later: list[Tokens]) -> bool:
        """Look for what stands in the cache of a prompt; False if it is better done after these parts.

        `later` are the prompts behind it.
        """
        running = self.slots[index]
        assert running is not None
        if self.prefixes is None or running.begun or running.request.scored:
            self.slots[index] = replace(running, begun=True)
            return True
        later = later + [entry.tokens for entry in self._waiting[: len(self.slots)]]
        spare = [other for other, slot in enumerate(self.slots) if slot is None]
        last = len(running.tokens) - 1 + running.request.sampling.max_tokens
        prefixes, beginning = self.prefixes.begin(index, running.tokens, last, spare, later)
        coming = [min(self._shared(index, part.slot), part.start + part.valid) for part in parts]
        if max(coming, default=0) >= beginning.cached + self.prefixes.reuse.worth:
            return False
        self.prefixes = prefixes
        self.copies += beginning.copies
        self.slots[index] = replace(
            running,
            begun=True,
            cached=beginning.cached,
            written=beginning.written,
            prefilled=beginning.cached,
            keeps=beginning.keeps,
        )
        return True

    def _shared(self, index: int, other: int) -> int:
        mine, theirs = self.slots[index], self.slots[other]
        return mine.tokens.shared(theirs.tokens) if mine and theirs else 0

    def _note(self, part: PrefillPart) -> None:
        """A part has been sent."""
        running = self.slots[part.slot]
        assert running is not None
        running = replace(running, prefilled=part.start + part.valid)
        self.slots[part.slot] = running
        if self.prefixes is None:
            return
        self.prefixes = self.prefixes.holding({part.slot: running.content})
        if running.prefilled in running.keeps:
            self.prefixes, copies = self.prefixes.keep(part.slot)
            self.copies += copies
