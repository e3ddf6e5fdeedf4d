"""The vocabularies that guides are tested on: acorn's, Gemma 4's own where it is at hand, other families'."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory

import msgspec
import pytest

from onechip.engine.guides.grammar import Grammars
from onechip.models.gguf.file import GgufFile
from onechip.models.gguf.metadata import Metadata
from onechip.models.gguf.tokenizer import tokenizer_json
from onechip.models.source import resolve_model
from onechip.models.tokenizer import Tokenizer
from tests.models.small_tokenizers import CHATML, LLAMA3, byte_level, save, sentence_piece
from tests.shared_data import SHARED

_GEMMA = SHARED / "gemma4_vocab.gguf"
_PADDING = 40
"""Rows of the logits beyond the tokenizer's."""


@cache
def grammars(name: str) -> tuple[Grammars, Tokenizer, int]:
    """Grammars over a vocabulary, its tokenizer, and the rows of the model's logits.

    Args:
        name: acorn, gemma, llama3, chatml or sentence_piece.
    """
    tokenizer = _tokenizer(name)
    vocab = tokenizer.vocab_size + _PADDING
    return Grammars(tokenizer, vocab), tokenizer, vocab


def _tokenizer(name: str) -> Tokenizer:
    if name == "acorn":
        return Tokenizer.load(resolve_model("acorn"), [1])
    with TemporaryDirectory() as folder:
        if name == "gemma":
            if not _GEMMA.exists():
                pytest.skip(f"needs {_GEMMA}, which is no part of the repository")
            content = msgspec.json.encode(tokenizer_json(Metadata.read([GgufFile(_GEMMA)])))
            (Path(folder) / "tokenizer.json").write_bytes(content)
            return Tokenizer.load(Path(folder), [1, 106])
        backend, end = {
            "llama3": lambda: (byte_level(LLAMA3, "<|begin_of_text|>"), "<|eot_id|>"),
            "chatml": lambda: (byte_level(CHATML), "<|im_end|>"),
            "sentence_piece": lambda: (sentence_piece(), "</s>"),
        }[name]()
        return Tokenizer.load(save(backend, Path(folder), eos_token=end), [])
