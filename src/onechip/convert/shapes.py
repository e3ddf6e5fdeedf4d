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


def _gemma3(fields: dict[str, Any]) -> dict[str, Any]:
    return {
        "architectures": ["Gemma3ForCausalLM"],
        "model_type": "gemma3_text",
        "attention_bias": False,
        "attention_dropout": 0.0,
        "attn_logit_softcapping": None,
        "bos_token_id": 2,
        "dtype": "bfloat16",
        "eos_token_id": [1, 106],
        "final_logit_softcapping": None,
        "hidden_activation": "gelu_pytorch_tanh",
        "initializer_range": 0.02,
        "pad_token_id": 0,
        "rms_norm_eps": 1e-06,
        "rope_local_base_freq": 10000,
        "rope_scaling": None,
        "rope_theta": 1000000,
        "use_cache": True,
        **fields,
    }


def _llama3(fields: dict[str, Any]) -> dict[str, Any]:
    """Its special tokens are those of the made-up tokenizer."""
    return {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "attention_bias": False,
        "attention_dropout": 0.0,
        "bos_token_id": 2,
        "dtype": "bfloat16",
        "eos_token_id": [1, 106],
        "hidden_act": "silu",
        "initializer_range": 0.02,
        "mlp_bias": False,
        "pad_token_id": 0,
        "rms_norm_eps": 1e-05,
        "rope_scaling": {
            "factor": 32.0,
            "high_freq_factor": 4.0,
            "low_freq_factor": 1.0,
            "original_max_position_embeddings": 8192,
            "rope_type": "llama3",
        },
        "rope_theta": 500000.0,
        "tie_word_embeddings": True,
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
    "gemma3-tiny": _gemma3(
        {
            "hidden_size": 128,
            "intermediate_size": 256,
            "num_hidden_layers": 7,
            "num_attention_heads": 4,
            "num_key_value_heads": 1,
            "head_dim": 32,
            "query_pre_attn_scalar": 32,
            "sliding_window": 64,
            "sliding_window_pattern": 6,
            "vocab_size": 2048,
            "max_position_embeddings": 4096,
        }
    ),
    "gemma3-1b": _gemma3(
        {
            "hidden_size": 1152,
            "intermediate_size": 6912,
            "num_hidden_layers": 26,
            "num_attention_heads": 4,
            "num_key_value_heads": 1,
            "head_dim": 256,
            "query_pre_attn_scalar": 256,
            "sliding_window": 512,
            "sliding_window_pattern": 6,
            "vocab_size": 262144,
            "max_position_embeddings": 32768,
        }
    ),
    "llama3-tiny": _llama3(
        {
            "hidden_size": 128,
            "intermediate_size": 256,
            "num_hidden_layers": 6,
            "num_attention_heads": 4,
            "num_key_value_heads": 2,
            "head_dim": 32,
            "vocab_size": 2048,
            "max_position_embeddings": 4096,
        }
    ),
    "llama3-1b": _llama3(
        {
            "hidden_size": 2048,
            "intermediate_size": 8192,
            "num_hidden_layers": 16,
            "num_attention_heads": 32,
            "num_key_value_heads": 8,
            "head_dim": 64,
            "vocab_size": 128256,
            "max_position_embeddings": 131072,
        }
    ),
}
