"""config.json of Gemma 3, as it was published and as transformers writes it, and what is refused of it."""

from __future__ import annotations

from typing import Any

import pytest

from onechip.errors import CheckpointError
from onechip.models.architecture import Rope
from onechip.models.config import parse_config

Raw = dict[str, Any]


def one_b() -> Raw:
    """google/gemma-3-1b-it as published, without the fields that nobody reads."""
    return {
        "architectures": ["Gemma3ForCausalLM"],
        "attention_bias": False,
        "attn_logit_softcapping": None,
        "bos_token_id": 2,
        "eos_token_id": [1, 106],
        "final_logit_softcapping": None,
        "head_dim": 256,
        "hidden_activation": "gelu_pytorch_tanh",
        "hidden_size": 1152,
        "intermediate_size": 6912,
        "max_position_embeddings": 32768,
        "model_type": "gemma3_text",
        "num_attention_heads": 4,
        "num_hidden_layers": 26,
        "num_key_value_heads": 1,
        "pad_token_id": 0,
        "query_pre_attn_scalar": 256,
        "rms_norm_eps": 1e-06,
        "rope_local_base_freq": 10000,
        "rope_scaling": None,
        "rope_theta": 1000000,
        "sliding_window": 512,
        "sliding_window_pattern": 6,
        "vocab_size": 262144,
    }


def four_b() -> Raw:
    """google/gemma-3-4b-it as published: most of it is left to transformers' defaults."""
    return {
        "architectures": ["Gemma3ForConditionalGeneration"],
        "eos_token_id": [1, 106],
        "model_type": "gemma3",
        "text_config": {
            "hidden_size": 2560,
            "intermediate_size": 10240,
            "model_type": "gemma3_text",
            "num_hidden_layers": 34,
            "rope_scaling": {"factor": 8.0, "rope_type": "linear"},
            "sliding_window": 1024,
        },
        "vision_config": {"model_type": "siglip_vision_model"},
    }


def test_published_1b() -> None:
    config = parse_config(one_b())
    assert (config.vocab, config.hidden, config.sliding_window, config.max_position) == (
        262144,
        1152,
        512,
        32768,
    )
    assert (config.attention_scale, config.embedding_scale) == (1 / 16, 1152**0.5)
    assert (config.rope_sliding, config.rope_full) == (Rope(1e4), Rope(1e6))
    assert (config.tied, config.softcap, config.ple_dim) == (True, None, 0)
    assert (config.bos_id, config.pad_id, config.eos_ids) == (2, 0, (1, 106))
    assert [layer.index for layer in config.layers if layer.kind == "full"] == [5, 11, 17, 23]
    assert {(layer.heads, layer.kv_heads, layer.head_dim) for layer in config.layers} == {(4, 1, 256)}
    assert config.own_layers == config.layers


def test_published_4b_is_filled_from_the_defaults() -> None:
    config = parse_config(four_b())
    assert (config.vocab, config.max_position, config.norm_eps) == (262208, 131072, 1e-6)
    assert {(layer.heads, layer.kv_heads, layer.head_dim) for layer in config.layers} == {(8, 4, 256)}
    assert config.rope_sliding == Rope(1e4)  # the stretch is for the full layers
    assert config.rope_full == Rope(1e6, divisors=(8.0,) * 128)
    assert config.eos_ids == (1, 106)


def test_transformers_spelling_says_the_same() -> None:
    old, new = one_b(), one_b()
    old["rope_scaling"] = {"rope_type": "linear", "factor": 8.0}
    for name in ("rope_scaling", "rope_theta", "rope_local_base_freq", "sliding_window_pattern"):
        del new[name]
    new["rope_parameters"] = {
        "full_attention": {"rope_type": "linear", "factor": 8.0, "rope_theta": 1e6},
        "sliding_attention": {"rope_type": "default", "rope_theta": 1e4},
    }
    new["layer_types"] = ["full_attention" if n % 6 == 5 else "sliding_attention" for n in range(26)]
    assert parse_config(new) == parse_config(old)


def test_the_scale_need_not_be_that_of_a_head() -> None:
    raw = four_b()
    raw["text_config"] |= {"head_dim": 128, "num_attention_heads": 32, "query_pre_attn_scalar": 168}
    assert parse_config(raw).attention_scale == 168**-0.5


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"use_bidirectional_attention": True}, "use_bidirectional_attention is true: .* embedding models"),
        ({"attn_logit_softcapping": 50.0}, r"attn_logit_softcapping is 50.0: it must be null"),
        ({"attention_bias": True}, "attention_bias is true"),
        ({"hidden_activation": "silu"}, 'hidden_activation is "silu"'),
        ({"rope_scaling": {"rope_type": "yarn", "factor": 4.0}}, 'rope_type is "yarn": it must be one of'),
        ({"rope_scaling": {"rope_type": "linear"}}, "factor is missing"),
        ({"layer_types": ["full_attention"]}, "layer_types is .*: it must be a list of 26"),
        ({"num_key_value_heads": 3}, "layer 0 has 4 heads and 3 key-value heads"),
        ({"head_dim": 255}, "layer 0 has head_dim 255"),
        ({"hidden_size": None}, "hidden_size is missing"),
        ({"rope_parameters": {"rope_type": "default"}}, "rope_parameters.sliding_attention is missing"),
    ],
)
def test_errors_name_the_field(change: Raw, message: str) -> None:
    with pytest.raises(CheckpointError, match=message):
        parse_config(one_b() | change)
