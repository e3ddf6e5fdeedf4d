"""The checkpoint that arms serve, from the ladder's side: a folder in, file hashes and a token counter out.

The hashes go into the manifest; the counter makes prompts of exact length and checks what engines count.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import tokenizers

from onechip.models.source import RANDOM_WEIGHTS

BLOCK_BYTES = 1 << 22
MISSING = re.compile(r"missing field [`'\"](\w+)")
"""As serde, which engines in Rust read JSON with, says it."""


@dataclass(frozen=True, slots=True)
class TokenCounter:
    """A checkpoint's tokenizer.

    Attributes:
        bos: ids that begin every raw prompt.
        noise: the checkpoint's weights are random, so its texts are rows of tokens that no tokenizer would
            make of them, and a count of ours would say nothing about the engine's.
    """

    backend: tokenizers.Tokenizer
    bos: tuple[int, ...]
    noise: bool = False

    @classmethod
    def load(cls, folder: Path) -> TokenCounter | None:
        """None where the folder has no tokenizer.json."""
        path = folder / "tokenizer.json"
        if not path.is_file():
            return None
        backend = tokenizers.Tokenizer.from_file(str(path))
        return cls(backend, _bos(folder, backend), is_noise(folder))

    def count(self, text: str) -> int:
        """Tokens of a generated text; special tokens spelled in it count as one each."""
        return len(self.backend.encode(text, add_special_tokens=False).ids)

    def encode(self, text: str) -> list[int]:
        """Ids of a raw prompt, with exactly one BOS where the model has one."""
        return [*self.bos, *self.backend.encode(text, add_special_tokens=False).ids]


def is_noise(folder: Path) -> bool:
    """Whether a checkpoint's weights are random, by the mark of `onechip synth`."""
    return _json(folder / "config.json").get(RANDOM_WEIGHTS) is True


def _json(path: Path) -> dict[str, Any]:
    """The object in a file; empty where there is none."""
    try:
        found = json.loads(path.read_bytes())
    except (OSError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}


def _bos(folder: Path, backend: tokenizers.Tokenizer) -> tuple[int, ...]:
    token = _json(folder / "tokenizer_config.json").get("bos_token")
    if isinstance(token, dict):
        token = token.get("content")
    found = backend.token_to_id(token) if isinstance(token, str) else None
    return () if found is None else (found,)


@dataclass(frozen=True, slots=True)
class ModelFacts:
    """What launches need to know of a checkpoint.

    Attributes:
        model_type: of config.json ("gemma4", "llama"), "" if unknown.
        context: tokens that the model was made for, None if unknown.
        cache_bytes: of K and V of one token in 16 bits, were every layer to keep all; 0 if unknown.
    """

    model_type: str = ""
    context: int | None = None
    cache_bytes: int = 0

    def clipped(self, context: int) -> int:
        """`context`, or what the model was made for if that is less."""
        return context if self.context is None else min(context, self.context)


def model_facts(checkpoint: Path) -> ModelFacts:
    """Of a folder; a .gguf file, or a folder without a config.json that can be read, has none."""
    config = _json(checkpoint / "config.json")
    text = config.get("text_config") or config
    context = text.get("max_position_embeddings")
    head = max(text.get("head_dim") or 0, text.get("global_head_dim") or 0)
    cache_bytes = 4 * head * (text.get("num_hidden_layers") or 0) * (text.get("num_key_value_heads") or 0)
    known = context if isinstance(context, int) else None
    return ModelFacts(str(config.get("model_type", "")), known, cache_bytes)


def missing_field(checkpoint: Path, log: Iterable[str]) -> str | None:
    """One sentence on a field of config.json that an engine's log misses there; None if it misses none."""
    config = _json(checkpoint / "config.json")
    for line in log:
        found = MISSING.search(line)
        if found and config and found[1] not in config | (config.get("text_config") or {}):
            return f"{checkpoint / 'config.json'} has no {found[1]}, which this engine's reader wants there."
    return None


def file_hashes(checkpoint: Path, tick: Callable[[], None] | None = None) -> dict[str, str]:
    """SHA-256 of every file in a folder, or of one file, by name; hidden files are left out."""
    hashes: dict[str, str] = {}
    for path in sorted(checkpoint.iterdir()) if checkpoint.is_dir() else [checkpoint]:
        if path.is_file() and not path.name.startswith("."):
            digest = hashlib.sha256()
            with path.open("rb") as file:
                while block := file.read(BLOCK_BYTES):
                    digest.update(block)
            hashes[path.name] = digest.hexdigest()
            if tick is not None:
                tick()
    return hashes
