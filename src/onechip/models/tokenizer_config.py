"""A checkpoint's tokenizer_config.json -> special tokens, chat templates, and whether prompts begin with BOS.

Every field may be missing, and so may the file: then the tokenizer.json says all that there is to know.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, TypeVar

import msgspec
from msgspec import UNSET, UnsetType

from onechip.errors import CheckpointError

_LLAMA = {"bos_token": "<s>", "eos_token": "</s>", "unk_token": "<unk>"}
_GEMMA = {"bos_token": "<bos>", "eos_token": "<eos>", "unk_token": "<unk>", "pad_token": "<pad>"}
_CLASS_TOKENS = {"LlamaTokenizer": _LLAMA, "CodeLlamaTokenizer": _LLAMA, "GemmaTokenizer": _GEMMA}
"""Special tokens of transformers' classes that a file need not repeat. These classes also add BOS unasked."""


class AddedToken(msgspec.Struct):
    """A token with attributes, of which only its spelling matters here."""

    content: str


class NamedTemplate(msgspec.Struct):
    name: str
    template: str


T = TypeVar("T", bound=msgspec.Struct)
Token = str | AddedToken | None | UnsetType


class _SpecialTokens(msgspec.Struct):
    """What both tokenizer_config.json and special_tokens_map.json may say."""

    bos_token: Token = UNSET
    eos_token: Token = UNSET
    unk_token: Token = UNSET
    sep_token: Token = UNSET
    pad_token: Token = UNSET
    cls_token: Token = UNSET
    mask_token: Token = UNSET


SPECIAL_TOKENS = _SpecialTokens.__struct_fields__


class _File(_SpecialTokens):
    tokenizer_class: str | None = None
    add_bos_token: bool | None = None
    chat_template: str | list[NamedTemplate] | None = None


class TokenizerConfig(msgspec.Struct, frozen=True):
    """What tokenizer_config.json says.

    Attributes:
        special_tokens: `bos_token`, `eos_token`, ... -> how the vocabulary spells them; only those there are.
        add_bos_token: prompts begin with BOS even if the post-processor of tokenizer.json adds none.
        chat_template: one template or named ones.
    """

    special_tokens: dict[str, str] = {}
    add_bos_token: bool | None = None
    chat_template: str | list[NamedTemplate] | None = None

    @classmethod
    def load(cls, folder: Path) -> TokenizerConfig:
        """Read `folder/tokenizer_config.json`.

        What it leaves open is taken from special_tokens_map.json, then from the tokenizer class.

        Raises:
            CheckpointError: a file is damaged.
        """
        file = _read(folder / "tokenizer_config.json", _File)
        fallback = _read(folder / "special_tokens_map.json", _SpecialTokens)
        by_class = _CLASS_TOKENS.get((file.tokenizer_class or "").removesuffix("Fast"))
        tokens: dict[str, Any] = dict(by_class or {})
        for said in (fallback, file):
            tokens |= {
                name: getattr(said, name) for name in SPECIAL_TOKENS if getattr(said, name) is not UNSET
            }
        spelled = {name: t.content if isinstance(t, AddedToken) else t for name, t in tokens.items() if t}
        add_bos = True if file.add_bos_token is None and by_class else file.add_bos_token
        return cls(spelled, add_bos, file.chat_template)


def _read(path: Path, type: type[T]) -> T:
    if not path.is_file():
        return type()
    try:
        return msgspec.json.decode(path.read_bytes(), type=type)
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise CheckpointError(f"{path} cannot be read: {error}.") from None
