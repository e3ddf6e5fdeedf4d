"""A model's vocabulary as llguidance wants it: the bytes of each token, and which tokens are not text."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import llguidance
import numpy as np

from onechip.engine.guides.masks import Mask
from onechip.errors import RequestError
from onechip.models.tokenizer import Tokenizer

_SLICES = [r'[^"\\\x00-\x1F\x7F]{1,10}', r'[^"\\\x00-\x1F\x7F]+']
"""Sets of tokens that llguidance allows as a whole where it can: two of the four that it would take. The
others cost 0.3 s more to prepare for 262,144 tokens, and made no mask faster.
"""


@dataclass(frozen=True, slots=True, eq=False)
class Vocabulary:
    """A vocabulary that llguidance has read. Tokens are spelled by our own decoder, so that grammars see the
    text that clients get. Special tokens and stop ids are no text: no regex and no string matches them.

    Attributes:
        stop_ids: tokens that end an answer.
        known: which rows have a token; see engine.types.Guide for the layout. Others never come.
    """

    backend: llguidance.LLTokenizer
    stop_ids: frozenset[int]
    known: Mask

    @classmethod
    def read(cls, tokenizer: Tokenizer, size: int) -> Vocabulary:
        """Read it: 1.1 s for 262,144 tokens. For 0.7 s of that llguidance lets no other thread run Python.

        Args:
            size: rows of the model's logits; token ids beyond them are left out.

        Raises:
            RequestError: the model has no stop token, so that nothing could end where a grammar ends.
        """
        stop_ids = frozenset(id for id in tokenizer.stop_ids if id < size)
        if not stop_ids:
            raise RequestError("This model has no stop token: its answers cannot be held to a grammar.")
        spelled = _Spelled(tokenizer, size, stop_ids)
        backend = llguidance.LLTokenizer(spelled, eos_token=sorted(stop_ids), slices=_SLICES)
        bits = np.zeros(32 * -(-size // 32), np.uint8)
        bits[:size] = [bool(token) for token in spelled.tokens]
        return cls(backend, stop_ids, np.packbits(bits, bitorder="little").view(np.uint32))


class _Spelled(llguidance.TokenizerWrapper):
    """The interface that llguidance reads a tokenizer by."""

    is_tokenizer_wrapper = True
    bos_token_id = None

    def __init__(self, tokenizer: Tokenizer, size: int, stop_ids: frozenset[int]) -> None:
        tokens = tokenizer.spellings()[:size]
        self.tokens = tokens + [b""] * (size - len(tokens))
        markup = tokenizer.special_ids | stop_ids
        self.special_token_ids = sorted(id for id in markup if id < size)
        self._no_text = markup.union(range(size, tokenizer.vocab_size))
        self.eos_token_id = min(stop_ids)
        self._tokenizer = tokenizer

    def __call__(self, text: str | bytes) -> list[int]:
        """Ids of text in the middle of an answer. Where a grammar leaves no choice, these are forced."""
        text = text.decode() if isinstance(text, bytes) else text
        ids: list[int] = []
        for id in self._encode(text):
            if id in self._no_text:  # it is spelled out, but it is text
                spelled = self._tokenizer.token_bytes(id).decode()
                ids += self._encode(spelled[:1]) + self._encode(spelled[1:])
            else:
                ids.append(id)
        return ids

    def _encode(self, text: str) -> list[int]:
        """As Tokenizer.encode, but without the blank that some put before every text (Llama 2)."""
        ids = self._tokenizer.encode(text)
        if self._spelling(ids) == text.encode():
            return ids
        ids = self._tokenizer.encode("\n" + text)
        return next(ids[ahead:] for ahead in range(len(ids)) if self._spelling(ids[ahead:]) == text.encode())

    def _spelling(self, ids: Sequence[int]) -> bytes:
        return b"".join(map(self._tokenizer.token_bytes, ids))
