"""The shapes that `onechip synth` knows, each as the text part of a config.json in the published layout."""

from __future__ import annotations

from typing import Any

_KINDS = {"s": "sliding_attention", "f": "full_attention"}


def _config(pattern: str, fields: dict[str, Any]) -> dict[str, Any]:
    """A text-only config; `pattern` has an "s" (sliding) or "f" (full) for each layer."""
    return {
        "architectures": ["Gemma4ForCausalLM"],
        "model_type": "gemma4_text",
        "attention_bias": False,
        "attention_dropout": 0.0,
        "attention_k_eq_v": False,
        "bos_token_id": 2,
        "dtype": "bfloat16",
        "enable_moe_block": False,
        "eos_token_id": [1, 106],
        "final_logit_softcapping": 30.0,
        "hidden_activation": "gelu_pytorch_tanh",
        "initializer_range": 0.02,
        "layer_types": [_KINDS[kind] for kind in pattern],
        "num_global_key_value_heads": None,
        "num_hidden_layers": len(pattern),
        "pad_token_id": 0,
        "rms_norm_eps": 1e-06,
        "rope_parameters": {
            "full_attention": {
                "partial_rotary_factor": 0.25,
                "rope_theta": 1000000.0,
                "rope_type": "proportional",
            },
            "sliding_attention": {"rope_theta": 10000.0, "rope_type": "default"},
        },
        "tie_word_embeddings": True,
        "use_bidirectional_attention": None,
        "use_cache": True,
        **fields,
    }


SHAPES: dict[str, dict[str, Any]] = {
    # Every kind of layer of E2B in 4 MB: own and shared K and V, sliding and full, double-wide MLP.
    "tiny": _config(
        "ssssf" * 2,
        {
            "hidden_size": 128,
            "intermediate_size": 256,
            "num_attention_heads": 4,
            "num_key_value_heads": 1,
            "head_dim": 32,
            "global_head_dim": 64,
            "sliding_window": 64,
            "num_kv_shared_layers": 5,
            "use_double_wide_mlp": True,
            "hidden_size_per_layer_input": 32,
            "vocab_size": 2048,
            "vocab_size_per_layer_input": 2048,
            "max_position_embeddings": 4096,
        },
    ),
    "e2b": _config(
        "ssssf" * 7,
        {
            "hidden_size": 1536,
            "intermediate_size": 6144,
            "num_attention_heads": 8,
            "num_key_value_heads": 1,
            "head_dim": 256,
            "global_head_dim": 512,
            "sliding_window": 512,
            "num_kv_shared_layers": 20,
            "use_double_wide_mlp": True,
            "hidden_size_per_layer_input": 256,
            "vocab_size": 262144,
            "vocab_size_per_layer_input": 262144,
            "max_position_embeddings": 131072,
        },
    ),
    "e4b": _config(
        "sssssf" * 7,
        {
            "hidden_size": 2560,
            "intermediate_size": 10240,
            "num_attention_heads": 8,
            "num_key_value_heads": 2,
            "head_dim": 256,
            "global_head_dim": 512,
            "sliding_window": 512,
            "num_kv_shared_layers": 18,
            "use_double_wide_mlp": False,
            "hidden_size_per_layer_input": 256,
            "vocab_size": 262144,
            "vocab_size_per_layer_input": 262144,
            "max_position_embeddings": 131072,
        },
    ),
}
