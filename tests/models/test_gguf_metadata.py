"""Metadata of each architecture, against the config.json that says the same."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from onechip.errors import CheckpointError
from onechip.models.config import parse_config
from onechip.models.families.fields import Fields
from onechip.models.families.rope import scaled_rope
from onechip.models.gguf.file import GgufFile
from onechip.models.gguf.metadata import Metadata, config_json, generation_json
from onechip.models.gguf.ropes import llama3_scaling, turning_fraction
from tests.models.gguf_files import GEMMA4, KEYS, close, config, write, writer


def read(path: Path) -> dict[str, Any]:
    return config_json(Metadata.read([GgufFile(path)]))


@pytest.mark.parametrize("architecture", KEYS)
def test_a_file_says_what_its_config_says(tmp_path: Path, architecture: str) -> None:
    raw = json.loads(json.dumps(read(write(tmp_path / "x.gguf", architecture))))
    assert parse_config(raw) == config(architecture, bos_token_id=2, pad_token_id=0)


def test_an_untied_head(tmp_path: Path) -> None:
    path = write(tmp_path / "x.gguf", "llama", extra={"output.weight": np.ones((264, 256), np.float32)})
    assert not parse_config(read(path)).tied


def test_a_26b_is_refused_for_its_experts(tmp_path: Path) -> None:
    path = write(tmp_path / "x.gguf", "gemma4", keys={"expert_count": 128})
    with pytest.raises(CheckpointError, match="enable_moe_block is true"):
        parse_config(read(path))


def test_mixtral_is_refused_by_name(tmp_path: Path) -> None:
    path = write(tmp_path / "x.gguf", "llama", keys={"expert_count": 8})
    with pytest.raises(CheckpointError, match="mixtral"):
        parse_config(read(path))


def test_full_layers_without_v_take_the_keys(tmp_path: Path) -> None:
    """As in the 12B and 31B, where they also have their own number of key-value heads."""
    keys = {"attention.shared_kv_layers": 0, "attention.head_count_kv": [2, 1, 2, 1]}
    skip = ("blk.1.attn_v.weight", "blk.3.attn_v.weight")
    layers = parse_config(read(write(tmp_path / "x.gguf", "gemma4", keys=keys, skip=skip))).layers
    assert [(layer.k_eq_v, layer.kv_heads, layer.head_dim) for layer in layers[:2]] == [
        (False, 2, 32),
        (True, 1, 64),
    ]


def test_gemma_3_27b_divides_by_its_heads(tmp_path: Path) -> None:
    path = write(tmp_path / "x.gguf", "gemma3", keys={"block_count": 62})
    assert parse_config(read(path)).attention_scale == pytest.approx((256 / 4) ** -0.5)
    path = write(tmp_path / "x.gguf", "gemma3", keys={"block_count": 62, "embedding_length": 672})
    assert parse_config(read(path)).attention_scale == pytest.approx(168**-0.5)


def test_gemma_3_without_a_window_has_full_layers_only(tmp_path: Path) -> None:
    file = writer(
        tmp_path / "x.gguf", "gemma3", {k: v for k, v in KEYS["gemma3"].items() if "sliding" not in k}
    )
    file.add_uint32("tokenizer.ggml.eos_token_id", 1)
    file.add_tensor("token_embd.weight", np.ones((8, 256), np.float32))
    close(file)
    assert {layer.kind for layer in parse_config(read(tmp_path / "x.gguf")).layers} == {"full"}


@pytest.mark.parametrize("count", [0, 2**31])
def test_layers_by_the_billion(tmp_path: Path, count: int) -> None:
    path = write(tmp_path / "x.gguf", "llama", keys={"block_count": count})
    with pytest.raises(CheckpointError, match=rf"x\.gguf has {count} layers: the file is damaged"):
        read(path)


def test_mistrals_window(tmp_path: Path) -> None:
    model = parse_config(read(write(tmp_path / "x.gguf", "llama", keys={"attention.sliding_window": 32})))
    assert (model.model_type, model.sliding_window) == ("mistral", 32)


@pytest.mark.parametrize("kind", ["yarn", "longrope"])
def test_scaling_that_is_not_served_is_refused_by_name(tmp_path: Path, kind: str) -> None:
    path = write(tmp_path / "x.gguf", "llama", keys={"rope.scaling.type": kind, "rope.scaling.factor": 4.0})
    with pytest.raises(CheckpointError, match=kind):
        parse_config(read(path))


@pytest.mark.parametrize(
    "numbers",
    [
        {
            "factor": 32.0,
            "low_freq_factor": 1.0,
            "high_freq_factor": 4.0,
            "original_max_position_embeddings": 8192,
        },
        {
            "factor": 4.0,
            "low_freq_factor": 2.0,
            "high_freq_factor": 7.0,
            "original_max_position_embeddings": 600,
        },
    ],
)
def test_llama_3s_scaling_is_read_back_from_the_tensor(tmp_path: Path, numbers: dict[str, Any]) -> None:
    """Published numbers are found as they are, others up to what makes no difference."""
    expected = scaled_rope(Fields({"rope_type": "llama3"} | numbers), 5e5, 64, 512)
    tensor = np.array(expected.divisors, np.float32)
    path = write(tmp_path / "x.gguf", "llama", extra={"rope_freqs.weight": tensor})
    found = parse_config(read(path)).rope_full
    assert replace(found, divisors=()) == replace(expected, divisors=())
    np.testing.assert_allclose(found.divisors, expected.divisors, rtol=1e-4)


def test_ropes_that_are_no_scaling_of_a_known_kind() -> None:
    path = Path("x.gguf")
    with pytest.raises(CheckpointError, match="no scaling of Llama 3's kind"):
        llama3_scaling([1.0, 3.0, 2.0, 8.0], 5e5, path)
    assert llama3_scaling([1.0, 1.0], 5e5, path) == {"rope_type": "default"}
    assert turning_fraction([1.0, 1e30, 1e30, 1e30], path) == 0.25
    for divisors in ([1.0, 2.0], [1e30, 1.0], [1e30, 1e30]):
        with pytest.raises(CheckpointError, match=r"rope_freqs\.weight in x\.gguf is not served"):
            turning_fraction(divisors, path)


@pytest.mark.parametrize(
    ("architecture", "keys", "message"),
    [
        (
            "qwen3",
            {},
            r"x\.gguf has the architecture qwen3: onechip serves gemma4, gemma3, llama from GGUF files",
        ),
        ("clip", {}, "is a projector for images or sound: give the model's own .gguf file"),
        ("gemma4", {"general.type": "mmproj"}, "is a projector for images or sound"),
        ("llama", {"general.type": "adapter"}, "is an adapter, not a model"),
    ],
)
def test_files_that_are_no_served_model(
    tmp_path: Path, architecture: str, keys: dict[str, Any], message: str
) -> None:
    file = writer(tmp_path / "x.gguf", architecture, keys)
    close(file)
    with pytest.raises(CheckpointError, match=message):
        Metadata.read([GgufFile(tmp_path / "x.gguf")])


@pytest.mark.parametrize(
    "key", ["block_count", "attention.key_length", "attention.sliding_window", "context_length"]
)
def test_a_key_that_is_missing_or_of_another_type_is_named(tmp_path: Path, key: str) -> None:
    for state, keys in (
        ("no", {k: v for k, v in GEMMA4.items() if k != key}),
        ("an unusable", GEMMA4 | {key: "x"}),
    ):
        file = writer(tmp_path / "x.gguf", "gemma4", keys)
        for tensor in ("token_embd.weight", "per_layer_token_embd.weight"):
            file.add_tensor(tensor, np.ones((8, 256), np.float32))
        close(file)
        with pytest.raises(CheckpointError, match=rf"x\.gguf has {state} gemma4\.{key}"):
            read(tmp_path / "x.gguf")


def test_sampling_and_stops(tmp_path: Path) -> None:
    keys = {
        "general.sampling.temp": 0.5,
        "general.sampling.top_k": 64,
        "tokenizer.ggml.eot_token_id": 261,
    }
    found = generation_json(Metadata.read([GgufFile(write(tmp_path / "x.gguf", "gemma3", keys=keys))]))
    assert found == {
        "temperature": 0.5,
        "top_k": 64,
        "do_sample": True,
        "bos_token_id": 2,
        "pad_token_id": 0,
        "eos_token_id": [1, 261],
    }
