"""The tokenizer: conversations in, a tokenizer.json in Gemma 4's form out, its special tokens at their ids.

Merges are learned inside words only: digits and punctuation stay single tokens, no token crosses a word.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from tokenizers import Regex, Tokenizer
from tokenizers.models import BPE
from tokenizers.normalizers import Replace
from tokenizers.pre_tokenizers import Split
from tokenizers.trainers import BpeTrainer

from onechip.convert.synth_tokenizer import CONTROL, FIRST_ORDINARY, SPACE

SIZE = 2048
CHARACTERS = [*(chr(code) for code in range(33, 127)), SPACE]
"""What a text is made of before any merge; everything else is spelled in bytes."""

COMMON_WORDS = (Path(__file__).parent / "common_words.txt").read_text(encoding="utf-8").split()
"""English words beside the generators' own, so that other text is not all single letters."""


def learn_merges(texts: Iterable[str], wanted: int) -> list[tuple[str, str]]:
    """The first `wanted` merges inside the words of `texts`, in the order learned."""
    learner = Tokenizer(BPE())
    learner.normalizer = Replace(" ", SPACE)
    learner.pre_tokenizer = Split(Regex(f"{SPACE}?[A-Za-z]+|[^A-Za-z]"), behavior="isolated")
    trainer = BpeTrainer(
        vocab_size=len(CHARACTERS) + wanted,
        initial_alphabet=CHARACTERS,
        limit_alphabet=len(CHARACTERS),
        show_progress=False,
    )
    learner.train_from_iterator(texts, trainer)
    model: dict[str, Any] = json.loads(learner.to_str())["model"]
    return [(left, right) for left, right in model["merges"]]


def build(texts: Iterable[str]) -> dict[str, Any]:
    """The content of tokenizer.json: special tokens, newline, 256 bytes, characters, merged words."""
    names = [CONTROL.get(number, f"<unused{number}>") for number in range(FIRST_ORDINARY)]
    vocabulary = [*names, "\n", *(f"<0x{byte:02X}>" for byte in range(256)), *CHARACTERS]
    merges = learn_merges(_words(texts), SIZE - len(vocabulary))
    vocabulary += [left + right for left, right in merges]
    if len(set(vocabulary)) != SIZE:
        raise ValueError(
            f"the texts give {len(set(vocabulary))} different tokens, not {SIZE}: use more of them"
        )
    return {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": [_added(number, name) for number, name in enumerate(names)],
        "normalizer": {"type": "Replace", "pattern": {"String": " "}, "content": SPACE},
        "pre_tokenizer": {
            "type": "Split",
            "pattern": {"String": " "},
            "behavior": "MergedWithPrevious",
            "invert": False,
        },
        "post_processor": None,
        "decoder": {
            "type": "Sequence",
            "decoders": [
                {"type": "Replace", "pattern": {"String": SPACE}, "content": " "},
                {"type": "ByteFallback"},
                {"type": "Fuse"},
            ],
        },
        "model": {
            "type": "BPE",
            "dropout": None,
            "unk_token": "<unk>",
            "continuing_subword_prefix": None,
            "end_of_word_suffix": None,
            "fuse_unk": True,
            "byte_fallback": True,
            "ignore_merges": False,
            "vocab": {text: number for number, text in enumerate(vocabulary)},
            "merges": [list(pair) for pair in merges],
        },
    }


def _words(texts: Iterable[str]) -> Iterable[str]:
    """What merges are learned on: the texts without special tokens, and common English."""
    for text in texts:
        for name in CONTROL.values():
            text = text.replace(name, "\n")
        yield text
    # Each word often enough to be worth a merge beside the generators' own.
    yield from [" " + " ".join(COMMON_WORDS)] * 60


def _added(number: int, name: str) -> dict[str, Any]:
    return {
        "id": number,
        "content": name,
        "single_word": False,
        "lstrip": False,
        "rstrip": False,
        "normalized": False,
        "special": True,
    }


def write(content: dict[str, Any], path: Path) -> None:
    path.write_text(json.dumps(content, ensure_ascii=False) + "\n", encoding="utf-8")
