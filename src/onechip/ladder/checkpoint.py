"""The checkpoint that arms serve, from the ladder's side: a folder in, file hashes and a token counter out.

The hashes go into the manifest; the counter makes prompts of exact length and checks what engines count.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import tokenizers

BLOCK_BYTES = 1 << 22


@dataclass(frozen=True, slots=True)
class TokenCounter:
    """A checkpoint's tokenizer.

    Attributes:
        bos: ids that begin every raw prompt.
    """

    backend: tokenizers.Tokenizer
    bos: tuple[int, ...]

    @classmethod
    def load(cls, folder: Path) -> TokenCounter | None:
        """None where the folder has no tokenizer.json."""
        path = folder / "tokenizer.json"
        if not path.is_file():
            return None
        backend = tokenizers.Tokenizer.from_file(str(path))
        return cls(backend, _bos(folder, backend))

    def count(self, text: str) -> int:
        """Tokens of a generated text; special tokens spelled in it count as one each."""
        return len(self.backend.encode(text, add_special_tokens=False).ids)

    def encode(self, text: str) -> list[int]:
        """Ids of a raw prompt, with exactly one BOS where the model has one."""
        return [*self.bos, *self.backend.encode(text, add_special_tokens=False).ids]


def _bos(folder: Path, backend: tokenizers.Tokenizer) -> tuple[int, ...]:
    try:
        token = json.loads((folder / "tokenizer_config.json").read_bytes()).get("bos_token")
    except (OSError, ValueError):
        return ()
    if isinstance(token, dict):
        token = token.get("content")
    found = backend.token_to_id(token) if isinstance(token, str) else None
    return () if found is None else (found,)


def file_hashes(folder: Path, tick: Callable[[], None] | None = None) -> dict[str, str]:
    """SHA-256 of every file in the folder, by name; hidden files are left out."""
    hashes: dict[str, str] = {}
    for path in sorted(folder.iterdir()):
        if path.is_file() and not path.name.startswith("."):
            digest = hashlib.sha256()
            with path.open("rb") as file:
                while block := file.read(BLOCK_BYTES):
                    digest.update(block)
            hashes[path.name] = digest.hexdigest()
            if tick is not None:
                tick()
    return hashes
