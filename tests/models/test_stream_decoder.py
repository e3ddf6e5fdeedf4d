"""Text of other families' tokens, part by part: what tokenizers gives for all ids at once."""

from __future__ import annotations

import tempfile
import time
from pathlib import Path
from random import Random

import pytest
import tokenizers
from hypothesis import given
from hypothesis import strategies as st

from onechip.models.stream_decoder import Spelling
from onechip.models.tokenizer import Tokenizer
from tests.models.small_tokenizers import CHATML, LLAMA3, byte_level, save, sentence_piece


def loaded(backend: tokenizers.Tokenizer) -> Tokenizer:
    with tempfile.TemporaryDirectory() as folder:
        return Tokenizer.load(save(backend, Path(folder)), [])


BACKENDS = {
    "llama3": byte_level(LLAMA3, LLAMA3[0]),
    "chatml": byte_level(CHATML),
    "llama2": sentence_piece(),
}
TOKENIZERS = {name: loaded(backend) for name, backend in BACKENDS.items()}
NAMES = st.sampled_from(sorted(BACKENDS))
IDS = st.lists(st.integers(0, max(t.vocab_size for t in TOKENIZERS.values()) + 3), max_size=60)
TEXTS = st.one_of(st.text(max_size=60), st.text("aTom ▁ é漢🌰\n", max_size=30))


def in_parts(tokenizer: Tokenizer, ids: list[int], skip: bool, random: Random) -> list[str]:
    stream = tokenizer.stream(skip)
    pieces = []
    while ids:
        count = random.randint(1, 3)
        pieces.append(stream.push(ids[:count]))
        ids = ids[count:]
    return [*pieces, stream.finish()]


@given(NAMES, IDS, st.booleans(), st.randoms())
def test_any_ids_in_parts_are_what_tokenizers_gives(name: str, ids: list[int], skip: bool, random) -> None:  # type: ignore[no-untyped-def]
    reference = BACKENDS[name].decode(ids, skip_special_tokens=skip)
    text = "".join(in_parts(TOKENIZERS[name], ids, skip, random))
    assert text == TOKENIZERS[name].decode(ids, skip)
    # In a run of bytes that is not UTF-8, tokenizers' ByteFallback gives up the good characters too.
    if name != "llama2" or "�" not in reference:
        assert text == reference


@given(NAMES, TEXTS, st.randoms())
def test_text_comes_back_and_is_never_split(name: str, text: str, random) -> None:  # type: ignore[no-untyped-def]
    tokenizer, backend = TOKENIZERS[name], BACKENDS[name]
    ids = tokenizer.encode(text)
    pieces = in_parts(tokenizer, ids, False, random)
    expected = text.replace("▁", " ") if name == "llama2" else text
    # Prepend puts a blank before the text behind each control token as well.
    if not any(token in text for token in ("<s>", "</s>", "<unk>")):
        assert "".join(pieces) == expected
    assert "".join(pieces) == backend.decode(ids, skip_special_tokens=False)
    if "�" not in text:
        assert not any("�" in piece for piece in pieces)


def test_a_text_that_goes_on_from_a_prompt_keeps_its_blank() -> None:
    tokenizer = TOKENIZERS["llama2"]
    ids = tokenizer.encode("Tom a")
    assert tokenizer.token(ids[0]) == "▁Tom"
    assert tokenizer.stream().push(ids) == "Tom a"
    assert tokenizer.stream(continued=True).push(ids) == " Tom a"
    # The blank may come alone, behind tokens that show nothing, and only the first one goes.
    blank, bos = tokenizer.token_id("▁"), tokenizer.token_id("<s>")
    assert blank is not None
    assert bos is not None
    stream = tokenizer.stream()
    assert [stream.push(part) for part in ([bos], [blank], [blank], ids)] == ["", "", " ", " Tom a"]


def test_a_finished_run_of_bytes_does_not_bring_the_blank_back() -> None:
    tokenizer = TOKENIZERS["llama2"]
    half, blank = tokenizer.token_id("<0xE2>"), tokenizer.token_id("▁")
    assert half is not None
    assert blank is not None
    stream = tokenizer.stream()
    assert [stream.push([half]), stream.finish(), stream.push([blank])] == ["", "�", " "]


def test_time_grows_with_the_length_only() -> None:
    tokenizer = TOKENIZERS["llama3"]
    byte = tokenizer.encode("é")[:1]

    def seconds(count: int) -> float:
        def once() -> float:
            stream, start = tokenizer.stream(), time.thread_time()
            for _ in range(count):
                stream.push(byte)
            return time.thread_time() - start

        return min(once() for _ in range(3))

    # 32 times as many, and 1,024 times as long were it quadratic. 180 is as far from one as from the other:
    # a busy machine alone makes it 50.
    assert seconds(64_000) < 180 * seconds(2_000)


@pytest.mark.parametrize("decoder", [None, {"type": "Sequence"}, {"type": "Sequence", "decoders": [3]}, {}])
def test_what_is_no_decoder_is_refused(decoder) -> None:  # type: ignore[no-untyped-def]
    with pytest.raises(ValueError, match="supported are ByteLevel"):
        Spelling.read(decoder)
