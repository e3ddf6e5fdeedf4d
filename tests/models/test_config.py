"""config.json of the family, in both layouts, and every way in which one can be wrong."""

from __future__ import annotations

import copy
import json
from pathlib import Path
from typing import Any

import pytest

from onechip.errors import CheckpointError
from onechip.models.architecture import ModelConfig, Rope
from onechip.models.config import parse_config, read_config

KINDS = {"s": "sliding_attention", "f": "full_attention"}


def text_config(pattern: str, **fields: Any) -> dict[str, Any]:
    """A text config in the published layout; `pattern` has an "s" or "f" for each layer."""
    return {
        "model_type": "gemma4_text",
        "attention_bias": False,
        "attention_k_eq_v": False,
        "bos_token_id": 2,
        "enable_moe_block": False,
        "eos_token_id": 1,
        "final_logit_softcapping": 30.0,
        "global_head_dim": 512,
        "head_dim": 256,
        "hidden_activation": "gelu_pytorch_tanh",
        "layer_types": [KINDS[kind] for kind in pattern],
        "max_position_embeddings": 131072,
        "num_global_key_value_heads": None,
        "num_hidden_layers": len(pattern),
        "num_kv_shared_layers": 0,
        "pad_token_id": 0,
        "rms_norm_eps": 1e-6,
        "rope_parameters": {
            "full_attention": {"rope_type": "proportional", "rope_theta": 1e6, "partial_rotary_factor": 0.25},
            "sliding_attention": {"rope_type": "default", "rope_theta": 1e4},
        },
        "sliding_window": 512,
        "use_bidirectional_attention": None,
        "use_double_wide_mlp": False,
        "vocab_size": 262144,
        "vocab_size_per_layer_input": 262144,
        **fields,
    }


def nested(text: dict[str, Any], model_type: str = "gemma4") -> dict[str, Any]:
    return {
        "model_type": model_type,
        "architectures": ["Gemma4ForConditionalGeneration"],
        "eos_token_id": [1, 106],
        "tie_word_embeddings": True,
        "text_config": text,
        "vision_config": {"model_type": "gemma4_vision"},
        "audio_config": None,
    }


def e2b() -> dict[str, Any]:
    return nested(
        text_config(
            "ssssf" * 7,
            hidden_size=1536,
            hidden_size_per_layer_input=256,
            intermediate_size=6144,
            num_attention_heads=8,
            num_key_value_heads=1,
            num_kv_shared_layers=20,
            use_double_wide_mlp=True,
        )
    )


def k_eq_v(
    hidden: int, layers: int, heads: int, kv: int, kv_full: int | None, **fields: Any
) -> dict[str, Any]:
    return text_config(
        "sssssf" * (layers // 6),
        attention_k_eq_v=True,
        hidden_size=hidden,
        intermediate_size=4 * hidden,
        num_attention_heads=heads,
        num_key_value_heads=kv,
        num_global_key_value_heads=kv_full,
        sliding_window=1024,
        **fields,
    )


def test_published_e2b() -> None:
    config = parse_config(e2b())
    assert (config.vocab, config.hidden, config.sliding_window) == (262144, 1536, 512)
    assert (config.ple_dim, config.ple_vocab, config.max_position) == (256, 262144, 131072)
    assert (config.softcap, config.norm_eps, config.tied) == (30.0, 1e-6, True)
    assert (config.rope_sliding, config.rope_full) == (Rope(1e4), Rope(1e6, 0.25))
    assert (config.bos_id, config.pad_id, config.eos_ids) == (2, 0, (1, 106))
    assert len(config.layers) == 35
    assert [layer.index for layer in config.layers if layer.kind == "full"] == [4, 9, 14, 19, 24, 29, 34]
    assert [layer.index for layer in config.own_layers] == list(range(15)) == list(range(config.first_shared))
    for layer in config.layers:
        full, shared = layer.kind == "full", layer.index >= 15
        assert layer.kv_source == ((14 if full else 13) if shared else layer.index)
        assert layer.intermediate == (12288 if shared else 6144)
        assert layer.head_dim == (512 if full else 256)
        assert (layer.heads, layer.kv_heads, layer.k_eq_v) == (8, 1, False)


def test_e4b_shares_without_double_width() -> None:
    config = parse_config(
        nested(
            text_config(
                "sssssf" * 7,
                hidden_size=2560,
                hidden_size_per_layer_input=256,
                intermediate_size=10240,
                num_attention_heads=8,
                num_key_value_heads=2,
                num_kv_shared_layers=18,
            )
        )
    )
    assert len(config.own_layers) == 24
    assert {layer.intermediate for layer in config.layers} == {10240}
    assert {layer.kv_heads for layer in config.layers} == {2}
    assert {layer.kv_source for layer in config.layers[24:]} == {22, 23}


def test_12b_has_k_as_v_on_full_layers_and_no_ple() -> None:
    config = parse_config(nested(k_eq_v(3840, 48, 16, 8, 1), "gemma4_unified"))
    assert (config.ple_dim, config.ple_vocab) == (0, 0)
    assert config.first_shared == 48
    for layer in config.layers:
        full = layer.kind == "full"
        assert (layer.kv_heads, layer.k_eq_v) == ((1, True) if full else (8, False))


def test_null_global_key_value_heads_means_num_key_value_heads() -> None:
    config = parse_config(k_eq_v(5376, 60, 32, 16, None, hidden_size_per_layer_input=0))
    assert {layer.kv_heads for layer in config.layers} == {16}


def test_global_key_value_heads_matter_only_with_k_eq_v() -> None:
    raw = k_eq_v(5376, 60, 32, 16, 4, hidden_size_per_layer_input=0) | {"attention_k_eq_v": False}
    assert {(layer.kv_heads, layer.k_eq_v) for layer in parse_config(raw).layers} == {(16, False)}


@pytest.mark.parametrize("digits", [1, 2])
def test_per_layer_config_says_the_same_as_global_head_dim(digits: int) -> None:
    published = k_eq_v(3840, 48, 16, 8, 1, hidden_size_per_layer_input=0)
    saved = {key: value for key, value in published.items() if "global" not in key}
    saved["per_layer_config"] = {
        str(i).zfill(digits): {"head_dim": 512, "num_key_value_heads": 1} for i in range(5, 48, 6)
    }
    assert parse_config(saved) == parse_config(published)


def test_per_layer_config_may_name_every_layer() -> None:
    published = k_eq_v(3840, 12, 16, 8, 1, hidden_size_per_layer_input=0)
    hidden_from_top = ("head_dim", "global_head_dim", "num_key_value_heads", "num_global_key_value_heads")
    saved = {key: value for key, value in published.items() if key not in hidden_from_top}
    saved["per_layer_config"] = {
        str(i): {"head_dim": 512 if i % 6 == 5 else 256, "num_key_value_heads": 1 if i % 6 == 5 else 8}
        for i in range(12)
    }
    assert parse_config(saved) == parse_config(published)


def test_text_part_alone_is_the_same_model() -> None:
    raw = e2b()
    flat, whole = parse_config(raw["text_config"]), parse_config(raw)
    assert flat.layers == whole.layers
    assert (flat.model_type, flat.eos_ids) == ("gemma4_text", (1,))


def test_optional_fields_have_their_defaults() -> None:
    raw = copy.deepcopy(e2b()["text_config"])
    optional = ["final_logit_softcapping", "bos_token_id", "pad_token_id", "num_kv_shared_layers"]
    for name in [*optional, "use_double_wide_mlp", "attention_k_eq_v", "enable_moe_block", "attention_bias"]:
        del raw[name]
    config = parse_config(raw)
    assert (config.softcap, config.bos_id, config.pad_id, config.tied) == (None, 2, 0, True)
    assert config.own_layers == config.layers


TEXT_ERRORS = [
    ({"enable_moe_block": True}, r"enable_moe_block is true: mixture-of-experts models \(26B-A4B\)"),
    ({"attention_bias": True}, "attention_bias is true"),
    (
        {"use_bidirectional_attention": "all"},
        'use_bidirectional_attention is "all": it must be null or "vision"',
    ),
    ({"hidden_activation": "silu"}, 'hidden_activation is "silu": it must be "gelu_pytorch_tanh"'),
    ({"hidden_size": None}, "hidden_size is missing: it must be a whole number of at least 1"),
    ({"hidden_size": "1536"}, 'hidden_size is "1536": it must be a whole number'),
    ({"vocab_size": True}, "vocab_size is true: it must be a whole number"),
    ({"num_hidden_layers": 34}, "layer_types is .*: it must be a list of 34 names"),
    ({"layer_types": None}, "layer_types is missing: it must be a list of 35 names"),
    (
        {"layer_types": ["linear_attention"] * 35},
        r'layer_types\[0\] is "linear_attention": it must be one of',
    ),
    (
        {"layer_types": ["full_attention"] * 34 + ["sliding_attention"]},
        "the last layer must be full_attention",
    ),
    ({"layer_types": ["sliding_attention"] * 34 + ["full_attention"]}, r"layer 34 \(full\) shares K and V"),
    ({"num_kv_shared_layers": 35}, "num_kv_shared_layers is 35: num_hidden_layers, 35, must be more"),
    ({"num_key_value_heads": 3}, "layer 0 has 8 heads and 3 key-value heads"),
    ({"head_dim": 255}, "layer 0 has head_dim 255"),
    ({"global_head_dim": None}, "global_head_dim is missing"),
    ({"rms_norm_eps": 0}, "rms_norm_eps is 0: it must be a number above 0"),
    ({"final_logit_softcapping": -1}, "final_logit_softcapping is -1: it must be a number above 0"),
    ({"use_double_wide_mlp": "yes"}, 'use_double_wide_mlp is "yes": it must be true or false'),
    ({"hidden_size_per_layer_input": None}, "hidden_size_per_layer_input is missing"),
    ({"vocab_size_per_layer_input": 1000}, "vocab_size_per_layer_input is 1000: .* at least 262144"),
    ({"rope_parameters": None}, "rope_parameters is missing: it must be an object"),
    (
        {"per_layer_config": {"35": {"head_dim": 512}}},
        'per_layer_config has the key "35": keys are layers, 0 to 34',
    ),
    ({"per_layer_config": {"full": {"head_dim": 512}}}, 'per_layer_config has the key "full"'),
    ({"per_layer_config": {"4": {"skip": ["mlp"]}}}, "per_layer_config.4.skip is not served"),
]


@pytest.mark.parametrize(("change", "message"), TEXT_ERRORS)
def test_text_config_errors_name_the_field(change: dict[str, Any], message: str) -> None:
    raw = e2b()
    raw["text_config"] |= change
    with pytest.raises(CheckpointError, match=message):
        parse_config(raw)


@pytest.mark.parametrize(
    ("kind", "change", "message"),
    [
        ("full_attention", {"rope_type": "yarn"}, 'rope_parameters.full_attention.rope_type is "yarn"'),
        (
            "full_attention",
            {"partial_rotary_factor": 1.5},
            "partial_rotary_factor is 1.5: it must be at most 1",
        ),
        ("full_attention", {"partial_rotary_factor": None}, "partial_rotary_factor is missing"),
        ("sliding_attention", {"rope_theta": 0}, "rope_parameters.sliding_attention.rope_theta is 0"),
        ("sliding_attention", {"factor": 8.0}, "stretched RoPE is not served"),
    ],
)
def test_rope_errors_name_the_field(kind: str, change: dict[str, Any], message: str) -> None:
    raw = e2b()
    raw["text_config"]["rope_parameters"][kind] |= change
    with pytest.raises(CheckpointError, match=message):
        parse_config(raw)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            {"model_type": "qwen3"},
            r'model_type is "qwen3": onechip serves Gemma 4 \(gemma4, gemma4_text, .*\), '
            r"Gemma 3 text \(gemma3, gemma3_text\) and Llama \(llama, mistral\)",
        ),
        ({"model_type": None}, "model_type is null"),
        ({"text_config": []}, r"text_config is \[\]: it must be an object"),
        ({"eos_token_id": "1"}, 'eos_token_id is "1": it must be a token id'),
        ({"eos_token_id": []}, "eos_token_id is"),
        ({"tie_word_embeddings": 1}, "tie_word_embeddings is 1"),
    ],
)
def test_top_level_errors_name_the_field(change: dict[str, Any], message: str) -> None:
    with pytest.raises(CheckpointError, match=message):
        parse_config(e2b() | change)


def test_read_config_is_parse_config_of_the_file(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(json.dumps(e2b()))
    config = read_config(tmp_path)
    assert isinstance(config, ModelConfig)
    assert config == parse_config(e2b())


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (None, "config.json is missing: a checkpoint folder has"),
        (b"{", "config.json cannot be read as JSON"),
        (b"\xff", "config.json cannot be read as JSON"),
        (b"[1]", r"config.json holds \[1\], not a JSON object"),
        (b'{"model_type": "qwen3"}', 'config.json: model_type is "qwen3"'),
    ],
)
def test_read_config_names_the_file(tmp_path: Path, content: bytes | None, message: str) -> None:
    if content is not None:
        (tmp_path / "config.json").write_bytes(content)
    with pytest.raises(CheckpointError, match=message) as caught:
        read_config(tmp_path)
    assert str(tmp_path) in caught.value.message


def test_read_config_of_something_else_than_a_folder(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match="nowhere is not a folder"):
        read_config(tmp_path / "nowhere")
