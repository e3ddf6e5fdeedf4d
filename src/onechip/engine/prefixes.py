"""Which beginnings of prompts stand in the cache already, and how they get where they are needed. No JAX.

The cache has rows. The first are the slots, each with a ring in every sliding layer and a span in every full
one; behind them are kept rings, which no slot owns. What an ended request left in its slot stays known until
it is overwritten, so free slots are the store of what was computed before.

A span is right for every beginning of the text that was written to it. A ring is not: position p + window
overwrites position p. Of a text that was written up to position w, it is right for the first n tokens only if
nothing was lost yet (w <= window), or if just the next token overwrote (n >= w - 1). So rings are kept where
others may want to go on: at the end of each prompt, and where prompts part.

A request takes the lowest free slot whatever stands there, because a decode step computes all rows up to the
last active one; what it needs is copied to it, and what stood there is moved to a free slot if that is worth
it.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

WORTH = 32
"""Fewer tokens than these are computed rather than copied: they are one small chunk of a prompt."""
HEAD = 32
"""Tokens of a prompt that are looked at first."""


@dataclass(frozen=True, slots=True)
class Reuse:
    """What the memory plan allows.

    Attributes:
        window: positions of a ring; 0 if the model has none.
        kept: rings besides those of the slots.
        worth: tokens that must be saved for anything to be copied or kept.
    """

    window: int
    kept: int
    worth: int = WORTH


@dataclass(frozen=True, slots=True, eq=False)
class Tokens:
    """A prompt, made to be compared fast.

    Attributes:
        ids: [n] int32.
        head: its first tokens' bytes. Most prompts differ in them already.
    """

    ids: NDArray[np.int32]
    head: bytes

    @classmethod
    def of(cls, prompt: Sequence[int]) -> Tokens:
        ids = np.array(prompt, np.int32)
        return cls(ids, ids[:HEAD].tobytes())

    def shared(self, other: Tokens) -> int:
        """How many tokens both begin with; 0 if they part in `head`."""
        if not (self.head.startswith(other.head) or other.head.startswith(self.head)):
            return 0
        return _equal(self.ids, other.ids)

    def __len__(self) -> int:
        return len(self.ids)


def _equal(some: NDArray[np.int32], others: NDArray[np.int32]) -> int:
    """How many entries both begin with."""
    size = min(len(some), len(others))
    differ = some[:size] != others[:size]
    first = int(differ.argmax()) if size else 0
    return first if size and differ[first] else size


@dataclass(frozen=True, slots=True)
class Content:
    """What stands in a row.

    Attributes:
        prompt, answer: the text, which may go on behind `length`.
        length: positions that hold the text's tokens.
        written: positions that may have been written; behind `length` nobody knows what.
        used: when it was last of use, higher is later; 0 if it is of none any more.
    """

    prompt: Tokens
    answer: tuple[int, ...] = ()
    length: int = 0
    written: int = 0
    used: int = 0

    def shared(self, prompt: Tokens) -> int:
        """How many tokens of `prompt` it begins with; without the last one, which is always run."""
        if not self.length:
            return 0
        shared = self.prompt.shared(prompt)
        if not shared:
            return 0
        own = len(self.prompt)
        if shared == own < self.length:
            answer = np.array(self.answer[: self.length - own], np.int32)
            shared += _equal(answer, prompt.ids[own:])
        return min(shared, self.length, len(prompt) - 1)

    def right_for(self, tokens: int, window: int) -> bool:
        """Whether its ring can be gone on with behind its first `tokens`, which are at most `length`."""
        return self.written <= window or tokens >= self.written - 1 or not window


NOTHING = Content(Tokens.of(()))


@dataclass(frozen=True, slots=True)
class Copies:
    """What is copied between rows, all of `keeps` first, then the others in order.

    Attributes:
        keeps: (slot, row behind the slots), of rings.
        rings: (row, slot).
        spans: (slot, slot, tokens).
    """

    keeps: tuple[tuple[int, int], ...] = ()
    rings: tuple[tuple[int, int], ...] = ()
    spans: tuple[tuple[int, int, int], ...] = ()

    def __add__(self, others: Copies) -> Copies:
        return Copies(self.keeps + others.keeps, self.rings + others.rings, self.spans + others.spans)

    def __bool__(self) -> bool:
        return bool(self.keeps or self.rings or self.spans)


@dataclass(frozen=True, slots=True)
class Beginning:
    """How a request begins.

    Attributes:
        cached: tokens of its prompt that need not be computed.
        written: positions that may have been written of the ring that it goes on with; what was overwritten
            there stays lost.
        copies: what makes that true.
        keeps: lengths of its prompt at which the ring is to be kept, ascending.
    """

    cached: int = 0
    written: int = 0
    copies: Copies = field(default_factory=Copies)
    keeps: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class _Source:
    """The first `tokens` of a prompt are in the span of `slot`, and the ring of `row` is right for them."""

    tokens: int
    row: int
    slot: int


@dataclass(frozen=True, slots=True)
class Prefixes:
    """What all rows hold, slots first. Those of slots that decode are behind the time; see `holding`.

    Attributes:
        now: counts what happens, for `Content.used`.
        queries, hits: prompt tokens that were looked for, and that were found.
    """

    reuse: Reuse
    slots: int
    rows: tuple[Content, ...]
    now: int = 0
    queries: int = 0
    hits: int = 0

    @classmethod
    def empty(cls, reuse: Reuse, slots: int) -> Prefixes:
        return cls(reuse, slots, (NOTHING,) * (slots + reuse.kept))

    def holding(self, contents: Mapping[int, Content]) -> Prefixes:
        """With what these rows hold now."""
        if not contents:
            return self
        now = self.now + 1
        rows = list(self.rows)
        for row, content in contents.items():
            rows[row] = replace(content, used=now if content.length else 0)
        return replace(self, rows=tuple(rows), now=now)

    def assign(self, prompts: Sequence[Tokens], slots: Sequence[int]) -> list[int]:
        """Which of as many slots each prompt gets: one that holds a part of it, else the lowest left."""
        left, found = list(slots), dict[int, int]()
        for index, prompt in enumerate(prompts if len(slots) > 1 else ()):
            shared, slot = max((self.rows[slot].shared(prompt), -slot) for slot in left)
            if shared >= self.reuse.worth:
                found[index] = -slot
                left.remove(-slot)
        rest = iter(left)
        return [found[index] if index in found else next(rest) for index in range(len(prompts))]

    def begin(
        self, slot: int, prompt: Tokens, last: int, spare: Collection[int], others: Sequence[Tokens]
    ) -> tuple[Prefixes, Beginning]:
        """A request begins in a slot.

        Args:
            last: positions that prompt and answer will take at the most.
            spare: free slots.
            others: prompts that begin after it.
        """
        shared = [content.shared(prompt) for content in self.rows]
        source = self._source(slot, shared)
        cached, written = (0, 0) if source is None else (source.tokens, self.rows[source.row].written)
        queries = self.queries + len(prompt)
        known = replace(self, now=self.now + 1, queries=queries, hits=self.hits + cached)
        rows, copies = list(self.rows), Copies()
        busy = {slot} if source is None else {slot, source.row, source.slot}
        if (refuge := self._refuge(slot, shared[slot], set(spare) - busy)) is not None:
            old = rows[slot]
            rows[refuge] = old
            rings = ((slot, refuge),) if self._has_ring(old) else ()
            copies += Copies(rings=rings, spans=((slot, refuge, old.length),))
        if source is not None:
            copies += self._fetch(slot, source)
            for row in {source.row, source.slot} - {slot}:
                done_with = row in spare and self._goes_on(row, shared[row])
                rows[row] = replace(rows[row], used=0 if done_with else known.now)
        rows[slot] = Content(prompt, (), cached, written, known.now)
        keeps = self._keeps(prompt, cached, last, shared[: self.slots], others)
        return replace(known, rows=tuple(rows)), Beginning(cached, written, copies, keeps)

    def keep(self, slot: int) -> tuple[Prefixes, Copies]:
        """Keep a slot's ring, as it is now, in place of the one that was of no use for longest."""
        content, behind = self.rows[slot], range(self.slots, len(self.rows))
        for row in behind:
            same = self.rows[row].length == content.length
            if same and _equal(self.rows[row].prompt.ids, content.prompt.ids) >= content.length:
                return self.holding({row: self.rows[row]}), Copies()
        if not behind:
            return self, Copies()
        row = min(behind, key=lambda row: self.rows[row].used)
        return self.holding({row: content}), Copies(keeps=((slot, row),))

    def _source(self, slot: int, shared: Sequence[int]) -> _Source | None:
        """Where most of a prompt can be had from, and that without copying if it can be."""
        deepest, best = max(shared[: self.slots]), (self.reuse.worth - 1, False, 0)
        for row, content in enumerate(self.rows):
            tokens = min(shared[row], deepest)
            if tokens >= self.reuse.worth and content.right_for(tokens, self.reuse.window):
                best = max(best, (tokens, row == slot, row))
        tokens, _, row = best
        if tokens < self.reuse.worth:
            return None
        if shared[slot] >= tokens:
            return _Source(tokens, row, slot)
        return _Source(tokens, row, next(other for other in range(self.slots) if shared[other] >= tokens))

    def _fetch(self, slot: int, source: _Source) -> Copies:
        rings = ((source.row, slot),) if self.reuse.window and source.row != slot else ()
        spans = ((source.slot, slot, source.tokens),) if source.slot != slot else ()
        return Copies(rings=rings, spans=spans)

    def _refuge(self, slot: int, shared: int, spare: Collection[int]) -> int | None:
        """The free slot where a slot's content goes, None if it need not or cannot be saved."""
        old = self.rows[slot]
        if old.length < self.reuse.worth or self._goes_on(slot, shared):
            return None
        refuge = min(spare, key=lambda other: (self.rows[other].used, other), default=None)
        return refuge if refuge is not None and self.rows[refuge].used < old.used else None

    def _goes_on(self, slot: int, shared: int) -> bool:
        """Whether a prompt that shares so much with what a slot holds is the same conversation: it begins
        with all of its prompt, and what was answered may be told a little differently.
        """
        old, worth = self.rows[slot], self.reuse.worth
        return shared >= worth and shared > min(old.length, len(old.prompt)) - worth

    def _has_ring(self, content: Content) -> bool:
        return self.reuse.window > 0 and content.right_for(content.length, self.reuse.window)

    def _keeps(
        self, prompt: Tokens, cached: int, last: int, held: Sequence[int], others: Sequence[Tokens]
    ) -> tuple[int, ...]:
        """Lengths at which its ring is worth keeping: where it ends, and where most is shared with others."""
        if last <= self.reuse.window or not self.reuse.kept:
            return ()
        end = len(prompt) - 1
        parting = [min(prompt.shared(other), end) for other in others]
        parting = [length for length in (*held, *parting) if length >= cached + self.reuse.worth]
        lengths = {end}
        if parting:  # where going on from it would save the others most
            lengths.add(max(parting, key=lambda length: length * sum(other >= length for other in parting)))
        return tuple(sorted(length for length in lengths if length >= max(cached + 1, self.reuse.worth)))
