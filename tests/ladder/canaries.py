"""Canaries that do not depend on the machine that tests: scripted readings in, a canary for a ladder out."""

from __future__ import annotations

from collections.abc import Sequence

from onechip.ladder.canary import Canary, Reading


class Scripted(Canary):
    """Gives one reading after the other, and the last one for ever."""

    def __init__(self, readings: Sequence[Reading] = (Reading(0.002, 0.001),)) -> None:
        super().__init__((0,))
        self._left = list(readings)

    def read(self) -> Reading:
        return self._left.pop(0) if len(self._left) > 1 else self._left[0]
