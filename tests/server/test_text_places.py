"""Where tokens begin in a text: characters spread over several tokens, and such as never become whole."""

from __future__ import annotations

import codecs
from bisect import bisect_right
from itertools import accumulate

import pytest
from hypothesis import given
from hypothesis import strategies as st

from onechip.server.logprobs import TextPlaces
from tests.server.scripted import TOKENIZER

WORD = TOKENIZER.encode(" can")


def byte_tokens(data: bytes) -> list[int]:
    """A token for each byte."""
    ids = [TOKENIZER.token_id(f"<0x{byte:02X}>") for byte in data]
    return [id for id in ids if id is not None]


def beginnings(data: bytes) -> list[int]:
    """The bytes that characters begin at; what is no UTF-8 is cut as Python's decoder cuts it."""
    broken: dict[int, int] = {}

    def note(error: UnicodeError) -> tuple[str, int]:
        assert isinstance(error, UnicodeDecodeError)
        broken[error.start] = error.end
        return "\ufffd", error.end

    codecs.register_error("noted", note)
    data.decode("utf-8", "noted")
    found, place = [], 0
    while place < len(data):
        found.append(place)
        whole = place + 1 + sum(data[place] >= least for least in (0xC0, 0xE0, 0xF0))
        place = broken.get(place, whole)
    return found


@pytest.mark.parametrize(
    ("ids", "places"),
    [
        ([*byte_tokens("é".encode()), *WORD], [0, 0, 1]),
        ([*byte_tokens(b"\xe5"), *WORD, *WORD], [0, 1, 5]),
        (byte_tokens(b"\xe5\xe5\x97\xa5"), [0, 1, 1, 1]),
        (byte_tokens("\ufffd".encode()) + WORD, [0, 0, 0, 1]),
        ([*byte_tokens(b"\xf0"), *byte_tokens(b"\x80"), *WORD], [0, 1, 2]),
        (byte_tokens(b"\xed\xa5\x80") + WORD, [0, 1, 2, 3]),
    ],
)
def test_a_token_that_breaks_a_character_begins_behind_it(ids: list[int], places: list[int]) -> None:
    assert len(WORD) == 1
    assert TextPlaces(TOKENIZER, skip_special=True).push(ids) == places


BYTES = st.sampled_from(byte_tokens(bytes(range(0x80, 0x100))))
TEXTS = [*WORD, *byte_tokens("日é😀\ufffd".encode())]


@given(st.lists(st.sampled_from(TEXTS) | BYTES, max_size=12))
def test_a_token_begins_with_the_character_of_its_first_byte(ids: list[int]) -> None:
    pieces = [TOKENIZER.token_bytes(id) for id in ids]
    starts = beginnings(b"".join(pieces))
    firsts = list(accumulate(map(len, pieces[:-1]), initial=0)) if pieces else []
    places = TextPlaces(TOKENIZER, skip_special=True)
    assert places.push(ids) == [bisect_right(starts, first) - 1 for first in firsts]
