"""A checkpoint's tokenizer.json: text -> token ids with exactly one BOS, and token ids -> text.

Text can be decoded as it is generated: `Tokenizer.stream` gives a decoder that never splits a character.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

import msgspec
import tokenizers

from onechip.errors import CheckpointError
from onechip.models.generation import GenerationDefaults
from onechip.models.stream_decoder import Pieces, Spelling, StreamDecoder
from onechip.models.tokenizer_config import TokenizerConfig

_TURN_END = (
    "<turn|>",  # Gemma 4, whose published config.json lists this one only
    "<|tool_response>",
    "<end_of_turn>",  # Gemma 3
    "<|eot_id|>",  # Llama 3
    "<|eom_id|>",
    "<|im_end|>",  # ChatML
)
"""Tokens with which models give the turn back; configs, above all those of base models, often lack them."""


class Tokenizer:
    """Text to token ids and back.

    Attributes:
        vocab_size: one more than the largest token id, added tokens included.
        bos_id: what every prompt starts with; None if prompts of this model start with nothing.
        special_ids: ids that are markup, not text (`special` in tokenizer.json).
        stop_ids: ids that end an answer.
    """

    def __init__(
        self, backend: tokenizers.Tokenizer, spelling: Spelling, bos_id: int | None, stop_ids: Iterable[int]
    ) -> None:
        self._backend = backend
        added = backend.get_added_tokens_decoder()
        count: int = backend.get_vocab_size(with_added_tokens=True)
        self.vocab_size: int = max(count, *(id + 1 for id in added)) if added else count
        self.special_ids = frozenset(id for id, token in added.items() if token.special)
        self.bos_id = bos_id
        self.stop_ids = frozenset(stop_ids)
        self._pieces = {
            False: Pieces(backend, spelling, hidden=frozenset()),
            True: Pieces(backend, spelling, hidden=self.special_ids),
        }

    @classmethod
    def load(cls, folder: Path, config_eos_ids: Iterable[int]) -> Tokenizer:
        """Read `folder/tokenizer.json`, with what tokenizer_config.json and generation_config.json say of it.

        The stop ids are those of config.json and of generation_config.json, the `eos_token` of
        tokenizer_config.json, and the turn-end tokens of the families that we know.

        Args:
            config_eos_ids: the stop ids that config.json names.

        Raises:
            CheckpointError: a file is missing or damaged, or the decoder is none that we have.
        """
        path = folder / "tokenizer.json"
        if not path.is_file():
            raise CheckpointError(f"{folder} has no tokenizer.json.")
        content = path.read_bytes()
        try:
            backend = tokenizers.Tokenizer.from_buffer(content)
        except Exception as error:  # the library raises plain Exception
            raise CheckpointError(f"{path} cannot be read: {error}.") from None
        try:
            spelling = Spelling.read(msgspec.json.decode(content, type=_File).decoder)
        except ValueError as error:
            raise CheckpointError(f"{path} has {error}.") from None
        # A file may ask for a length to which all texts are cut or filled up; prompts are never cut here.
        backend.no_truncation()
        backend.no_padding()
        config = TokenizerConfig.load(folder)
        stop_ids = {*config_eos_ids, *GenerationDefaults.load(folder).eos_ids, *_turn_ends(backend, config)}
        return cls(backend, spelling, _bos_id(backend, config), stop_ids)

    @cached_property
    def longest(self) -> int:
        """Characters of a text that one token stands for, at the most; takes 0.2 s for 262,144 tokens."""
        return max(map(len, self._backend.get_vocab(with_added_tokens=True)))

    def encode(self, text: str, add_bos: bool = False) -> list[int]:
        """Token ids of `text`; special tokens that are spelled out in it become their ids, as in vLLM.

        Args:
            add_bos: put BOS first if the model has one, unless `text` starts with it already.
        """
        # The batch call is the one that lets other threads run meanwhile, and it computes no offsets.
        ids: list[int] = self._backend.encode_batch_fast([text], add_special_tokens=False)[0].ids
        if add_bos and self.bos_id is not None and ids[:1] != [self.bos_id]:
            ids.insert(0, self.bos_id)
        return ids

    def decode(self, ids: Sequence[int], skip_special: bool = True) -> str:
        """Text of `ids`. Bytes that are not UTF-8 become U+FFFD, ids outside the vocabulary nothing."""
        decoder = self.stream(skip_special)
        return decoder.push(ids) + decoder.finish()

    def stream(self, skip_special: bool = True, continued: bool = False) -> StreamDecoder:
        """A decoder for one sequence of ids that arrives in parts.

        Args:
            continued: the text goes on from a prompt, so that a blank at its start belongs to it.
        """
        return StreamDecoder(self._pieces[skip_special], continued)

    def token_id(self, token: str) -> int | None:
        """Id of `token` as tokenizer.json spells it; None if the vocabulary has no such token."""
        id: int | None = self._backend.token_to_id(token)
        return id

    def spellings(self) -> list[bytes]:
        """Each id's bytes in a decoded text, special tokens spelled out; b"" for ids that have none."""
        return self._pieces[False].all(self.vocab_size)

    def token(self, id: int) -> str:
        """Token `id` as tokenizer.json spells it; "" if the vocabulary has no such id."""
        return self._backend.id_to_token(id) or ""

    def token_bytes(self, id: int) -> bytes:
        """What token `id` adds to a text, in UTF-8; alone perhaps no whole characters. Special tokens as they
        are spelled. Empty if the vocabulary has no such id.
        """
        return self._pieces[False][id]


class _File(msgspec.Struct):
    decoder: dict[str, Any] | None = None


def _turn_ends(backend: tokenizers.Tokenizer, config: TokenizerConfig) -> Iterable[int]:
    """Ids of `eos_token`, and of the known turn-end tokens that the vocabulary has as tokens of their own.

    No other spelling counts: Gemma 4 has an ordinary token `</s>`, with which nothing ends.
    """
    added = {token.content: id for id, token in backend.get_added_tokens_decoder().items()}
    for token in _TURN_END:
        if token in added:
            yield added[token]
    eos = config.special_tokens.get("eos_token")
    id = backend.token_to_id(eos) if eos else None
    if id is not None:
        yield id


def _bos_id(backend: tokenizers.Tokenizer, config: TokenizerConfig) -> int | None:
    """What prompts start with.

    Gemma needs its `<bos>` whatever the files say. Elsewhere the post-processor of tokenizer.json decides, as
    in transformers 5; where it adds nothing, `add_bos_token` does.
    """
    gemma: int | None = backend.token_to_id("<bos>")
    if gemma is not None:
        return gemma
    plain, processed = (backend.encode("a", add_special_tokens=special).ids for special in (False, True))
    if plain and processed[1 : len(plain) + 1] == plain:
        added: int = processed[0]
        return added
    named = config.special_tokens.get("bos_token")
    id: int | None = backend.token_to_id(named) if config.add_bos_token and named else None
    return id
