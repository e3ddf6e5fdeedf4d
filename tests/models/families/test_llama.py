"""config.json of Llama-architecture models, in the spellings of several years, and what is refused of it."""

from __future__ import annotations

from typing import Any

import pytest

from onechip.errors import CheckpointError
from onechip.models.architecture import Rope
from onechip.models.config import parse_config

Raw = dict[str, Any]
LLAMA3 = {
    "factor": 32.0,
    "high_freq_factor": 4.0,
    "low_freq_factor": 1.0,
    "original_max_position_embeddings": 8192,
    "rope_type": "llama3",
}


def one_b() -> Raw:
    """meta-llama/Llama-3.2-1B-Instruct as published, without the fields that nobody reads."""
    return {
        "architectures": ["LlamaForCausalLM"],
        "attention_bias": False,
        "bos_token_id": 128000,
        "eos_token_id": [128001, 128008, 128009],
        "head_dim": 64,
        "hidden_act": "silu",
        "hidden_size": 2048,
        "intermediate_size": 8192,
        "max_position_embeddings": 131072,
        "mlp_bias": False,
        "model_type": "llama",
        "num_attention_heads": 32,
        "num_hidden_layers": 16,
        "num_key_value_heads": 8,
        "pretraining_tp": 1,
        "rms_norm_eps": 1e-05,
        "rope_scaling": LLAMA3,
        "rope_theta": 500000.0,
        "tie_word_embeddings": True,
        "vocab_size": 128256,
    }


def test_published_1b() -> None:
    config = parse_config(one_b())
    assert (config.vocab, config.hidden, config.max_position, config.norm_eps) == (
        128256,
        2048,
        131072,
        1e-5,
    )
    assert (config.attention_scale, config.embedding_scale, config.softcap) == (1 / 8, 1.0, None)
    assert (config.tied, config.sliding_window, config.ple_dim) == (True, 0, 0)
    assert (config.bos_id, config.eos_ids) == (128000, (128001, 128008, 128009))
    assert {(layer.kind, layer.heads, layer.kv_heads) for layer in config.layers} == {("full", 32, 8)}
    assert len(config.own_layers) == 16


def test_old_configs_leave_most_to_defaults() -> None:
    """As Llama 1 and 2 have it: no head_dim, no key-value heads, no scaling, a head of its own."""
    raw = one_b() | {"pad_token_id": -1}
    for name in ("head_dim", "num_key_value_heads", "rope_scaling", "rope_theta", "tie_word_embeddings"):
        del raw[name]
    config = parse_config(raw)
    assert {(layer.kv_heads, layer.head_dim) for layer in config.layers} == {(32, 64)}
    assert (config.rope_full, config.tied, config.pad_id) == (Rope(1e4), False, 0)


def test_transformers_spelling_says_the_same() -> None:
    new = {key: value for key, value in one_b().items() if not key.startswith("rope")}
    new["rope_parameters"] = LLAMA3 | {"rope_theta": 500000.0}
    assert parse_config(new) == parse_config(one_b())


@pytest.mark.parametrize(
    ("window", "kind", "positions"),
    [({"sliding_window": None}, "full", 0), ({"sliding_window": 512}, "sliding", 512), ({}, "sliding", 4096)],
)
def test_mistral_has_its_window_in_every_layer(window: Raw, kind: str, positions: int) -> None:
    config = parse_config(one_b() | {"model_type": "mistral"} | window)
    assert {layer.kind for layer in config.layers} == {kind}
    assert config.sliding_window == positions


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"attention_bias": True}, "attention_bias is true: onechip serves models without biases only"),
        ({"mlp_bias": True}, "mlp_bias is true"),
        ({"hidden_act": "gelu"}, 'hidden_act is "gelu": it must be "silu"'),
        ({"sliding_window": 4096}, "sliding_window is 4096: it must be null"),
        ({"layer_types": ["sliding_attention"] * 16}, "layer_types is .*: it must be absent, or"),
        ({"rope_scaling": {"type": "dynamic", "factor": 2.0}}, 'rope_scaling.type is "dynamic"'),
        (
            {"rope_scaling": {"rope_type": "yarn"}},
            'rope_scaling.rope_type is "yarn": .* default, linear, llama3',
        ),
        ({"rope_scaling": LLAMA3 | {"factor": None}}, "rope_scaling.factor is missing"),
        ({"rope_scaling": LLAMA3 | {"high_freq_factor": 1.0}}, "high_freq_factor is 1: it must be above"),
        ({"rope_parameters": {"partial_rotary_factor": 0.5}}, "partial_rotary_factor is 0.5"),
        ({"head_dim": None, "num_attention_heads": 24}, "head_dim is missing, and hidden_size, 2048, is no"),
        ({"num_key_value_heads": 5}, "layer 0 has 32 heads and 5 key-value heads"),
    ],
)
def test_errors_name_the_field(change: Raw, message: str) -> None:
    with pytest.raises(CheckpointError, match=message):
        parse_config(one_b() | change)


def test_llama3_stretches_long_waves_only() -> None:
    """Short waves as they are, long ones 32 times as long, those between in order; linear alike for all."""
    divisors = parse_config(one_b()).rope_full.divisors
    assert len(divisors) == 32
    assert (divisors[0], divisors[-1]) == (1.0, 32.0)
    assert list(divisors) == sorted(divisors)
    assert len({divisor for divisor in divisors if 1 < divisor < 32}) > 2
    raw = one_b() | {"rope_scaling": {"type": "linear", "factor": 2.5}}
    assert parse_config(raw).rope_full.divisors == (2.5,) * 32
