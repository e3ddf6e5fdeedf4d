"""The marks with which models other than Gemma 4 write their thoughts: `<think>` ... `</think>` and its like.

In: a chat template and a vocabulary. Out: which marks the model writes, whether they are tokens, and whether
a prompt has opened the thoughts.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from onechip.models.chat_parser import ThoughtMarkers
from onechip.models.tokenizer import Tokenizer

_KNOWN = (("<think>", "</think>"), ("[THINK]", "[/THINK]"))  # DeepSeek, Qwen, SmolLM; Mistral

_TAIL = 32
"""How many tokens before the end of a prompt its last mark may begin."""


@dataclass(frozen=True, slots=True)
class ThinkMarks:
    """The marks of one model.

    Attributes:
        open, close: around the thoughts.
        open_id, close_id: their tokens; None: they are spelled in ordinary ones.
        anywhere: they are special tokens, which no text has, so thoughts may begin anywhere. Others may be
            spoken of, so they open thoughts only before the first word of an answer.
        in_template: the chat template knows them, so the model thinks unless it is told not to.
    """

    open: str
    close: str
    open_id: int | None
    close_id: int | None
    anywhere: bool
    in_template: bool

    @classmethod
    def of(cls, tokenizer: Tokenizer, template: str | None) -> ThinkMarks | None:
        """Those of a model; None if it has Gemma 4's markers, or if nothing says that it writes any.

        Args:
            template: the source of its chat template.
        """
        if ThoughtMarkers.of(tokenizer, calls=False) is not None:
            return None
        for open, close in _KNOWN:
            if template is not None and (open in template or close in template):
                return cls._made(tokenizer, open, close, in_template=True)
        for open, close in _KNOWN:
            marks = cls._made(tokenizer, open, close, in_template=False)
            if marks.open_id is not None and marks.close_id is not None:
                return marks
        return None

    @classmethod
    def _made(cls, tokenizer: Tokenizer, open: str, close: str, in_template: bool) -> ThinkMarks:
        open_id, close_id = _token(tokenizer, open), _token(tokenizer, close)
        return cls(open, close, open_id, close_id, open_id in tokenizer.special_ids, in_template)

    def markers(self, tokenizer: Tokenizer) -> ThoughtMarkers | None:
        """What guides look for; None if a mark is no token."""
        if self.open_id is None or self.close_id is None:
            return None
        return ThoughtMarkers(self.open_id, self.close_id, tokenizer.stop_ids, first=not self.anywhere)

    def opened_by(self, tokenizer: Tokenizer, prompt_ids: Sequence[int], begun: str = "") -> bool:
        """Whether the prompt ends with the opening mark, blanks aside; or, where the answer begins in it,
        inside the thoughts of that beginning.
        """
        if begun:
            return self.answer_in(begun) is None
        return _end(tokenizer, prompt_ids).endswith(self.open)

    def answer_in(self, begun: str) -> str | None:
        """The answer in `begun`, with which it begins in the prompt, without its thoughts; None: it ends
        inside of them.
        """
        if self.anywhere:
            _, opened, rest = begun.rpartition(self.open)
        else:
            before, opened, rest = begun.partition(self.open)
            if before.strip():
                return begun
        if not opened:
            return begun
        _, closed, answer = rest.partition(self.close)
        return answer if closed else None

    def closed_by(self, tokenizer: Tokenizer, prompt_ids: Sequence[int]) -> bool:
        """Whether the prompt ends with the closing mark, as where the model is told not to think."""
        return _end(tokenizer, prompt_ids).endswith(self.close)


def _token(tokenizer: Tokenizer, mark: str) -> int | None:
    """The token that `mark` always is; None if the vocabulary has none, or one that text may pass by."""
    id = tokenizer.token_id(mark)
    return id if id is not None and id in tokenizer.encode(f"a{mark}b") else None


def _end(tokenizer: Tokenizer, prompt_ids: Sequence[int]) -> str:
    return tokenizer.decode(prompt_ids[-_TAIL:], skip_special=False).rstrip()
