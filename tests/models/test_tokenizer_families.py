"""What prompts begin with and answers end with, where the checkpoint is no Gemma 4."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from onechip.errors import CheckpointError
from onechip.models.tokenizer import Tokenizer
from onechip.models.tokenizer_config import TokenizerConfig
from tests.models.small_tokenizers import CHATML, LLAMA3, byte_level, save, sentence_piece

BEGIN = LLAMA3[0]


def load(folder: Path, *eos_ids: int) -> Tokenizer:
    return Tokenizer.load(folder, eos_ids)


@pytest.mark.parametrize(
    "config",
    [
        {},
        {"bos_token": BEGIN},
        {"bos_token": BEGIN, "add_bos_token": False},
        {"bos_token": {"content": LLAMA3[2], "lstrip": False}, "add_bos_token": True},
    ],
)
def test_a_post_processor_gives_bos(tmp_path: Path, config: dict[str, Any]) -> None:
    tokenizer = load(save(byte_level(LLAMA3, BEGIN), tmp_path, **config))
    ids = tokenizer.encode("Tom", add_bos=True)
    assert ids == [tokenizer.token_id(BEGIN), *tokenizer.encode("Tom")]
    # Exactly one, also where the text brings it.
    assert tokenizer.encode(f"{BEGIN}Tom", add_bos=True) == ids


@pytest.mark.parametrize(
    ("config", "has_bos"),
    [
        ({}, False),
        ({"bos_token": "<|im_start|>", "eos_token": "<|im_end|>"}, False),  # SmolLM2: named, never added
        ({"bos_token": "<|im_start|>", "add_bos_token": False}, False),
        ({"bos_token": "<|im_start|>", "add_bos_token": True}, True),
        ({"bos_token": {"content": "<|im_start|>", "lstrip": False}, "add_bos_token": True}, True),
        ({"bos_token": "<|gone|>", "add_bos_token": True}, False),
    ],
)
def test_a_model_may_have_no_bos(tmp_path: Path, config: dict[str, Any], has_bos: bool) -> None:
    tokenizer = load(save(byte_level(CHATML), tmp_path, **config))
    assert tokenizer.bos_id == (tokenizer.token_id("<|im_start|>") if has_bos else None)
    assert len(tokenizer.encode("", add_bos=True)) == has_bos


def test_the_class_of_llama_adds_a_bos_that_no_file_names(tmp_path: Path) -> None:
    tokenizer = load(save(sentence_piece(), tmp_path, tokenizer_class="LlamaTokenizerFast"), 2)
    assert (tokenizer.bos_id, tokenizer.stop_ids) == (1, {2})
    config = {"tokenizer_class": "LlamaTokenizer", "add_bos_token": False}
    assert load(save(sentence_piece(), tmp_path, **config)).bos_id is None


def test_answers_end_with_what_the_vocabulary_has(tmp_path: Path) -> None:
    llama3 = load(save(byte_level(LLAMA3), tmp_path / "3", eos_token="<|end_of_text|>"), 7)
    assert llama3.stop_ids == {7, llama3.token_id("<|end_of_text|>"), llama3.token_id("<|eot_id|>")}
    chatml = load(save(byte_level(CHATML), tmp_path / "c"))
    assert chatml.stop_ids == {chatml.token_id("<|im_end|>")}
    gemma3 = load(save(byte_level(["<bos>", "<eos>", "<end_of_turn>"]), tmp_path / "g", eos_token="<eos>"))
    assert gemma3.stop_ids == {gemma3.token_id("<eos>"), gemma3.token_id("<end_of_turn>")}
    assert gemma3.bos_id == gemma3.token_id("<bos>")


def test_an_ordinary_token_ends_nothing(tmp_path: Path) -> None:
    backend = byte_level([])
    ordinary = backend.token_to_id("e")
    assert load(save(backend, tmp_path)).stop_ids == set()
    assert load(save(backend, tmp_path, eos_token="<|gone|>")).stop_ids == set()
    assert load(save(backend, tmp_path, eos_token="e")).stop_ids == {ordinary}  # unless the config says so


def test_a_file_that_asks_for_cut_or_padded_texts_is_not_obeyed(tmp_path: Path) -> None:
    backend = byte_level(LLAMA3)
    whole = backend.encode("Tom has twelve apples.").ids
    backend.enable_truncation(max_length=2)
    backend.enable_padding(length=64)
    assert load(save(backend, tmp_path)).encode("Tom has twelve apples.") == whole


def test_special_tokens_come_from_three_places(tmp_path: Path) -> None:
    assert TokenizerConfig.load(tmp_path) == TokenizerConfig()
    said = {"tokenizer_class": "GemmaTokenizer", "pad_token": {"content": "<p>"}, "unk_token": None}
    (tmp_path / "tokenizer_config.json").write_text(json.dumps(said))
    (tmp_path / "special_tokens_map.json").write_text('{"pad_token": "<x>", "eos_token": "<y>"}')
    config = TokenizerConfig.load(tmp_path)
    assert config.special_tokens == {"bos_token": "<bos>", "eos_token": "<y>", "pad_token": "<p>"}
    assert config.add_bos_token is True
    (tmp_path / "special_tokens_map.json").write_text('{"pad_token": 5}')
    with pytest.raises(CheckpointError, match=r"special_tokens_map\.json cannot be read: .*pad_token"):
        TokenizerConfig.load(tmp_path)
