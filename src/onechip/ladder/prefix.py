"""The prefix-cache canary: prompts that nobody asked before in, whether a cell's were asked before out.

Where an engine says nowhere how much of a prompt came from a cache, its time to first token does: a prompt
that it has in its cache is answered sooner than a new one of the same length.
"""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from dataclasses import dataclass, field
from statistics import median

from onechip.ladder import timing
from onechip.ladder.jobs import sweep
from onechip.ladder.jobs.task import Ask, prepared
from onechip.ladder.records import RequestRecord
from onechip.ladder.session import Session
from onechip.ladder.stream import read_exchange

TRIES = 5
SOONER = 0.6
"""Repeated prompts whose first tokens take less than this share of any new one's come from a cache."""


@dataclass(frozen=True, slots=True)
class _Waits:
    """Time to first token, ms: the shortest of TRIES new prompts, the median of the same again."""

    new: float
    again: float

    @property
    def between(self) -> float:
        return (self.new + self.again) / 2


@dataclass
class PrefixCanary:
    """Of one engine between its start and its stop."""

    session: Session
    _waits: dict[int, _Waits | None] = field(default_factory=dict)

    def asked_before(self, unasked: Ask) -> list[str]:
        """One sentence if a prompt of a cell's own series is answered like one from the cache.

        Args:
            unasked: made like the cell's prompts, in the same series, but none of them: whoever asked the
                cell before, on this server, asked this one too.
        """
        tokens = unasked.asked_prompt_tokens
        assert tokens is not None
        if tokens not in self._waits:
            self._waits[tokens] = self._measured(tokens)
        waits = self._waits[tokens]
        if waits is None:
            return []
        found = self._ttft_ms([unasked])[0]
        if found is None or found >= waits.between:
            return []
        return [
            "Its prompts seem to be in the engine's prefix cache: one of their series that this cell does"
            f" not ask had its first token after {found:.0f} ms, a new prompt after {waits.new:.0f}, the same"
            f" again after {waits.again:.0f}."
        ]

    def _measured(self, tokens: int) -> _Waits | None:
        """None if the engine has no cache that shows."""
        asks = [sweep.ask(self.session, (tokens, 1), secrets.token_hex()) for _ in range(TRIES)]
        # Each one twice in a row, so that what slows the machine down for a while slows both.
        found = [wait for wait in self._ttft_ms([ask for ask in asks for _ in range(2)]) if wait is not None]
        if len(found) < 2 * TRIES:
            return None
        waits = _Waits(min(found[::2]), median(found[1::2]))
        return waits if waits.again < SOONER * waits.new else None

    def _ttft_ms(self, asks: Sequence[Ask]) -> list[float | None]:
        """One after the other."""
        exchanges = prepared(asks, 1, self.session)().exchanges
        records = [read_exchange(exchange, RequestRecord(0, "")) for exchange in exchanges]
        return [None if record.error else timing.ttft_ms(record) for record in records]
