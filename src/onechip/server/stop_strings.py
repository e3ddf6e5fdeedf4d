"""Text as it is generated -> the text before the first stop string, with it if wanted; never a part of one.

First is the one that is complete first, so that the result does not depend on how the text is cut in pieces.
"""

from __future__ import annotations

from collections.abc import Sequence

from onechip.models.overlap import overlap


class StopStrings:
    """Looks for stop strings in one text, also across the borders of its pieces.

    Attributes:
        hit: the stop string that was found; nothing comes after it. None while none was.
    """

    def __init__(self, stops: Sequence[str], shown: bool = False) -> None:
        """Start before the first piece.

        Args:
            shown: the stop string that is found belongs to the text.
        """
        self._stops = tuple(stops)
        self._shown = shown
        self._held = ""
        self.hit: str | None = None

    def push(self, piece: str) -> str:
        """The text that is now known to stand before any stop string."""
        text = self._held + piece
        found = [(start + len(stop), start) for stop in self._stops if (start := text.find(stop)) >= 0]
        if found:
            end, start = min(found)
            self.hit, self._held = text[start:end], ""
            return text[: end if self._shown else start]
        held = max((overlap(text, stop) for stop in self._stops), default=0)
        shown = len(text) - held
        self._held = text[shown:]
        return text[:shown]

    def flush(self) -> str:
        """What was held back because it might have begun a stop string."""
        held, self._held = self._held, ""
        return held
