"""Checkpoints small enough to convert in a moment: tiny's shape with fewer tokens, its weights on a grid."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np

from onechip.convert.shapes import SHAPES
from onechip.convert.synth_tokenizer import build_tokenizer
from onechip.kernels.api import Int4
from onechip.models.config import parse_config
from onechip.models.layout import empty_params, expected_tensors, put
from onechip.models.quant import BFLOAT16, dequantize_int4, quantize_int4
from onechip.models.weights import save_checkpoint

VOCABULARY = 512
TEMPLATE = "{{ bos_token }}{% for m in messages %}{{ m['content'] }}{% endfor %}"

GEMMA4: dict[str, Any] = {
    **SHAPES["tiny"],
    "num_hidden_layers": 4,
    "layer_types": ["sliding_attention", "full_attention"] * 2,
    "num_kv_shared_layers": 2,
    "vocab_size": VOCABULARY,
    "vocab_size_per_layer_input": VOCABULARY,
}
GEMMA3: dict[str, Any] = {
    "model_type": "gemma3_text",
    "vocab_size": VOCABULARY,
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 32,
    "query_pre_attn_scalar": 32,
    "sliding_window": 16,
    "layer_types": ["sliding_attention", "sliding_attention", "full_attention"],
    "max_position_embeddings": 512,
    "rope_parameters": {
        "sliding_attention": {"rope_type": "default", "rope_theta": 10000.0},
        "full_attention": {"rope_type": "linear", "factor": 8.0, "rope_theta": 1000000.0},
    },
    "eos_token_id": [1, 106],
}
LLAMA: dict[str, Any] = {
    "model_type": "llama",
    "vocab_size": VOCABULARY,
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 512,
    "rope_parameters": {
        "rope_type": "llama3",
        "rope_theta": 500000.0,
        "factor": 8.0,
        "low_freq_factor": 1.0,
        "high_freq_factor": 4.0,
        "original_max_position_embeddings": 8192,
    },
    "bos_token_id": 2,
    "eos_token_id": [1],
    "tie_word_embeddings": False,
}
FAMILIES = {"gemma4": GEMMA4, "gemma3": GEMMA3, "llama": LLAMA}


def make(folder: Path, raw: dict[str, Any], *, int4: str = "linears", seed: int = 0) -> Path:
    """A checkpoint with the text files that a served one has.

    Args:
        int4: "no" (bf16 on no grid), "dense" (bf16 on a grid), "linears", or "tables" (and the linears).
    """
    rng = np.random.default_rng(seed)
    config = parse_config(raw)
    params = empty_params(config)
    for spec in expected_tensors(config):
        values = (rng.standard_normal(spec.shape) * 0.05).astype(BFLOAT16)
        leaf: Any = values
        if len(spec.shape) == 2 and int4 != "no":
            weight = Int4(*quantize_int4(values))
            packed = int4 == "tables" or (int4 == "linears" and not spec.table)
            packed = packed and spec.path != ("lm_head",)
            leaf = weight if packed else dequantize_int4(weight.packed, weight.scale).astype(BFLOAT16)
        put(params, spec.path, leaf)
    save_checkpoint(folder, raw, params)
    build_tokenizer(config.vocab).save(str(folder / "tokenizer.json"))
    special = {"bos_token": "<bos>", "eos_token": "<eos>", "pad_token": "<pad>", "unk_token": "<unk>"}
    (folder / "tokenizer_config.json").write_text(json.dumps(special))
    (folder / "generation_config.json").write_text(json.dumps({"eos_token_id": [1, 106]}))
    (folder / "chat_template.jinja").write_text(TEMPLATE)
    return folder
