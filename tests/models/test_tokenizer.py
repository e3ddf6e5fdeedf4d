"""Encoding with exactly one BOS, stop ids, and decoding that never splits a character."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
import tokenizers
from hypothesis import given
from hypothesis import strategies as st

import onechip.models
from onechip.errors import CheckpointError
from onechip.models.tokenizer import Tokenizer

ACORN = Path(onechip.models.__file__).parent / "acorn"
TOKENIZER = Tokenizer.load(ACORN, [1])
BACKEND = tokenizers.Tokenizer.from_file(str(ACORN / "tokenizer.json"))
IDS = st.lists(st.integers(0, TOKENIZER.vocab_size + 3), max_size=60)
BYTE_IDS = [TOKENIZER.token_id(f"<0x{byte:02X}>") or 0 for byte in range(256)]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for name in ("tokenizer.json", "generation_config.json"):
        shutil.copy(ACORN / name, tmp_path / name)
    return tmp_path


def test_bos_is_there_exactly_once() -> None:
    plain = TOKENIZER.encode("Tom has 12 apples.")
    assert plain[0] != TOKENIZER.bos_id
    assert TOKENIZER.encode("Tom has 12 apples.", add_bos=True) == [TOKENIZER.bos_id, *plain]
    assert TOKENIZER.encode("<bos>Tom has 12 apples.", add_bos=True) == [TOKENIZER.bos_id, *plain]
    assert TOKENIZER.encode("<bos>Tom has 12 apples.") == [TOKENIZER.bos_id, *plain]
    assert TOKENIZER.encode("", add_bos=True) == [TOKENIZER.bos_id]


def test_special_tokens_in_text_become_their_ids() -> None:
    assert TOKENIZER.encode("<bos><|turn>user\nHi<turn|>\n")[:2] == [2, 105]
    assert TOKENIZER.encode("<turn|>") == [106]


def test_stop_ids_are_the_union_and_never_unk(folder: Path) -> None:
    assert TOKENIZER.stop_ids == {1, 106, 50}
    (folder / "generation_config.json").write_text('{"eos_token_id": 7}')
    assert Tokenizer.load(folder, [1]).stop_ids == {1, 7, 106, 50}
    (folder / "generation_config.json").unlink()
    assert Tokenizer.load(folder, [1]).stop_ids == {1, 106, 50}


def test_a_vocabulary_without_the_turn_tokens_gets_no_stop_id_for_them(folder: Path) -> None:
    path = folder / "tokenizer.json"
    content = path.read_text().replace("<|tool_response>", "<other>")
    path.write_text(content)
    assert Tokenizer.load(folder, [1]).stop_ids == {1, 106, 50}  # 50 from generation_config.json
    (folder / "generation_config.json").unlink()
    assert Tokenizer.load(folder, [1]).stop_ids == {1, 106}


@given(st.text(max_size=80))
def test_text_survives_a_round_trip(text: str) -> None:
    ids = TOKENIZER.encode(text)
    assert TOKENIZER.decode(ids, skip_special=False) == text.replace("▁", " ")


@given(IDS, st.booleans())
def test_decode_agrees_with_tokenizers_where_bytes_are_utf8(ids: list[int], skip: bool) -> None:
    reference = BACKEND.decode(ids, skip_special_tokens=skip)
    if "�" not in reference:
        assert TOKENIZER.decode(ids, skip) == reference


@given(st.lists(st.one_of(IDS, st.lists(st.sampled_from(BYTE_IDS), max_size=6)), max_size=12), st.booleans())
def test_streamed_pieces_join_to_decode(parts: list[list[int]], skip: bool) -> None:
    stream = TOKENIZER.stream(skip)
    pieces = [stream.push(part) for part in parts] + [stream.finish()]
    assert "".join(pieces) == TOKENIZER.decode([id for part in parts for id in part], skip)


@given(st.text(alphabet="é漢🌰a ", max_size=20), st.randoms())
def test_a_character_is_never_split(text: str, random) -> None:  # type: ignore[no-untyped-def]
    ids = [BYTE_IDS[byte] for byte in text.encode()]
    stream = TOKENIZER.stream()
    shown = ""
    while ids:
        count = random.randint(1, 3)
        shown += stream.push(ids[:count])
        ids = ids[count:]
        assert text.startswith(shown)
    assert shown + stream.finish() == text


def test_unfinished_bytes_become_one_replacement_character() -> None:
    stream = TOKENIZER.stream()
    assert stream.push(BYTE_IDS[0xE2:0xE3]) == ""
    assert stream.push(TOKENIZER.encode("a")) == "�a"
    assert stream.push([BYTE_IDS[0xF0], BYTE_IDS[0x9F]]) == ""
    assert stream.finish() == "�"


def test_a_missing_or_foreign_tokenizer_is_refused_by_name(folder: Path, tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match=r"has no tokenizer\.json"):
        Tokenizer.load(tmp_path / "nowhere", [1])
    path = folder / "tokenizer.json"
    content = json.loads(path.read_text())
    others = {
        "WordPiece": {"type": "WordPiece", "prefix": "##", "cleanup": True},
        "null": None,
        r"ByteFallback \+ Fuse": {
            "type": "Sequence",
            "decoders": [{"type": "ByteFallback"}, {"type": "Fuse"}],
        },
        r"Replace \+ ByteFallback \+ Fuse \+ Strip": {
            "type": "Sequence",
            "decoders": [
                *content["decoder"]["decoders"],
                {"type": "Strip", "content": " ", "start": 1, "stop": 1},
            ],
        },
    }
    for name, decoder in others.items():
        path.write_text(json.dumps(content | {"decoder": decoder}))
        with pytest.raises(
            CheckpointError, match=rf"the decoder {name}; supported are ByteLevel .*\(Llama 2\)"
        ):
            Tokenizer.load(folder, [1])
    path.write_text("{")
    with pytest.raises(CheckpointError, match=r"tokenizer\.json cannot be read"):
        Tokenizer.load(folder, [1])
