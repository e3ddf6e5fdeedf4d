"""The shape of acorn: its config.json, and fresh weights to train from.

All kinds of layer that E2B has are here: sliding and full, with a cache of their own and sharing one, the
latter with the double-wide MLP. Inner widths are multiples of 32, so that int4 in groups of 32 fits.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from onechip.models.config import ModelConfig
from onechip.models.layout import Params, TensorSpec, empty_params, expected_tensors, put
from tools.acorn.vocabulary import SIZE

CONFIG: dict[str, Any] = {
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
    "global_head_dim": 64,
    "head_dim": 32,
    "hidden_activation": "gelu_pytorch_tanh",
    "hidden_size": 128,
    "hidden_size_per_layer_input": 32,
    "initializer_range": 0.02,
    "intermediate_size": 256,
    "layer_types": [
        "sliding_attention",
        "sliding_attention",
        "full_attention",
        "sliding_attention",
        "full_attention",
    ],
    "max_position_embeddings": 4096,
    "num_attention_heads": 4,
    "num_global_key_value_heads": None,
    "num_hidden_layers": 5,
    "num_key_value_heads": 1,
    "num_kv_shared_layers": 2,
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
    "sliding_window": 64,
    "tie_word_embeddings": True,
    "use_bidirectional_attention": None,
    "use_double_wide_mlp": True,
    "vocab_size": SIZE,
    "vocab_size_per_layer_input": SIZE,
}
"""config.json in the form in which google/gemma-4-E2B-it publishes its text_config."""

GENERATION_CONFIG: dict[str, Any] = {
    "bos_token_id": 2,
    "do_sample": True,
    "eos_token_id": [1, 106, 50],
    "pad_token_id": 0,
    "temperature": 1.0,
    "top_k": 64,
    "top_p": 0.95,
}

LAYER_SCALARS = (0.75, 0.875, 1.0, 1.125, 0.875)
"""Not trained, and not 1, so that an engine which drops them is seen to be wrong."""

DEVIATION = {"embed": 0.05, "ple_embed": 0.1}
"""Of fresh tables; a fresh linear weight has 1/sqrt(inputs)."""

POST_NORM = 0.3
"""First weight of the norms after each block: small steps on the residual stream make early training calm."""


def fresh_params(config: ModelConfig, seed: int) -> Params:
    """Random float32 weights in the layout of onechip.models.layout."""
    random = np.random.default_rng(seed)
    params = empty_params(config)
    for spec in expected_tensors(config):
        put(params, spec.path, _fresh(spec, random))
    return params


def _fresh(spec: TensorSpec, random: np.random.Generator) -> NDArray[np.float32]:
    key, shape = spec.path[-1], spec.shape
    if key == "scalar":
        return np.array(LAYER_SCALARS[int(spec.path[1])], np.float32)
    if len(shape) == 2:
        deviation = DEVIATION.get(str(key), shape[1] ** -0.5)
        return (random.standard_normal(shape) * deviation).astype(np.float32)
    if key in ("q_norm", "k_norm"):
        # Attention has no 1/sqrt(d): with weights of 1 the scores of a fresh model would be far too large.
        return np.full(shape, shape[0] ** -0.25, np.float32)
    first = POST_NORM if key in ("post_attn_norm", "post_ffn_norm", "ple_post_norm") else 1.0
    return np.full(shape, first, np.float32)
