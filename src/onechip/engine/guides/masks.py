"""Bits of a mask of tokens; see engine.types.Guide for its layout.

Gemma 3's tokenizer has tokens that its text models lack: a token that the mask has no bit for never comes.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
from numpy.typing import NDArray

Mask = NDArray[np.uint32]


def has(allowed: Mask, token: int) -> bool:
    """Whether the bit of `token` is set."""
    return token // 32 < len(allowed) and bool(int(allowed[token // 32]) >> token % 32 & 1)


def forbid(allowed: Mask, tokens: Iterable[int]) -> None:
    """Clear the bits of `tokens`."""
    for token in tokens:
        if token // 32 < len(allowed):
            allowed[token // 32] &= np.uint32(~(1 << token % 32) & 0xFFFFFFFF)


def allow(allowed: Mask, token: int) -> None:
    """Set the bit of `token`."""
    allowed[token // 32] |= np.uint32(1 << token % 32)


def keep_only(allowed: Mask, token: int) -> None:
    """Clear all bits but that of `token`, which stays as it is."""
    kept = has(allowed, token)
    allowed[:] = 0
    if kept:
        allow(allowed, token)
