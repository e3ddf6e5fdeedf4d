"""The shrunken models of which tests/golden keeps logits: their configs and the classes that compute them."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from transformers import (
    Gemma3Config,
    Gemma3ForCausalLM,
    Gemma3ForConditionalGeneration,
    Gemma3TextConfig,
    Gemma4Config,
    Gemma4ForCausalLM,
    Gemma4ForConditionalGeneration,
    Gemma4TextConfig,
    Gemma4UnifiedConfig,
    Gemma4UnifiedForConditionalGeneration,
    Gemma4UnifiedTextConfig,
    LlamaConfig,
    LlamaForCausalLM,
    MistralConfig,
    MistralForCausalLM,
)

GEMMA4: dict[str, Any] = {
    "vocab_size": 256,
    "hidden_size": 64,
    "head_dim": 16,
    "global_head_dim": 32,
    "intermediate_size": 64,
    "max_position_embeddings": 512,
    "rms_norm_eps": 1e-6,
    "rope_parameters": {
        "full_attention": {"rope_type": "proportional", "rope_theta": 1e6, "partial_rotary_factor": 0.25},
        "sliding_attention": {"rope_type": "default", "rope_theta": 1e4},
    },
    "eos_token_id": 1,
}
PLE = {"hidden_size_per_layer_input": 32, "vocab_size_per_layer_input": 256}
SMALL: dict[str, Any] = {
    "vocab_size": 256,
    "hidden_size": 48,
    "intermediate_size": 64,
    "num_attention_heads": 4,
    "max_position_embeddings": 512,
    "rms_norm_eps": 1e-5,
    "bos_token_id": 2,
    "eos_token_id": 1,
}


@dataclass(frozen=True)
class Case:
    """One shrunken model.

    Attributes:
        text: its text config, in the published layout.
        layers: "s" or "f" a layer where `layer_types` says it; "" where the text config says all.
        wrapper: (top-level config, text config, model), the classes that own this kind of checkpoint.
        published: write config.json as the model's makers publish it (`global_head_dim`, `rope_scaling`), not
            as transformers saves it.
        shard_bytes: the largest file of weights.
        norm_offset: what the model adds to a stored norm weight.
        embedding: size of the embeddings. Where they are the head too, and large against what layers add, a
            random model says its last token again and again.
    """

    text: dict[str, Any]
    layers: str = ""
    wrapper: tuple[Any, Any, Any] = (None, Gemma4TextConfig, Gemma4ForCausalLM)
    published: bool = True
    shard_bytes: int = 1 << 30
    top: dict[str, Any] = field(default_factory=dict)
    norm_offset: float = 0.0
    embedding: float = 1.0

    @property
    def attention_scale(self) -> float:
        """What q.k is multiplied by in a model that normalises q and k."""
        return float(self.text["query_pre_attn_scalar"] ** -0.5) if self.norm_offset else 1.0


CASES = {
    # Own and shared layers of both kinds, the shared ones twice as wide; one KV head; nested like E2B.
    "e2b": Case(
        GEMMA4
        | PLE
        | {
            "num_attention_heads": 4,
            "num_key_value_heads": 1,
            "num_kv_shared_layers": 4,
            "use_double_wide_mlp": True,
            "sliding_window": 8,
            "final_logit_softcapping": 30.0,
        },
        "sfsfssff",
        (Gemma4Config, Gemma4TextConfig, Gemma4ForConditionalGeneration),
        top={"vision_config": None, "audio_config": None},
    ),
    # Two KV heads, no double width; flat, saved by transformers (`per_layer_config`) and sharded.
    "e4b": Case(
        GEMMA4
        | PLE
        | {
            "num_attention_heads": 4,
            "num_key_value_heads": 2,
            "num_kv_shared_layers": 3,
            "sliding_window": 16,
            "final_logit_softcapping": 30.0,
        },
        "ssfssf",
        published=False,
        shard_bytes=200_000,
    ),
    # K is V on full layers, fewer KV heads there, no per-layer embeddings; the unified classes of the 12B.
    "12b": Case(
        GEMMA4
        | {
            "num_attention_heads": 4,
            "num_key_value_heads": 2,
            "num_global_key_value_heads": 1,
            "attention_k_eq_v": True,
            "sliding_window": 16,
            "final_logit_softcapping": 30.0,
        },
        "ssfssf",
        (Gemma4UnifiedConfig, Gemma4UnifiedTextConfig, Gemma4UnifiedForConditionalGeneration),
        published=False,
        top={"vision_config": None, "audio_config": None},
    ),
    # As the 31B, but with a head of its own and no softcap: no published model says so, a config may.
    "31b": Case(
        GEMMA4
        | {
            "num_attention_heads": 8,
            "num_key_value_heads": 4,
            "num_global_key_value_heads": 2,
            "attention_k_eq_v": True,
            "hidden_size_per_layer_input": 0,
            "sliding_window": 8,
            "final_logit_softcapping": None,
            "tie_word_embeddings": False,
        },
        "sfsf",
    ),
    # Flat, in the spelling of 2025; the scale is not a head's (as in the 27B), the last layer slides.
    "gemma3": Case(
        SMALL
        | {
            "num_hidden_layers": 5,
            "num_key_value_heads": 1,
            "head_dim": 16,
            "query_pre_attn_scalar": 24,
            "sliding_window": 8,
            "sliding_window_pattern": 3,
            "rope_theta": 1e6,
            "rope_local_base_freq": 1e4,
            "rope_scaling": {"rope_type": "linear", "factor": 8.0},
            "attn_logit_softcapping": None,
            "final_logit_softcapping": None,
        },
        wrapper=(None, Gemma3TextConfig, Gemma3ForCausalLM),
        norm_offset=1.0,
        embedding=0.25,
    ),
    # Nested beside a vision tower, as transformers saves it: its names are those of the published 4B.
    "gemma3-4b": Case(
        SMALL
        | {
            "num_key_value_heads": 2,
            "head_dim": 16,
            "query_pre_attn_scalar": 16,
            "sliding_window": 16,
            "rope_parameters": {
                "full_attention": {"rope_type": "default", "rope_theta": 1e6},
                "sliding_attention": {"rope_type": "default", "rope_theta": 1e4},
            },
        },
        "sfsf",
        (Gemma3Config, Gemma3TextConfig, Gemma3ForConditionalGeneration),
        published=False,
        top={
            "vision_config": {
                "model_type": "siglip_vision_model",
                "hidden_size": 16,
                "intermediate_size": 16,
                "num_hidden_layers": 1,
                "num_attention_heads": 2,
                "image_size": 8,
                "patch_size": 2,
            },
            "mm_tokens_per_image": 4,
        },
        norm_offset=1.0,
        embedding=0.25,
    ),
    # As Llama 3: RoPE of which some pairs are stretched, some not, some in part; two KV heads, an own head.
    "llama3": Case(
        SMALL
        | {
            "num_hidden_layers": 4,
            "num_key_value_heads": 2,
            "hidden_act": "silu",
            "rope_theta": 1e4,
            "rope_scaling": {
                "rope_type": "llama3",
                "factor": 8.0,
                "high_freq_factor": 4.0,
                "low_freq_factor": 1.0,
                "original_max_position_embeddings": 32,
            },
            "tie_word_embeddings": False,
        },
        wrapper=(None, LlamaConfig, LlamaForCausalLM),
    ),
    # Tied, plain RoPE, heads wider than their share of the hidden size; as transformers saves it.
    "llama-tied": Case(
        SMALL
        | {
            "num_hidden_layers": 4,
            "num_key_value_heads": 1,
            "head_dim": 32,
            "hidden_act": "silu",
            "rope_parameters": {"rope_type": "default", "rope_theta": 5e5},
            "tie_word_embeddings": True,
        },
        wrapper=(None, LlamaConfig, LlamaForCausalLM),
        published=False,
    ),
    # A window in every layer; each head has K and V of its own.
    "mistral": Case(
        SMALL
        | {
            "num_hidden_layers": 4,
            "num_key_value_heads": 4,
            "hidden_act": "silu",
            "rope_theta": 1e4,
            "sliding_window": 8,
            "tie_word_embeddings": False,
        },
        wrapper=(None, MistralConfig, MistralForCausalLM),
    ),
}


def configs(case: Case) -> tuple[dict[str, Any], Any]:
    """(config.json in the published layout, transformers' config)."""
    kinds = {"s": "sliding_attention", "f": "full_attention"}
    top_class, text_class, model_class = case.wrapper
    text = {"model_type": text_class.model_type, **case.text}
    if case.layers:
        text |= {"layer_types": [kinds[kind] for kind in case.layers], "num_hidden_layers": len(case.layers)}
    names = {"architectures": [model_class.__name__], "dtype": "bfloat16"}
    theirs = text_class(**{key: value for key, value in text.items() if key != "model_type"})
    if top_class is None:
        return names | text, theirs
    raw = names | {
        "model_type": top_class.model_type,
        "eos_token_id": [1, 106],
        **case.top,
        "text_config": text,
    }
    return raw | {"tie_word_embeddings": True}, top_class(text_config=theirs, **case.top)
