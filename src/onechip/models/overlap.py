"""How much of a text that grows must be held back, since a mark may begin in it."""

from __future__ import annotations


def overlap(text: str, mark: str) -> int:
    """Length of the longest end of `text` with which `mark` begins, less than all of it."""
    longest = min(len(text), len(mark) - 1)
    return next((length for length in range(longest, 0, -1) if mark.startswith(text[-length:])), 0)
