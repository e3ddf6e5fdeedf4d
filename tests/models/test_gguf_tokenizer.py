"""Vocabularies of GGUF files against the tokenizers that they were made from, and llama.cpp's own tests."""

from __future__ import annotations

import json
from itertools import pairwise
from pathlib import Path
from typing import Any

import msgspec
import pytest
import tokenizers
from gguf.constants import TokenType
from hypothesis import given, settings
from hypothesis import strategies as st

from onechip.errors import CheckpointError
from onechip.models.gguf.file import GgufFile
from onechip.models.gguf.metadata import Metadata
from onechip.models.gguf.pretokenizers import PRE_TOKENIZERS
from onechip.models.gguf.tokenizer import scored_merges, tokenizer_config_json, tokenizer_json
from onechip.models.source import resolve_model
from tests.models.gguf_files import close, writer
from tests.models.small_tokenizers import TEXT, byte_level, sentence_piece
from tests.shared_data import SHARED


def metadata(folder: Path, **keys: Any) -> Metadata:
    file = writer(folder / "x.gguf", "llama", {f"tokenizer.ggml.{key}": value for key, value in keys.items()})
    file.add_uint32("llama.context_length", 512)
    close(file)
    return Metadata.read([GgufFile(folder / "x.gguf")])


def vocabulary_of(tokenizer: tokenizers.Tokenizer, user: tuple[str, ...] = ()) -> dict[str, Any]:
    """tokens, token_type and merges, as a converter writes them."""
    raw = json.loads(tokenizer.to_str())
    by_id = {id: token for token, id in tokenizer.get_vocab(with_added_tokens=True).items()}
    tokens = [by_id[id] for id in range(len(by_id))]
    special = {token["content"] for token in raw["added_tokens"] if token["special"]}
    types = [
        TokenType.CONTROL
        if token in special
        else TokenType.USER_DEFINED
        if token in user
        else TokenType.BYTE
        if token.startswith("<0x")
        else TokenType.NORMAL
        for token in tokens
    ]
    merges = [" ".join(merge) for merge in raw["model"]["merges"]]
    return {"tokens": tokens, "token_type": [int(kind) for kind in types], "merges": merges}


def ids_of(raw: dict[str, Any], text: str) -> list[int]:
    backend = tokenizers.Tokenizer.from_str(json.dumps(raw))
    ids: list[int] = backend.encode(text, add_special_tokens=False).ids
    return ids


def test_acorns_vocabulary_comes_back(tmp_path: Path) -> None:
    raw = json.loads((resolve_model("acorn") / "tokenizer.json").read_text())
    found = vocabulary_of(tokenizers.Tokenizer.from_str(json.dumps(raw)))
    visible = raw["model"]["vocab"]['<|"|>']  # llama.cpp's converter marks it as text
    found["token_type"][visible] = int(TokenType.USER_DEFINED)
    assert tokenizer_json(metadata(tmp_path, model="gemma4", unknown_token_id=3, **found)) == {
        **raw,
        "model": raw["model"] | {"merges": [tuple(merge) for merge in raw["model"]["merges"]]},
    }


def test_byte_level(tmp_path: Path) -> None:
    original = byte_level(["<|endoftext|>"])
    raw = tokenizer_json(
        metadata(tmp_path, model="gpt2", pre="gpt-2", **vocabulary_of(original, ("漢字", "ùù")))
    )
    for text in [*TEXT, "a  b<|endoftext|>c", "it's 12345 o'clock"]:
        assert ids_of(raw, text) == original.encode(text).ids
    assert [token["content"] for token in raw["added_tokens"]] == ["<|endoftext|>", "漢字", "ùù"]


@pytest.mark.parametrize(
    ("pre", "words"),
    [
        ("default", ["I", "'", "m", " ", "123", "45", "!!", "\n\n", " ok"]),
        ("gpt-2", ["I", "'m", " 12345", "!!", "\n\n", " ok"]),
        ("smollm", ["I", "'m", " ", "1", "2", "3", "4", "5", "!!", "\n\n", " ok"]),
        ("llama-bpe", ["I", "'m", " ", "123", "45", "!!\n\n", " ok"]),
        ("qwen2", ["I", "'m", " ", "1", "2", "3", "4", "5", "!!\n\n", " ok"]),
        ("tekken", ["I", "'m", " ", "1", "2", "3", "4", "5", "!!\n\n", " ok"]),
    ],
)
def test_text_is_cut_as_the_name_says(pre: str, words: list[str]) -> None:
    """Words by hand from the patterns; a blank before a number stays alone where numbers are cut."""
    raw = {
        "version": "1.0",
        "pre_tokenizer": PRE_TOKENIZERS[pre],
        "model": {"type": "BPE", "vocab": {}, "merges": []},
    }
    cutter = tokenizers.Tokenizer.from_str(json.dumps(raw)).pre_tokenizer
    text = "I'm 12345!!\n\n ok"
    assert [text[start:end] for _, (start, end) in cutter.pre_tokenize_str(text)] == words


def test_every_way_of_cutting_loads() -> None:
    for name, step in PRE_TOKENIZERS.items():
        raw = {"version": "1.0", "pre_tokenizer": step, "model": {"type": "BPE", "vocab": {}, "merges": []}}
        assert tokenizers.Tokenizer.from_str(json.dumps(raw)).pre_tokenizer is not None, name


def test_sentence_piece(tmp_path: Path) -> None:
    """With a blank in front, scores instead of merges, bytes for what it does not know."""
    original = sentence_piece()
    found = vocabulary_of(original)
    ranks = {merge.replace(" ", ""): rank for rank, merge in enumerate(found.pop("merges"))}
    scores = [float(-ranks[token]) if token in ranks else -1e6 for token in found["tokens"]]
    raw = tokenizer_json(metadata(tmp_path, model="llama", unknown_token_id=0, scores=scores, **found))
    for text in [*TEXT, "Tom  Tom", " a", "Tom</s>Tom"]:
        assert ids_of(raw, text) == original.encode(text, add_special_tokens=False).ids
    assert raw["decoder"] == json.loads(original.to_str())["decoder"]


def test_sentence_piece_without_a_blank_in_front(tmp_path: Path) -> None:
    found = vocabulary_of(sentence_piece())
    del found["merges"]
    scores = [0.0] * len(found["tokens"])
    keys = metadata(
        tmp_path, model="llama", unknown_token_id=0, add_space_prefix=False, scores=scores, **found
    )
    assert ids_of(tokenizer_json(keys), "T")[0] == found["tokens"].index("T")


def _sentence_piece_join(text: str, scores: dict[str, float]) -> list[str]:
    """SentencePiece's rule, as its paper has it: join the neighbours with the best score while it can."""
    pieces = list(text)
    while True:
        joins = [(-scores[a + b], at) for at, (a, b) in enumerate(pairwise(pieces)) if a + b in scores]
        if not joins:
            return pieces
        at = min(joins)[1]
        pieces[at : at + 2] = [pieces[at] + pieces[at + 1]]


@settings(max_examples=100, deadline=None)
@given(st.data())
def test_merges_made_of_scores_do_what_the_scores_do(data: st.DataObject) -> None:
    words = data.draw(st.lists(st.text("abc", min_size=2, max_size=5), unique=True, max_size=12))
    tokens = ["a", "b", "c", *words]
    order = data.draw(st.permutations(range(len(tokens))))
    scores = {token: float(-rank) for token, rank in zip(tokens, order, strict=True)}
    vocabulary = {token: id for id, token in enumerate(tokens)}
    merges = scored_merges(
        vocabulary, [int(TokenType.NORMAL)] * len(tokens), [scores[token] for token in tokens]
    )
    backend = tokenizers.Tokenizer(tokenizers.models.BPE(vocabulary, merges))
    text = data.draw(st.text("abc", min_size=1, max_size=12))
    assert backend.encode(text).tokens == _sentence_piece_join(text, scores)


@pytest.mark.parametrize(
    ("keys", "message"),
    [
        ({"model": "bert"}, r"x\.gguf has a tokenizer of kind bert: onechip reads gemma4, llama, gpt2"),
        (
            {"model": "gpt2", "pre": "chameleon", "merges": ["a b"], "tokens": ["a", "b", "ab"]},
            r"cuts text as chameleon does .*: onechip knows .*llama-bpe",
        ),
        ({"model": "gemma4", "merges": ["ab"]}, "the merge 'ab': it is no pair of tokens that makes a token"),
        (
            {"model": "gemma4", "merges": ["a b"]},
            "the merge 'a b': it is no pair of tokens that makes a token",
        ),
        ({"model": "llama", "scores": [0.0]}, "has 2 tokens and 1 scores"),
        ({"model": "gpt2", "token_type": [1]}, "has 2 tokens and 1 types"),
        (
            {"model": "llama", "scores": [0.0, 0.0], "unknown_token_id": 7},
            "unknown_token_id 7: there are 2 tokens",
        ),
        ({"model": "gemma4"}, r"has no tokenizer\.ggml\.merges: it must be a list of strings"),
    ],
)
def test_what_is_missing_or_not_served_is_named(tmp_path: Path, keys: dict[str, Any], message: str) -> None:
    with pytest.raises(CheckpointError, match=message):
        tokenizer_json(metadata(tmp_path, **{"tokens": ["a", "b"], **keys}))


@pytest.mark.parametrize(
    ("keys", "add_bos"),
    [
        ({"model": "llama"}, True),
        ({"model": "gpt2", "pre": "llama-bpe"}, True),
        ({"model": "gpt2", "pre": "smollm"}, False),
        ({"model": "gpt2", "pre": "smollm", "add_bos_token": True}, True),
        ({"model": "llama", "add_bos_token": False}, False),
    ],
)
def test_whether_prompts_begin_with_bos(tmp_path: Path, keys: dict[str, Any], add_bos: bool) -> None:
    found = tokenizer_config_json(metadata(tmp_path, tokens=["a", "b"], bos_token_id=1, **keys))
    assert found["add_bos_token"] is add_bos
    assert found["bos_token"] == "b"
    assert "unk_token" not in found


def test_gemma_4s_vocabulary_tokenizes_as_llama_cpp_tests_it() -> None:
    file = SHARED / "gemma4_vocab.gguf"
    if not file.exists():
        pytest.skip("needs ../shared/data/gemma4_vocab.gguf, which is no part of the repository")
    raw = msgspec.json.encode(tokenizer_json(Metadata.read([GgufFile(file)])))
    backend = tokenizers.Tokenizer.from_buffer(raw)
    texts = file.with_suffix(".inp.txt").read_text().split("\n__ggml_vocab_test__\n")
    lines = file.with_suffix(".out.txt").read_text().split("\n")
    assert len(texts) > 40
    for text, line in zip(texts, lines, strict=False):
        assert backend.encode(text, add_special_tokens=False).ids == [int(id) for id in line.split()]
