"""A checkpoint's tokenizer.json: text -> token ids with exactly one BOS, and token ids -> text.

Text can be decoded as it is generated: `Tokenizer.stream` gives a decoder that never splits a character.
"""

from __future__ import annotations

import codecs
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import msgspec
import tokenizers

from onechip.errors import CheckpointError
from onechip.models.generation import GenerationDefaults

_TURN_END = ("<turn|>", "<|tool_response>")
"""Tokens with which Gemma 4 gives the turn back; the published config.json lists only the first."""

_DECODER = [
    {"type": "Replace", "pattern": {"String": "▁"}, "content": " "},
    {"type": "ByteFallback"},
    {"type": "Fuse"},
]
"""The decoder of Gemma's tokenizer.json, the one that `StreamDecoder` implements."""


class Tokenizer:
    """Text to token ids and back.

    Attributes:
        vocab_size: number of token ids, added tokens included.
        bos_id: what every prompt starts with.
        special_ids: ids that are markup, not text (`special` in tokenizer.json).
        stop_ids: ids that end an answer: those of config.json, those of generation_config.json, and Gemma 4's
            turn-end tokens where this vocabulary has them.
    """

    def __init__(self, backend: tokenizers.Tokenizer, stop_ids: Iterable[int]) -> None:
        self._backend = backend
        self.vocab_size: int = backend.get_vocab_size(with_added_tokens=True)
        added = backend.get_added_tokens_decoder()
        self.special_ids = frozenset(id for id, token in added.items() if token.special)
        self.bos_id = self._required_id("<bos>")
        turn_end = (self.token_id(token) for token in _TURN_END)
        self.stop_ids = frozenset(stop_ids) | {id for id in turn_end if id is not None}
        bytes_ = ((backend.token_to_id(f"<0x{byte:02X}>"), bytes([byte])) for byte in range(256))
        byte_ids = {id: byte for id, byte in bytes_ if id is not None}
        self._pieces = {
            False: _Pieces(backend, byte_ids, hidden=frozenset()),
            True: _Pieces(backend, byte_ids, hidden=self.special_ids),
        }

    @classmethod
    def load(cls, folder: Path, config_eos_ids: Iterable[int]) -> Tokenizer:
        """Read `folder/tokenizer.json` and the stop ids of `folder/generation_config.json`.

        Args:
            config_eos_ids: the stop ids that config.json names.

        Raises:
            CheckpointError: a file is missing or damaged, or the decoder is not Gemma's.
        """
        path = folder / "tokenizer.json"
        if not path.is_file():
            raise CheckpointError(f"{folder} has no tokenizer.json.")
        try:
            backend = tokenizers.Tokenizer.from_str(path.read_text(encoding="utf-8"))
        except Exception as error:  # the library raises plain Exception
            raise CheckpointError(f"{path} cannot be read: {error}.") from None
        _check_decoder(path)
        return cls(backend, {*config_eos_ids, *GenerationDefaults.load(folder).eos_ids})

    def encode(self, text: str, add_bos: bool = False) -> list[int]:
        """Token ids of `text`; special tokens that are spelled out in it become their ids, as in vLLM.

        Args:
            add_bos: put BOS first, unless `text` starts with it already.
        """
        # The batch call is the one that lets other threads run meanwhile, and it computes no offsets.
        ids: list[int] = self._backend.encode_batch_fast([text], add_special_tokens=False)[0].ids
        if add_bos and ids[:1] != [self.bos_id]:
            ids.insert(0, self.bos_id)
        return ids

    def decode(self, ids: Sequence[int], skip_special: bool = True) -> str:
        """Text of `ids`. Bytes that are not UTF-8 become U+FFFD, ids outside the vocabulary nothing."""
        decoder = self.stream(skip_special)
        return decoder.push(ids) + decoder.finish()

    def stream(self, skip_special: bool = True) -> StreamDecoder:
        """A decoder for one sequence of ids that arrives in parts."""
        return StreamDecoder(self._pieces[skip_special])

    def token_id(self, token: str) -> int | None:
        """Id of `token` as tokenizer.json spells it; None if the vocabulary has no such token."""
        id: int | None = self._backend.token_to_id(token)
        return id

    def token(self, id: int) -> str:
        """Token `id` as tokenizer.json spells it; "" if the vocabulary has no such id."""
        return self._backend.id_to_token(id) or ""

    def _required_id(self, token: str) -> int:
        id = self.token_id(token)
        if id is None:
            raise CheckpointError(
                f"tokenizer.json has no token {token}; Gemma's tokenizer is the one supported."
            )
        return id


class StreamDecoder:
    """Decodes a sequence of ids part by part, in time proportional to each part.

    The pieces that `push` and `finish` return join to what `Tokenizer.decode` gives for all ids at once. A
    character whose bytes are spread over several byte tokens is held back until it is whole.
    """

    def __init__(self, pieces: _Pieces) -> None:
        self._pieces = pieces
        self._utf8 = codecs.getincrementaldecoder("utf-8")("replace")
        self._in_bytes = False

    def push(self, ids: Sequence[int]) -> str:
        """Text that these ids complete."""
        pieces = [self._pieces[id] for id in ids]
        if not self._in_bytes and self._pieces.byte_set.isdisjoint(ids):
            return "".join(pieces)
        return "".join(self._push_piece(id, piece) for id, piece in zip(ids, pieces, strict=True))

    def finish(self) -> str:
        """U+FFFD for the bytes of a character that never became whole, or ""."""
        return self._flush()

    def _push_piece(self, id: int, piece: str) -> str:
        byte = self._pieces.byte_ids.get(id)
        if byte is not None:
            self._in_bytes = True
            return self._utf8.decode(byte)
        # A token that is skipped leaves no trace, so the bytes around it may still form one character.
        return self._flush() + piece if piece else ""

    def _flush(self) -> str:
        if not self._in_bytes:
            return ""
        self._in_bytes = False
        rest = self._utf8.decode(b"", final=True)
        self._utf8.reset()
        return rest


class _Pieces(dict[int, str]):
    """Id -> its text, looked up at first use: a vocabulary has 262,144 ids, an answer a few hundred.

    Byte tokens and hidden ids have the text "".
    """

    def __init__(
        self, backend: tokenizers.Tokenizer, byte_ids: dict[int, bytes], hidden: frozenset[int]
    ) -> None:
        super().__init__()
        self._backend = backend
        self._no_text = hidden | frozenset(byte_ids)
        self.byte_ids = byte_ids
        self.byte_set = frozenset(byte_ids)

    def __missing__(self, id: int) -> str:
        token: str | None = None if id in self._no_text else self._backend.id_to_token(id)
        self[id] = piece = (token or "").replace("▁", " ")
        return piece


class _File(msgspec.Struct):
    decoder: dict[str, Any] | None = None


def _check_decoder(path: Path) -> None:
    decoder = msgspec.json.decode(path.read_bytes(), type=_File).decoder or {}
    if decoder.get("type") != "Sequence" or decoder.get("decoders") != _DECODER:
        raise CheckpointError(
            f"{path} has the decoder {decoder.get('type')!r}; supported is Gemma's: "
            "a sequence of Replace '▁' by ' ', ByteFallback and Fuse."
        )
