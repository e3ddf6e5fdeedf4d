"""A guide that is one of several, until the answer tells which."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from onechip.engine.guides.masks import Mask, has
from onechip.engine.types import Guide


class Either:
    """Allows what any of its guides does, of those that allowed everything so far."""

    def __init__(self, guides: Sequence[Guide]) -> None:
        self._guides = list(guides)
        self._masks: list[Mask] = []

    def forbid(self, allowed: Mask) -> None:
        self._masks = [allowed.copy() for _ in self._guides]
        for guide, mask in zip(self._guides, self._masks, strict=True):
            guide.forbid(mask)
        np.bitwise_or.reduce(self._masks, out=allowed)

    def take(self, token: int) -> None:
        self._guides = [
            guide for guide, mask in zip(self._guides, self._masks, strict=True) if has(mask, token)
        ]
        for guide in self._guides:
            guide.take(token)
