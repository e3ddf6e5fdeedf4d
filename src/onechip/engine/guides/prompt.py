"""A guide for a text that is given: the engine tells how likely its tokens are, as those of an answer."""

from __future__ import annotations

from collections.abc import Sequence

from onechip.engine.guides.masks import Mask, keep_only
from onechip.errors import RequestError


class GivenText:
    """Allows one token at a time, the next of a given text; behind its end all."""

    def __init__(self, tokens: Sequence[int]) -> None:
        """Get ready for the first token.

        Args:
            tokens: ids of the text.
        """
        self._tokens = tokens
        self._taken = 0

    def forbid(self, allowed: Mask) -> None:
        if self._taken < len(self._tokens):
            token = self._tokens[self._taken]
            keep_only(allowed, token)
            if not allowed.any():
                raise RequestError(f"The prompt has token {token}, which the model does not know.")

    def take(self, token: int) -> None:
        self._taken += 1
