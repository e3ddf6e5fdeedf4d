"""Token ids, part by part -> text, part by part, in which no character is ever split.

Tokens are spelled in one of two ways. In a SentencePiece vocabulary (Gemma, Llama 2) a token is text with "▁"
for a blank, and `<0xE2>` is a byte. In a byte-level one (GPT-2, Llama 3) each character of a token stands for
one byte. Either way a token is bytes, and what is left to do is to decode UTF-8.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from encodings.utf_8 import IncrementalDecoder
from typing import TYPE_CHECKING, Any

import tokenizers

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer

_SENTENCE_PIECE = [
    {"type": "Replace", "pattern": {"String": "▁"}, "content": " "},
    {"type": "ByteFallback"},
    {"type": "Fuse"},
]


@dataclass(frozen=True, slots=True)
class Spelling:
    """How the tokens of a vocabulary spell text.

    Attributes:
        byte_level: each character of a token stands for one byte.
        leading_blanks: so many blanks at the start of a text are not part of it.
    """

    byte_level: bool = False
    leading_blanks: int = 0

    @classmethod
    def read(cls, decoder: Mapping[str, Any] | None) -> Spelling:
        """The spelling behind the `decoder` of a tokenizer.json.

        Raises:
            ValueError: it is another decoder; the message names it, and those that would do.
        """
        decoder = decoder or {"type": "null"}
        steps = decoder.get("decoders") if decoder.get("type") == "Sequence" else [decoder]
        steps = steps if isinstance(steps, list) else [steps]
        types = [step.get("type") if isinstance(step, Mapping) else step for step in steps]
        if types in (["ByteLevel"], ["ByteLevel", "Fuse"]):
            return cls(byte_level=True)
        if steps[:3] == _SENTENCE_PIECE:
            if types[3:] == []:
                return cls()
            if types[3:] == ["Strip"] and steps[3].get("content") == " " and not steps[3].get("stop"):
                return cls(leading_blanks=int(steps[3].get("start", 0)))
        raise ValueError(
            f"the decoder {' + '.join(map(str, types))}; supported are ByteLevel (GPT-2, Llama 3), and "
            "Replace '▁' by ' ' + ByteFallback + Fuse (Gemma), also with Strip of ' ' at the start (Llama 2)"
        )


class Pieces(dict[int, bytes]):
    """Id -> the bytes of its text, looked up at first use: a vocabulary may have 262,144 ids, an answer a few
    hundred. Hidden ids and ids outside of the vocabulary have none.
    """

    def __init__(self, backend: tokenizers.Tokenizer, spelling: Spelling, hidden: frozenset[int]) -> None:
        super().__init__()
        self._backend = backend
        self._hidden = hidden
        self.spelling = spelling

    def __missing__(self, id: int) -> bytes:
        self[id] = piece = self._look_up(id)
        return piece

    def all(self, count: int) -> list[bytes]:
        """The bytes of ids 0 to `count`; nothing of it is kept here."""
        return [self._look_up(id) for id in range(count)]

    def _look_up(self, id: int) -> bytes:
        token: str | None = None if id in self._hidden else self._backend.id_to_token(id)
        return b"" if token is None else self._bytes_of(token)

    def _bytes_of(self, token: str) -> bytes:
        if self.spelling.byte_level:
            # A token with other characters was added as plain text.
            values = [_BYTE_OF.get(character) for character in token]
            known = [value for value in values if value is not None]
            return bytes(known) if len(known) == len(values) else token.encode()
        byte = _byte_token(token)
        return token.replace("▁", " ").encode() if byte is None else byte


class _Utf8(IncrementalDecoder):
    """UTF-8 that holds back what may become a character, and nothing else.

    Python's holds back the first two bytes of an encoded surrogate, too, for errors="surrogatepass" alone.
    """

    def decode(self, input: ReadableBuffer, final: bool = False) -> str:
        text = super().decode(input, final)
        return text + super().decode(b"", True) if b"\xed\xa0" <= self.buffer < b"\xee" else text


class StreamDecoder:
    """Decodes a sequence of ids part by part, in time proportional to each part.

    The pieces that `push` and `finish` return join to what `Tokenizer.decode` gives for all ids at once. A
    character whose bytes are spread over several tokens is held back until it is whole; tokens without text
    between them change nothing.
    """

    def __init__(self, pieces: Pieces, continued: bool = False) -> None:
        """Start before the first id.

        Args:
            continued: the text goes on from a prompt, so that a blank at its start belongs to it.
        """
        self._pieces = pieces
        self._utf8 = _Utf8("replace")
        self._blanks = 0 if continued else pieces.spelling.leading_blanks

    def push(self, ids: Sequence[int]) -> str:
        """Text that these ids complete."""
        pieces = self._pieces
        return self._without_blanks(self._utf8.decode(b"".join([pieces[id] for id in ids])))

    def breaks(self, id: int) -> bool:
        """Whether `id`, if it comes next, is no part of the character that is held back, and so breaks it."""
        held, piece = self._utf8.getstate(), self._pieces[id]
        if not held[0] or not piece:
            return False
        text = self._utf8.decode(piece[:1])
        characters = len(text) + bool(self._utf8.getstate()[0])
        self._utf8.setstate(held)
        return characters > 1

    def finish(self) -> str:
        """U+FFFD for the bytes of a character that never became whole, or "". More ids may follow."""
        rest = self._utf8.decode(b"", final=True)
        self._utf8.reset()
        return self._without_blanks(rest)

    def _without_blanks(self, text: str) -> str:
        """`text` without what is left to drop of the blanks at the start."""
        if not self._blanks or not text:
            return text
        kept = text.removeprefix(" ")
        self._blanks = 0 if kept == text else self._blanks - 1
        return self._without_blanks(kept)


def _byte_token(token: str) -> bytes | None:
    """The byte that `<0xE2>` stands for; None for any other token."""
    if len(token) != 6 or not token.startswith("<0x") or not token.endswith(">"):
        return None
    try:
        return bytes.fromhex(token[3:5])
    except ValueError:
        return None


def _byte_alphabet() -> dict[str, int]:
    """Character -> byte as in GPT-2: printable Latin-1 stands for itself, other bytes for U+0100 and on."""
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = sorted(set(range(256)) - set(printable))
    return {chr(byte): byte for byte in printable} | {chr(256 + n): byte for n, byte in enumerate(others)}


_BYTE_OF = _byte_alphabet()
