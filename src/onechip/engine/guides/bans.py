"""Guides for fields that forbid: `bad_words` and `allowed_token_ids`, which mean what they mean in vLLM."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence

import numpy as np

from onechip.engine.guides.masks import Mask, allow, forbid
from onechip.errors import RequestError


class BadWords:
    """Forbids sequences of tokens: where the answer ends with all but the last, the last may not come.

    A word that is spelled in other tokens than these is not seen.
    """

    def __init__(self, words: Iterable[Sequence[int]]) -> None:
        """Get ready for the first token.

        Args:
            words: token ids of each, at least one.
        """
        self._always = tuple(word[0] for word in words if len(word) == 1)
        self._longer = tuple((tuple(word[:-1]), word[-1]) for word in words if len(word) > 1)
        self._tail: deque[int] = deque(maxlen=max((len(start) for start, _ in self._longer), default=0))

    def forbid(self, allowed: Mask) -> None:
        forbid(allowed, self._always)
        tail = tuple(self._tail)
        forbid(allowed, (last for start, last in self._longer if tail[-len(start) :] == start))
        if not allowed.any():
            raise RequestError("bad_words and what else was asked for leave no token that may come next.")

    def take(self, token: int) -> None:
        self._tail.append(token)


class AllowedTokens:
    """Forbids all tokens but some, the same ones at every place."""

    def __init__(self, tokens: Sequence[int]) -> None:
        """Get ready for the first token.

        Args:
            tokens: ids, at least one.
        """
        self._words = np.zeros(max(tokens) // 32 + 1, np.uint32)
        for token in tokens:
            allow(self._words, token)

    def forbid(self, allowed: Mask) -> None:
        count = min(len(self._words), len(allowed))
        allowed[:count] &= self._words[:count]
        allowed[count:] = 0
        if not allowed.any():
            raise RequestError(
                "allowed_token_ids and what else was asked for leave no token that may come next."
            )

    def take(self, token: int) -> None:
        pass
