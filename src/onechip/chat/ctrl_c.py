"""Ctrl-C -> KeyboardInterrupt where the chat waits for what it may end, and nowhere else.

Python raises it wherever the program happens to be; so a second one would end the chat if that still dealt
with the first.
"""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType


class CtrlC:
    """Where Ctrl-C may come; of the main thread, as signals are."""

    def __init__(self) -> None:
        self._may_come = False
        self._held = False

    @contextmanager
    def held(self) -> Iterator[None]:
        """Inside of this, Ctrl-C is held back until it `may_come`; what is held at the end is dropped."""
        before = signal.signal(signal.SIGINT, self._press)
        try:
            yield
        finally:
            signal.signal(signal.SIGINT, before)

    @contextmanager
    def may_come(self) -> Iterator[None]:
        """Inside of this, Ctrl-C comes, at once if it was held; but only once, so that leaving is not cut
        short.

        Raises:
            KeyboardInterrupt: that is how it comes.
        """
        self._may_come = True
        try:
            if self._held:
                self._come()
            yield
        finally:
            self._may_come = False

    def _press(self, signal_number: int, frame: FrameType | None) -> None:
        if self._may_come:
            self._come()
        self._held = True

    def _come(self) -> None:
        self._may_come = self._held = False
        raise KeyboardInterrupt
