"""Synthetic checkpoints: complete, loadable, of the published sizes, and sane in what they compute."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections import namedtuple
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from tokenizers import Tokenizer

from onechip.convert.shapes import SHAPES
from onechip.convert.synth import synthesise
from onechip.convert.synth_tokenizer import CONTROL, build_tokenizer
from onechip.errors import UsageError
from onechip.kernels.api import Int4
from onechip.models import decoder
from onechip.models.config import parse_config, read_config
from onechip.models.layout import expected_tensors
from onechip.models.weights import load_weights

FILES = {
    "chat_template.jinja",
    "config.json",
    "generation_config.json",
    "model.safetensors",
    "tokenizer.json",
    "tokenizer_config.json",
}


@pytest.fixture(scope="module", params=["bf16", "w4a16"])
def tiny(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp(request.param) / "tiny"
    synthesise(folder, "tiny", request.param)
    return folder


def test_the_folder_is_complete(tiny: Path) -> None:
    assert {path.name for path in tiny.iterdir()} == FILES
    assert sum(path.stat().st_size for path in tiny.iterdir()) < 8e6
    generation = json.loads((tiny / "generation_config.json").read_text())
    assert generation["eos_token_id"] == [1, 106, 50]
    assert (tiny / "generation_config.json").stat().st_size == 203  # as published
    raw = json.loads((tiny / "config.json").read_text())
    assert raw["global_head_dim"] == 64
    assert "per_layer_config" not in raw


def test_tiny_has_every_kind_of_layer_of_e2b() -> None:
    def kinds(shape: str) -> set[tuple[str, bool, bool]]:
        config = parse_config(SHAPES[shape])
        narrow = config.layers[0].intermediate
        return {(layer.kind, layer.owns_kv, layer.intermediate > narrow) for layer in config.layers}

    assert kinds("tiny") == kinds("e2b")


@pytest.mark.parametrize(
    ("shape", "millions"), [("e2b", 4629), ("e4b", 7463), ("gemma3-1b", 1000), ("llama3-1b", 1236)]
)
def test_published_sizes(shape: str, millions: int) -> None:
    specs = expected_tensors(parse_config(SHAPES[shape]))
    assert round(sum(int(np.prod(spec.shape)) for spec in specs) / 1e6) == millions


@pytest.mark.parametrize("shape", ["gemma3-tiny", "llama3-tiny"])
def test_other_families_compute_sane_numbers(shape: str, tmp_path: Path) -> None:
    synthesise(tmp_path / "new", shape, "w4a16")
    config = read_config(tmp_path / "new")
    tokens = np.random.default_rng(0).integers(107, config.vocab, (1, 80)).astype(np.int32)
    positions = np.arange(80, dtype=np.int32)[None]
    params = load_weights(tmp_path / "new", config)
    assert isinstance(params["layers"][0]["q"], Int4)
    run = jax.jit(lambda p: decoder.forward(config, p, tokens, positions, dtype=jnp.float32)[0])
    logits = np.asarray(run(params))
    assert 1 < logits.std() < 10
    assert len(set(logits.argmax(-1).tolist())) > 20


def test_it_loads_and_computes_sane_numbers(tiny: Path) -> None:
    config = read_config(tiny)
    params = load_weights(tiny, config)
    quantised = tiny.parent.name.startswith("w4a16")
    assert isinstance(params["layers"][0]["q"], Int4) == quantised
    assert len(np.unique(params["embed"].view(np.uint16), axis=0)) == config.vocab  # no two rows alike
    tokens = np.random.default_rng(0).integers(107, config.vocab, (1, 100)).astype(np.int32)
    positions = np.arange(100, dtype=np.int32)[None]

    @jax.jit
    def run(params: decoder.Params) -> jax.Array:
        return decoder.forward(config, params, tokens, positions, dtype=jnp.float32)[0]

    logits = np.asarray(run(jax.tree.map(jnp.asarray, params)))
    assert np.isfinite(logits).all()
    assert (logits.std(axis=1) > 2).all()
    assert (logits.std(axis=1) < 4).all()
    assert len(set(logits.argmax(axis=1).tolist())) > 50  # what follows depends on what came


def test_the_same_bytes_each_time(tiny: Path, tmp_path: Path) -> None:
    dtype = "w4a16" if tiny.parent.name.startswith("w4a16") else "bf16"
    synthesise(tmp_path, "tiny", dtype)
    for name in FILES:
        assert (tmp_path / name).read_bytes() == (tiny / name).read_bytes()


def test_tokenizer_has_gemmas_ids_and_exactly_the_vocabulary(tiny: Path) -> None:
    tokenizer = Tokenizer.from_file(str(tiny / "tokenizer.json"))
    assert tokenizer.get_vocab_size() == read_config(tiny).vocab == 2048
    assert sorted(tokenizer.get_vocab().values()) == list(range(2048))
    assert {i: tokenizer.id_to_token(i) for i in CONTROL} == CONTROL
    assert tokenizer.token_to_id("\n") == 107
    text = "<bos><|turn>user\nTell me of café 42, 世界!<turn|>\n"
    ids = tokenizer.encode(text, add_special_tokens=False).ids
    assert ids[:2] == [2, 105]
    assert 106 in ids
    assert tokenizer.decode(ids, skip_special_tokens=False) == text


@pytest.mark.parametrize(
    "field", ["normalizer", "pre_tokenizer", "decoder", "post_processor", "truncation", "padding"]
)
def test_tokenizer_is_built_as_gemmas(field: str, tiny: Path) -> None:
    """acorn's tokenizer.json has Gemma's own normalizer and decoder."""
    acorn = Path(decoder.__file__).parent / "acorn" / "tokenizer.json"
    ours, theirs = (json.loads(path.read_text()) for path in (tiny / "tokenizer.json", acorn))
    assert ours[field] == theirs[field]
    for key in ("type", "unk_token", "fuse_unk", "byte_fallback", "ignore_merges"):
        assert ours["model"][key] == theirs["model"][key]


def test_a_vocabulary_too_small_for_the_fixed_tokens() -> None:
    with pytest.raises(ValueError, match="a vocabulary of 300 is too small: 459 tokens are fixed"):
        build_tokenizer(300)


@pytest.mark.parametrize(
    ("shape", "dtype", "message"),
    [
        ("12b", "bf16", "--shape is 12b: it must be one of tiny, e2b, e4b"),
        ("tiny", "int8", "--dtype is int8: it must be one of bf16, w4a16"),
    ],
)
def test_unknown_shape_or_dtype(shape: str, dtype: str, message: str, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=message):
        synthesise(tmp_path / "new", shape, dtype)
    assert not (tmp_path / "new").exists()


def test_a_folder_in_use_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "mine.txt").write_text("keep")
    with pytest.raises(UsageError, match="is not empty"):
        synthesise(tmp_path, "tiny", "bf16")
    with pytest.raises(UsageError, match=r"mine\.txt is a file"):
        synthesise(tmp_path / "mine.txt", "tiny", "bf16")
    with pytest.raises(UsageError, match="cannot be made: Not a directory"):
        synthesise(tmp_path / "mine.txt" / "below", "tiny", "bf16")
    assert [path.name for path in tmp_path.iterdir()] == ["mine.txt"]


def test_a_disk_too_small_is_seen_before_writing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    usage = namedtuple("usage", "total used free")
    monkeypatch.setattr(shutil, "disk_usage", lambda folder: usage(100, 0, 10**9))
    with pytest.raises(UsageError, match=r"needs 9\.26 GB and its disk has 1\.00 GB free"):
        synthesise(tmp_path, "e2b", "bf16")
    assert not list(tmp_path.iterdir())


def test_command(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "onechip.cli", "synth", str(tmp_path / "new"), "--dtype", "w4a16"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "tiny in w4a16, 0.003 GB of random weights" in done.stdout
    again = subprocess.run(command, capture_output=True, text=True, check=False)
    assert again.returncode == UsageError.exit_code
    assert again.stderr.strip().endswith("new is not empty: give a new folder, or empty it first.")
    assert again.stdout == ""  # no bar for what is refused
