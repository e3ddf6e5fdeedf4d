"""Guides that know an answer's thoughts: one ends them when their budget is spent, one leaves them alone.

Where the thoughts begin and end is read from token ids, as models.chat_parser and thought_reader read it.
"""

from __future__ import annotations

import re
from typing import Literal

from onechip.engine.guides.masks import Mask, allow, forbid, has, keep_only
from onechip.engine.types import Guide
from onechip.models.chat_parser import ThoughtMarkers
from onechip.models.tokenizer import Tokenizer

_MARGIN = 64
"""How many tokens before the end of a budget the first end of a sentence ends the thoughts; a quarter of a
small budget.
"""

_SENTENCE_END = re.compile(r"""(?:[^\W\d]|[)\]"'*])[.!?…]+["')\]*]*\s*|[。！？]\s*""")
"""A full stop behind a digit may be the point of a number, so it ends nothing."""

_TAIL = 6
"""How many tokens back the end of a sentence may begin."""


class ThoughtBudget:
    """Ends the thoughts of one answer so that they have `budget` tokens at the most.

    Near the end of the budget the first end of a line or sentence is taken for the end, at the end of it the
    thoughts are closed wherever they are, as models close them: by a newline and the closing marker. When
    the budget is spent, no further thoughts may be opened.
    """

    def __init__(self, tokenizer: Tokenizer, markers: ThoughtMarkers, budget: int, opened: bool) -> None:
        """Get ready for the first token after the prompt.

        Args:
            budget: tokens of all thoughts of the answer, the markers around them not counted; >= 0.
            opened: the prompt has opened the thoughts.
        """
        self._tokenizer = tokenizer
        self._markers = markers
        self._left = budget
        self._margin = min(_MARGIN, budget // 4)
        self._inside = opened
        self._past = False  # the opening marker has become text
        self._tail: list[int] = []
        newline = tokenizer.encode("\n")
        self._newline = newline[0] if len(newline) == 1 else None

    def forbid(self, allowed: Mask) -> None:
        if not self._inside:
            if self._left <= 0 and not self._past:
                forbid(allowed, (self._markers.open,))
            return
        end = self._end()
        if end is not None:
            keep_only(allowed, end)

    def take(self, token: int) -> None:
        if self._past:
            return
        if token == self._markers.open:
            self._inside, self._tail = True, []
        elif token == self._markers.close or token in self._markers.breaks:
            self._inside = False
        elif self._inside:
            self._left -= 1
            self._tail = [*self._tail, token][-_TAIL:]
        elif self._markers.first:
            self._past = bool(self._tokenizer.decode((token,)).strip())

    def _end(self) -> int | None:
        """The token with which the thoughts must go on, so that they end; None while they may go on."""
        if self._left <= 0:
            return self._markers.close
        if self._left > max(self._margin, 1):
            return None
        text = self._tokenizer.decode(self._tail)
        line_ends = text.endswith("\n")
        if not line_ends and self._left > 1 and not _SENTENCE_END.search(text):
            return None
        return self._markers.close if line_ends or self._newline is None else self._newline


class AfterThought:
    """Holds a guide back until the thoughts, with which an answer may begin, are over.

    Inside of them only what would end them without closing them is forbidden: the other guide is to have the
    whole of the answer behind them.
    """

    def __init__(self, inner: Guide, markers: ThoughtMarkers, opened: bool) -> None:
        """Get ready for the first token after the prompt.

        Args:
            opened: the prompt has opened the thoughts.
        """
        self._inner = inner
        self._markers = markers
        self._place: Literal["start", "inside", "after"] = "inside" if opened else "start"

    def forbid(self, allowed: Mask) -> None:
        if self._place == "inside":
            forbid(allowed, (self._markers.open, *self._markers.breaks))
            return
        may_think = self._place == "start" and has(allowed, self._markers.open)
        self._inner.forbid(allowed)
        if may_think:
            allow(allowed, self._markers.open)

    def take(self, token: int) -> None:
        if self._place == "start" and token == self._markers.open:
            self._place = "inside"
        elif self._place == "inside":
            if token == self._markers.close:
                self._place = "after"
        else:
            self._place = "after"
            self._inner.take(token)
