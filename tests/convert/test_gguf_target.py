"""What stands in a GGUF file that we write, as the gguf package and our own reader read it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import pytest

from onechip.convert import q6_k
from onechip.convert.convert import convert
from onechip.convert.gguf_metadata import model_metadata, rope_freqs
from onechip.convert.gguf_tokenizer import tokenizer_metadata
from onechip.convert.gguf_writer import GgufInfo, Value, write_gguf
from onechip.errors import CheckpointError
from onechip.ladder.checkpoint import is_noise
from onechip.models.config import parse_config, read_config
from onechip.models.gguf.file import GgufFile
from onechip.models.source import RANDOM_WEIGHTS, resolve_model
from onechip.models.tokenizer import Tokenizer
from tests.convert.made import FAMILIES, GEMMA3, GEMMA4, LLAMA, TEMPLATE, make
from tests.models import small_tokenizers

SHAPES_OF_E2B = {
    "gemma4.attention.head_count": 4,
    "gemma4.attention.head_count_kv": 1,
    "gemma4.attention.key_length": 64,
    "gemma4.attention.key_length_swa": 32,
    "gemma4.attention.value_length": 64,
    "gemma4.attention.value_length_swa": 32,
    "gemma4.attention.layer_norm_rms_epsilon": float(np.float32(1e-6)),
    "gemma4.attention.shared_kv_layers": 2,
    "gemma4.attention.sliding_window": 64,
    "gemma4.attention.sliding_window_pattern": [True, False, True, False],
    "gemma4.block_count": 4,
    "gemma4.context_length": 4096,
    "gemma4.embedding_length": 128,
    "gemma4.embedding_length_per_layer_input": 32,
    "gemma4.feed_forward_length": [256, 256, 512, 512],
    "gemma4.final_logit_softcapping": 30.0,
    "gemma4.rope.dimension_count": 64,
    "gemma4.rope.dimension_count_swa": 32,
    "gemma4.rope.freq_base": 1e6,
    "gemma4.rope.freq_base_swa": 1e4,
    "gemma4.vocab_size": 512,
}
"""The keys of llama.cpp's own files (models/ggml-vocab-gemma-4.gguf in its source), for GEMMA4."""


@pytest.fixture(autouse=True)
def own_cache(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path_factory.mktemp("cache")))


def contents(path: Path) -> dict[str, Any]:
    return {key: field.contents() for key, field in gguf.GGUFReader(path).fields.items()}


def test_the_gguf_package_reads_what_we_write(tmp_path: Path) -> None:
    path = tmp_path / "a.gguf"
    metadata = {
        "general.architecture": Value("STRING", "gemma4"),
        "text": Value("STRING", "漢字 🌰\n"),
        "whole": Value("U32", 7),
        "number": Value("F32", 0.5),
        "flags": Value("BOOL", [True, False], is_list=True),
        "words": Value("STRING", ["", "é"], is_list=True),
        "counts": Value("I32", [-1, 2], is_list=True),
    }
    rng = np.random.default_rng(0)
    first, second = rng.standard_normal(5, np.float32), rng.standard_normal((3, 7)).astype(np.float16)
    infos = {"one": GgufInfo("F32", (5,)), "two": GgufInfo("F16", (3, 7))}
    write_gguf(path, metadata, infos, [[first[:2], first[2:]], [second]])
    found = contents(path)
    assert {key: found[key] for key in metadata} == {key: value.content for key, value in metadata.items()}
    read = {tensor.name: tensor for tensor in gguf.GGUFReader(path).tensors}
    np.testing.assert_array_equal(read["one"].data, first)
    np.testing.assert_array_equal(read["two"].data, second)
    assert read["two"].shape.tolist() == [7, 3]
    assert [tensor.data_offset % 32 for tensor in read.values()] == [0, 0]


def test_pieces_that_do_not_add_up_leave_no_file(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="the pieces of one have 8 bytes, its shape and type need 12"):
        write_gguf(tmp_path / "a.gguf", {}, {"one": GgufInfo("F32", (3,))}, [[np.zeros(2, np.float32)]])
    assert not list(tmp_path.iterdir())


def test_a_folder_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match="cannot be written: No such file"):
        write_gguf(tmp_path / "no" / "a.gguf", {}, {}, [])


def test_gemma4_has_every_key_that_llama_cpp_reads(tmp_path: Path) -> None:
    convert(make(tmp_path / "acorny", GEMMA4), tmp_path / "a.gguf", "q4_0")
    found = contents(tmp_path / "a.gguf")
    assert {key: value for key, value in found.items() if key.startswith("gemma4.")} == SHAPES_OF_E2B
    assert found["general.architecture"] == "gemma4"
    assert found["general.name"] == "acorny"
    assert found["general.file_type"] == gguf.LlamaFileType.MOSTLY_Q4_0
    types = {tensor.name: tensor.tensor_type.name for tensor in gguf.GGUFReader(tmp_path / "a.gguf").tensors}
    assert types["blk.0.attn_q.weight"] == "Q4_0"
    assert types["token_embd.weight"] == types["per_layer_token_embd.weight"] == "BF16"
    assert types["blk.0.attn_norm.weight"] == types["blk.3.layer_output_scale.weight"] == "F32"
    assert "blk.2.attn_k.weight" not in types  # of a layer that shares another's


def test_a_model_is_called_by_its_name(tmp_path: Path) -> None:
    snapshot = tmp_path / "models--google--gemma-4-tiny" / "snapshots" / "0123abcd"
    snapshot.mkdir(parents=True)
    make(snapshot, GEMMA4)
    convert(snapshot, tmp_path / "a.gguf", "q4_0")
    assert GgufFile(tmp_path / "a.gguf").metadata["general.name"] == "gemma-4-tiny"
    convert(resolve_model(str(tmp_path / "a.gguf")), tmp_path / "b.gguf", "gguf-f32")
    assert GgufFile(tmp_path / "b.gguf").metadata["general.name"] == "a"


def test_pairs_that_do_not_turn() -> None:
    freqs = rope_freqs(parse_config(GEMMA4))
    assert freqs is not None
    assert freqs.tolist() == [1.0] * 8 + [np.float32(1e30)] * 24
    assert rope_freqs(parse_config(GEMMA3)) is None


def test_stretched_ropes() -> None:
    keys = model_metadata(parse_config(GEMMA3))
    assert keys["gemma3.rope.scaling.type"].content == "linear"
    assert keys["gemma3.rope.scaling.factor"].content == 8.0
    assert "llama.rope.scaling.type" not in model_metadata(parse_config(LLAMA))
    freqs = rope_freqs(parse_config(LLAMA))
    assert freqs is not None
    assert (freqs[0], freqs[-1]) == (1.0, 8.0)


@pytest.mark.parametrize("family", FAMILIES)
def test_the_config_comes_back(family: str, tmp_path: Path) -> None:
    first = make(tmp_path / "first", FAMILIES[family])
    convert(first, tmp_path / "a.gguf", "q4_0")
    ours, theirs = read_config(first), read_config(resolve_model(str(tmp_path / "a.gguf")))
    for name in ("hidden", "layers", "vocab", "sliding_window", "ple_dim", "softcap", "tied", "norm_eps"):
        assert getattr(ours, name) == getattr(theirs, name)
    for name in ("rope_sliding", "rope_full"):
        mine, found = getattr(ours, name), getattr(theirs, name)
        assert (mine.theta, mine.fraction) == (found.theta, found.fraction)
        np.testing.assert_allclose(mine.divisors, found.divisors, rtol=1e-6)


SETTINGS: list[dict[str, Any]] = [
    {"do_sample": True, "temperature": 1.5, "top_k": 64, "top_p": 0.95, "eos_token_id": [1, 106, 50]},
    {"do_sample": False, "eos_token_id": [106]},
    {"min_p": 0.25, "do_sample": True, "eos_token_id": [1, 106]},
]


@pytest.mark.parametrize("settings", SETTINGS)
def test_generation_settings_come_back(settings: dict[str, Any], tmp_path: Path) -> None:
    first = make(tmp_path / "first", GEMMA4 | {"eos_token_id": [1, 106, 7]})
    (first / "generation_config.json").write_text(json.dumps(settings))
    convert(first, tmp_path / "a.gguf", "q4_0")
    convert(tmp_path / "a.gguf", tmp_path / "back", "bf16")
    found = json.loads((tmp_path / "back" / "generation_config.json").read_text())
    assert found == settings | {"bos_token_id": 2, "pad_token_id": 0}
    assert read_config(tmp_path / "back").eos_ids == (1, 106, 7)


def test_llama_cpp_is_told_how_to_sample(tmp_path: Path) -> None:
    """Under the format's own keys, in the types that llama.cpp's converter writes."""
    first = make(tmp_path / "first", GEMMA4)
    for settings, temperature in zip(SETTINGS, (1.5, 0.0, None), strict=True):
        (first / "generation_config.json").write_text(json.dumps(settings))
        convert(first, tmp_path / "a.gguf", "q4_0")
        found = contents(tmp_path / "a.gguf")
        assert found.get("general.sampling.temp") == temperature
        assert found.get("general.sampling.top_k") == settings.get("top_k")
        (tmp_path / "a.gguf").unlink()


def test_random_weights_stay_marked(tmp_path: Path) -> None:
    first = make(tmp_path / "first", LLAMA | {RANDOM_WEIGHTS: True})
    convert(first, tmp_path / "a.gguf", "q4_0")
    assert is_noise(resolve_model(str(tmp_path / "a.gguf")))


@pytest.mark.parametrize(
    ("raw", "name"),
    [
        (GEMMA4, "Gemma4ForCausalLM"),
        (GEMMA3, "Gemma3ForCausalLM"),
        (LLAMA, "LlamaForCausalLM"),
        (LLAMA | {"model_type": "mistral", "sliding_window": 16}, "MistralForCausalLM"),
    ],
)
def test_a_folder_made_of_a_file_names_the_model_that_writes_text(
    raw: dict[str, Any], name: str, tmp_path: Path
) -> None:
    """vLLM takes a config without it for an embedding model, and one without a dtype for float32."""
    convert(make(tmp_path / "first", raw), tmp_path / "a.gguf", "q4_0")
    convert(tmp_path / "a.gguf", tmp_path / "back", "bf16")
    config = json.loads((tmp_path / "back" / "config.json").read_text())
    assert (config["architectures"], config["dtype"]) == ([name], "bfloat16")


TEXTS = [
    "Hello world, 1234567 things!",
    "Où est la gare ? 漢字 🌰🌰 naïve",
    "  two  blanks \n\n\n\tand  lines\r\n",
    "<bos><|turn>user\nhi<turn|>",
    "it's WE'LL don't",
]


def _llama3(folder: Path) -> Path:
    tokenizer = small_tokenizers.byte_level(small_tokenizers.LLAMA3, "<|begin_of_text|>")
    return small_tokenizers.save(
        tokenizer, folder, bos_token="<|begin_of_text|>", eos_token="<|end_of_text|>"
    )


def _llama2(folder: Path) -> Path:
    tokens = {"bos_token": "<s>", "eos_token": "</s>"}
    return small_tokenizers.save(
        small_tokenizers.sentence_piece(), folder, tokenizer_class="LlamaTokenizer", **tokens
    )


@pytest.mark.parametrize(("kind", "build"), [("gemma4", None), ("gpt2", _llama3), ("llama", _llama2)])
def test_texts_become_the_same_tokens_after_there_and_back(kind: str, build: Any, tmp_path: Path) -> None:
    first = make(tmp_path / "first", GEMMA4 if build is None else LLAMA)
    if build is not None:
        build(first)
        (first / "generation_config.json").unlink()
    convert(first, tmp_path / "a.gguf", "q4_0")
    assert GgufFile(tmp_path / "a.gguf").metadata["tokenizer.ggml.model"] == kind
    there = Tokenizer.load(first, [])
    back = Tokenizer.load(resolve_model(str(tmp_path / "a.gguf")), [])
    assert back.bos_id == there.bos_id
    assert back.stop_ids >= there.stop_ids
    for text in TEXTS:
        assert back.encode(text, add_bos=True) == there.encode(text, add_bos=True)
        assert back.decode(back.encode(text)) == there.decode(there.encode(text))


def test_special_tokens_and_template(tmp_path: Path) -> None:
    first = make(tmp_path / "first", GEMMA4)
    keys = tokenizer_metadata(first, read_config(first))
    ggml = {key.removeprefix("tokenizer.ggml."): value.content for key, value in keys.items()}
    ids = {key: value for key, value in ggml.items() if key.endswith("_token_id")}
    assert ids == {
        "bos_token_id": 2,
        "eos_token_id": 1,
        "eot_token_id": 106,
        "unknown_token_id": 3,
        "padding_token_id": 0,
    }
    assert ggml["add_bos_token"] is True
    assert ggml["add_space_prefix"] is False
    types = dict(zip(ggml["tokens"], ggml["token_type"], strict=True))
    assert (types["<|turn>"], types["<|tool_call>"], types["<0x0A>"], types["a"]) == (3, 4, 6, 1)
    assert keys["tokenizer.chat_template"].content == TEMPLATE


def test_ids_that_the_tokenizer_leaves_out_are_filled(tmp_path: Path) -> None:
    first = make(tmp_path / "first", LLAMA)
    _llama2(first)
    keys = tokenizer_metadata(first, read_config(first))
    assert len(keys["tokenizer.ggml.tokens"].content) == 512
    assert keys["tokenizer.ggml.tokens"].content[-1] == "[PAD511]"
    assert keys["tokenizer.ggml.token_type"].content[-1] == 5


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"model": {"type": "Unigram", "vocab": []}}, "a model of type Unigram"),
        ({"pre_tokenizer": {"type": "Whitespace"}}, "the pre_tokenizer Whitespace"),
    ],
)
def test_a_tokenizer_that_gguf_does_not_hold_is_refused(
    change: dict[str, Any], message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = make(tmp_path / "first", LLAMA)
    _llama3(first)
    path = first / "tokenizer.json"
    config = read_config(first)
    loaded = Tokenizer.load(first, [])
    monkeypatch.setattr(Tokenizer, "load", lambda folder, ids: loaded)  # which refuses some of these itself
    raw = json.loads(path.read_text())
    path.write_text(
        json.dumps(raw | change if "model" not in change else raw | {"model": raw["model"] | change["model"]})
    )
    with pytest.raises(CheckpointError, match=message):
        tokenizer_metadata(first, config)


def test_more_tokens_than_rows_are_refused(tmp_path: Path) -> None:
    first = make(tmp_path / "first", GEMMA4)
    config = parse_config(GEMMA4 | {"vocab_size": 500, "vocab_size_per_layer_input": 500})
    with pytest.raises(CheckpointError, match=r"has the token id 511, config\.json only 500 tokens"):
        tokenizer_metadata(first, config)


def test_q6_k_is_near_what_it_rounds() -> None:
    rng = np.random.default_rng(0)
    weight = rng.standard_normal((20, 512)).astype(np.float32)
    weight[1] = 0
    weight[2, :256] = 1e-7
    weight[3, :16] *= 100
    read = gguf.dequantize(q6_k.quantize(weight), gguf.GGMLQuantizationType.Q6_K)
    assert np.sqrt(np.mean((read - weight)[4:] ** 2) / np.mean(weight[4:] ** 2)) < 0.02
    step = np.abs(weight).reshape(20, -1, 16).max(axis=2).repeat(16, axis=1) / 32
    coarse = np.abs(weight).reshape(20, -1, 256).max(axis=2).repeat(256, axis=1) / 128
    assert (np.abs(read - weight) <= step + coarse + 1e-7).all()
    assert not read[1].any()
    assert not read[2, :256].any()  # float16 has no unit that small


def test_q6_k_tables(tmp_path: Path) -> None:
    wide = GEMMA4 | {"hidden_size": 256, "hidden_size_per_layer_input": 64}
    summary = convert(make(tmp_path / "wide", wide), tmp_path / "a.gguf", "q4_0", tables="q6_k")
    types = {tensor.name: tensor.tensor_type.name for tensor in gguf.GGUFReader(tmp_path / "a.gguf").tensors}
    assert types["token_embd.weight"] == types["per_layer_token_embd.weight"] == "Q6_K"
    assert summary.notes.rounded == {"Q6_K": 2 * 512 * 256}
    with pytest.raises(
        CheckpointError, match=r"embed_tokens\.weight has rows of 128: Q6_K needs multiples of 256"
    ):
        convert(make(tmp_path / "narrow", GEMMA4), tmp_path / "b.gguf", "q4_0", tables="q6_k")


def test_a_q6_k_file_is_read_again(tmp_path: Path) -> None:
    wide = GEMMA4 | {"hidden_size": 256, "hidden_size_per_layer_input": 64}
    convert(make(tmp_path / "wide", wide), tmp_path / "a.gguf", "q4_0", tables="q6_k")
    summary = convert(tmp_path / "a.gguf", tmp_path / "back", "w4a16")
    assert summary.notes.rounded["BF16"] > 0  # the tables, which bf16 does not hold
    assert not summary.notes.kept
