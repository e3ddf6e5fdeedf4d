"""A model's vocabulary as llguidance wants it: the bytes of each token, and which tokens are not text."""

from __future__ import annotations

import threading
from collections.abc import Sequence

import llguidance

from onechip.errors import RequestError
from onechip.models.tokenizer import Tokenizer


class Vocabulary:
    """Makes llguidance's tokenizer once, when it is first asked for: 1.1 s for 262,144 tokens.

    Tokens are spelled by our own decoder, so that a grammar sees the text that a client gets. Special tokens
    and stop ids are no text: no regex and no string matches them. Rows of the model's vocabulary beyond the
    tokenizer's are never allowed.
    """

    def __init__(self, tokenizer: Tokenizer, size: int) -> None:
        """Args: size: rows of the model's logits; token ids beyond them are left out."""
        self.tokenizer = tokenizer
        self.size = size
        self._lock = threading.Lock()
        self._made: llguidance.LLTokenizer | None = None

    def get(self) -> llguidance.LLTokenizer:
        """The tokenizer; threads that come while it is made wait for it.

        Raises:
            RequestError: the model has no stop token, so that nothing could end where a grammar ends.
        """
        stop_ids = sorted(id for id in self.tokenizer.stop_ids if id < self.size)
        if not stop_ids:
            raise RequestError("This model has no stop token: its answers cannot be held to a grammar.")
        with self._lock:
            if self._made is None:
                self._made = llguidance.LLTokenizer(_Spelled(self.tokenizer, self.size), eos_token=stop_ids)
            return self._made


class _Spelled(llguidance.TokenizerWrapper):
    """The interface that llguidance reads a tokenizer by."""

    is_tokenizer_wrapper = True
    bos_token_id = None

    def __init__(self, tokenizer: Tokenizer, size: int) -> None:
        tokens = tokenizer.spellings()[:size]
        self.tokens = tokens + [b""] * (size - len(tokens))
        markup = tokenizer.special_ids | tokenizer.stop_ids
        self.special_token_ids = sorted(id for id in markup if id < size)
        self.eos_token_id = min(tokenizer.stop_ids)
        self._tokenizer = tokenizer

    def __call__(self, text: str | bytes) -> list[int]:
        """Ids of text in the middle of an answer. Where a grammar leaves no choice, these are forced.

        Some tokenizers put a blank before every text (Llama 2). A newline before it takes that.
        """
        text = text.decode() if isinstance(text, bytes) else text
        ids = self._tokenizer.encode(text)
        if self._spelling(ids) == text.encode():
            return ids
        ids = self._tokenizer.encode("\n" + text)
        ahead = next(count for count in range(len(ids) + 1) if self._spelling(ids[:count]).endswith(b"\n"))
        return ids[ahead:]

    def _spelling(self, ids: Sequence[int]) -> bytes:
        return b"".join(self.tokens[id] for id in ids)
