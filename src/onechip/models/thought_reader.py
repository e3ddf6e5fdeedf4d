"""Token ids of an answer with thoughts between `<think>` and `</think>`, or marks like these -> deltas.

Thoughts stand before the answer; what comes behind them is text, or read by `JsonCallParser`. Where marks are
tokens they are known by id, and what only spells them is text; where they are not, by their spelling, however
it is split. Windows make no difference, since each token is looked at alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from onechip.models.chat_parser import Delta, Reasoning, Text, append_delta
from onechip.models.json_calls import JsonCallParser
from onechip.models.overlap import overlap
from onechip.models.think_marks import ThinkMarks
from onechip.models.tokenizer import Tokenizer

_State = Literal["before", "thoughts", "answer"]
_Meaning = Literal["open", "close", "end"]


class ThoughtReader:
    """Reads one answer. Blanks around thoughts are layout, and thoughts of blanks alone are none.

    Attributes:
        reasoning_tokens: tokens of the thoughts so far, without the marks around them. A token belongs to
            where its text begins.
    """

    def __init__(
        self,
        tokenizer: Tokenizer,
        marks: ThinkMarks,
        prompt_ids: Sequence[int],
        calls: JsonCallParser | None = None,
        skip_special: bool = True,
        begun: str = "",
    ) -> None:
        """Get ready for the first token after the prompt.

        Args:
            prompt_ids: the prompt, to see whether it ends inside the thoughts.
            calls: reads what comes behind the thoughts; None: that is text.
            skip_special: leave special tokens out of the text.
            begun: what the answer begins with in the prompt.
        """
        self._open = marks.open if marks.open_id is None else None
        self._close = marks.close if marks.close_id is None else None
        self._anywhere = marks.anywhere
        self._meanings: dict[int, _Meaning] = dict.fromkeys(tokenizer.stop_ids, "end")
        if marks.open_id is not None:
            self._meanings[marks.open_id] = "open"
        if marks.close_id is not None:
            self._meanings[marks.close_id] = "close"
        self._calls = calls
        self._decoder = tokenizer.stream(skip_special, continued=bool(begun))
        self.reasoning_tokens = 0
        opened = marks.opened_by(tokenizer, prompt_ids, begun)
        answer = (marks.answer_in(begun) or "").strip()
        self._state: _State = "thoughts" if opened else "answer" if answer else "before"
        self._thought = opened or (bool(begun) and not answer)  # so that blanks behind them are no text
        # These thoughts have more than blanks.
        self._said = opened and bool(begun.rpartition(marks.open)[2].strip())
        self._named = False  # the answer speaks of the opening mark
        self._last = begun[-1:] if answer else ""  # character of the answer
        self._held = ""  # text of which it is not known yet what it is
        self._starts: list[int] = []  # where in it tokens begin
        self._blanks = ""  # at the end of the thoughts so far
        self._deltas: list[Delta] = []

    def push(self, ids: Sequence[int]) -> list[Delta]:
        """What these tokens add; neighbouring deltas of one kind are joined."""
        for id in ids:
            meaning = self._meanings.get(id)
            if meaning is None:
                self._starts.append(len(self._held))
                self._on_text(self._decoder.push((id,)))
            else:
                self._on_text(self._decoder.finish())
                self._on_mark(meaning, id)
        return self._take()

    def finish(self, cut_off: bool = False) -> list[Delta]:
        """What is still held back at the end of the answer.

        Args:
            cut_off: the answer ended for want of room. Then what may be the beginning of a mark is dropped.
        """
        self._on_text(self._decoder.finish())
        if self._state == "thoughts":
            begun = max((overlap(self._held, mark) for mark in self._marks_ahead if mark), default=0)
            self._end_thoughts(dropped=begun if cut_off else 0)
        elif self._state == "before" and not cut_off:
            self._begin_answer()
        if self._calls is not None:
            self._add(self._calls.finish(cut_off))
        return self._take()

    @property
    def _marks_ahead(self) -> tuple[str | None, ...]:
        """Spellings of marks that may come next: at their beginning thoughts may be opened once more."""
        return (self._close,) if self._said else (self._close, self._open)

    def _take(self) -> list[Delta]:
        deltas, self._deltas = self._deltas, []
        return deltas

    def _add(self, deltas: Sequence[Delta]) -> None:
        for delta in deltas:
            append_delta(self._deltas, delta)

    def _on_text(self, text: str) -> None:
        self._held += text
        while self._held and self._go_on():
            pass

    def _go_on(self) -> bool:
        """Look at what is held; whether there is more to see in it."""
        if self._state == "before":
            return self._before()
        if self._state == "thoughts":
            return self._in_thoughts()
        self._say(self._cut(len(self._held)))
        return False

    def _before(self) -> bool:
        text = self._held.lstrip()
        if self._passed_open(text):
            self._begin_thoughts()
            return True
        if not text or (self._open is not None and self._open.startswith(text)):
            return False
        self._begin_answer()
        return False

    def _in_thoughts(self) -> bool:
        if not self._said:
            text = self._held.lstrip()
            if self._passed_open(text):
                return True
            if not text or (self._open is not None and self._open.startswith(text)):
                return False
        if self._close is None:
            self._think(len(self._held))
            return False
        position = self._held.find(self._close)
        if position < 0:
            self._think(len(self._held) - overlap(self._held, self._close))
            return False
        self._think(position)
        self._cut(len(self._close))
        self._leave_thoughts()
        return True

    def _passed_open(self, text: str) -> bool:
        """Go on behind the opening mark if `text`, the end of what is held, begins with its spelling."""
        if self._open is None or not text.startswith(self._open):
            return False
        self._cut(len(self._held) - len(text) + len(self._open))
        return True

    def _on_mark(self, meaning: _Meaning, id: int) -> None:
        if self._state == "thoughts":
            if meaning != "open":
                self._end_thoughts()
                self._leave_thoughts()
            elif self._said:
                self._on_text(self._decoder.push((id,)))
        elif meaning == "open" and (self._state == "before" or self._anywhere):
            self._held, self._starts = "", []
            self._begin_thoughts()
        elif meaning == "close" and self._closes_nothing:
            self._thought = True  # before the answer: it has thoughts of no tokens
        else:
            if meaning != "end":
                self._named = meaning == "open"
            self._on_text(self._decoder.push((id,)))

    @property
    def _closes_nothing(self) -> bool:
        """Whether a closing mark here is no text but what is left of thoughts that were over already: models
        whose thoughts were cut short by a budget may go on with them, and close them once more.
        """
        return self._anywhere or (not self._named and self._last in ("", "\n"))

    def _begin_thoughts(self) -> None:
        self._state, self._thought, self._said = "thoughts", True, False

    def _end_thoughts(self, dropped: int = 0) -> None:
        """All that is held, without its last `dropped` characters, is thoughts."""
        self._think(len(self._held) - dropped)
        if not dropped:
            self.reasoning_tokens += len(self._starts)  # tokens without text
        self._held, self._starts = "", []

    def _leave_thoughts(self) -> None:
        self._state, self._blanks = "before", ""

    def _think(self, length: int) -> None:
        """The first `length` characters of what is held are thoughts."""
        before = len(self._starts)
        text = self._blanks + self._cut(length)
        self.reasoning_tokens += before - len(self._starts)
        shown = text.rstrip()
        self._blanks = text[len(shown) :]
        if not self._said:
            shown = shown.lstrip()
        if shown:
            self._said = True
            append_delta(self._deltas, Reasoning(shown))

    def _begin_answer(self) -> None:
        self._state = "answer"
        text = self._cut(len(self._held))
        self._say(text.lstrip() if self._thought else text)

    def _say(self, text: str) -> None:
        self._last = text[-1:] or self._last
        if self._calls is not None:
            self._add(self._calls.push_text(text))
        elif text:
            append_delta(self._deltas, Text(text))

    def _cut(self, length: int) -> str:
        """Take the first `length` characters from what is held, and the tokens that begin in them."""
        text, self._held = self._held[:length], self._held[length:]
        self._starts = [start - length for start in self._starts if start >= length]
        return text
