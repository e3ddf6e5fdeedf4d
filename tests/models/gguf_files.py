"""Small GGUF files of each architecture, written with the gguf package's own writer."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from gguf import GGMLQuantizationType, GGUFWriter, quants
from gguf.constants import GGML_QUANT_SIZES
from numpy.typing import NDArray

from onechip.models.config import ModelConfig, parse_config
from onechip.models.gguf.names import gguf_tensor
from onechip.models.layout import TensorSpec, expected_tensors

Array = NDArray[Any]
Type = GGMLQuantizationType

TOKENS = [
    "<pad>",
    "<eos>",
    "<bos>",
    "<unk>",
    *(f"<0x{byte:02X}>" for byte in range(256)),
    "▁",
    "a",
    "b",
    "▁a",
]
VOCAB = len(TOKENS)
TYPES = [3, 3, 3, 3, *[6] * 256, 1, 1, 1, 1]

_HEADS = {
    "block_count": 4,
    "context_length": 512,
    "embedding_length": 256,
    "attention.head_count": 4,
    "attention.layer_norm_rms_epsilon": 1e-6,
}
GEMMA4 = _HEADS | {
    "feed_forward_length": [256, 256, 512, 512],
    "attention.head_count_kv": 2,
    "attention.key_length": 64,
    "attention.key_length_swa": 32,
    "attention.sliding_window": 64,
    "attention.sliding_window_pattern": [True, False, True, False],
    "attention.shared_kv_layers": 2,
    "embedding_length_per_layer_input": 64,
    "final_logit_softcapping": 30.0,
    "rope.freq_base": 1e6,
    "rope.freq_base_swa": 1e4,
}
GEMMA3 = _HEADS | {
    "block_count": 7,
    "feed_forward_length": 256,
    "attention.head_count_kv": 2,
    "attention.key_length": 64,
    "attention.sliding_window": 64,
    "rope.freq_base": 1e6,
    "rope.scaling.type": "linear",
    "rope.scaling.factor": 8.0,
}
LLAMA = _HEADS | {"feed_forward_length": 256, "attention.head_count_kv": 2, "rope.freq_base": 5e5}
KEYS = {"gemma4": GEMMA4, "gemma3": GEMMA3, "llama": LLAMA}

CONFIGS: dict[str, dict[str, Any]] = {
    "gemma4": {
        "model_type": "gemma4_text",
        "hidden_size": 256,
        "num_hidden_layers": 4,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "head_dim": 32,
        "global_head_dim": 64,
        "intermediate_size": 256,
        "use_double_wide_mlp": True,
        "num_kv_shared_layers": 2,
        "layer_types": ["sliding_attention", "full_attention"] * 2,
        "sliding_window": 64,
        "hidden_size_per_layer_input": 64,
        "vocab_size_per_layer_input": VOCAB,
        "vocab_size": VOCAB,
        "max_position_embeddings": 512,
        "rms_norm_eps": 1e-6,
        "final_logit_softcapping": 30.0,
        "rope_parameters": {
            "sliding_attention": {"rope_type": "default", "rope_theta": 1e4},
            "full_attention": {"rope_type": "proportional", "rope_theta": 1e6, "partial_rotary_factor": 0.25},
        },
        "eos_token_id": [1],
    },
    "gemma3": {
        "model_type": "gemma3_text",
        "hidden_size": 256,
        "num_hidden_layers": 7,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "head_dim": 64,
        "query_pre_attn_scalar": 64,
        "intermediate_size": 256,
        "sliding_window": 64,
        "sliding_window_pattern": 6,
        "vocab_size": VOCAB,
        "max_position_embeddings": 512,
        "rms_norm_eps": 1e-6,
        "rope_theta": 1e6,
        "rope_local_base_freq": 1e4,
        "rope_scaling": {"rope_type": "linear", "factor": 8.0},
        "eos_token_id": [1],
    },
    "llama": {
        "model_type": "llama",
        "hidden_size": 256,
        "num_hidden_layers": 4,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "intermediate_size": 256,
        "vocab_size": VOCAB,
        "max_position_embeddings": 512,
        "rms_norm_eps": 1e-6,
        "rope_theta": 5e5,
        "tie_word_embeddings": True,
        "bos_token_id": 2,
        "eos_token_id": [1],
    },
}
"""What each file's metadata says, as a published config.json would say it."""


def config(architecture: str, **changes: Any) -> ModelConfig:
    return parse_config(CONFIGS[architecture] | changes)


def values(spec: TensorSpec, seed: int = 0) -> Array:
    """Weights of a tensor, float32; norms around 1, and all of them bfloat16's values."""
    rng = np.random.default_rng([seed, *spec.name.encode()])
    drawn = rng.normal(1.0 if len(spec.shape) == 1 else 0.0, 0.1, spec.shape).astype(np.float32)
    return (drawn.view(np.uint32) & 0xFFFF0000).view(np.float32)


def random_blocks(kind: Type, rows: int, columns: int) -> Array:
    """Bytes [rows, bytes] of any quantised type; some of its scales are no numbers."""
    size, bytes_ = GGML_QUANT_SIZES[kind]
    rng = np.random.default_rng(int(kind))
    return rng.integers(0, 256, (rows, columns // size * bytes_), dtype=np.uint8)


def to_file(spec: TensorSpec, config: ModelConfig, seed: int = 0) -> Array:
    """A tensor's values as llama.cpp's converter puts them into a file."""
    weights, place = values(spec, seed), gguf_tensor(spec, config)
    if place.heads:
        halves = weights.reshape(place.heads, 2, spec.shape[0] // place.heads // 2, -1)
        weights = halves.swapaxes(1, 2).reshape(spec.shape)
    return weights + np.float32(place.shift)


def writer(path: Path, architecture: str, keys: Mapping[str, Any]) -> GGUFWriter:
    """A writer with the metadata of a model in it; `keys` are the architecture's."""
    file = GGUFWriter(path, architecture)
    for key, value in keys.items():
        _add(file, key if "general." in key or "tokenizer." in key else f"{architecture}.{key}", value)
    return file


def _add(file: GGUFWriter, key: str, value: Any) -> None:
    if isinstance(value, bool):
        file.add_bool(key, value)
    elif isinstance(value, int):
        file.add_uint32(key, value)
    elif isinstance(value, float):
        file.add_float32(key, value)
    elif isinstance(value, str):
        file.add_string(key, value)
    else:
        file.add_array(key, value)


VOCABULARY: dict[str, Any] = {
    "tokenizer.ggml.model": "gemma4",
    "tokenizer.ggml.tokens": TOKENS,
    "tokenizer.ggml.token_type": TYPES,
    "tokenizer.ggml.merges": ["▁ a"],
    "tokenizer.ggml.bos_token_id": 2,
    "tokenizer.ggml.eos_token_id": 1,
    "tokenizer.ggml.unknown_token_id": 3,
    "tokenizer.ggml.padding_token_id": 0,
    "tokenizer.chat_template": "{{ bos_token }}{{ messages[0].content }}",
}


def write(
    path: Path,
    architecture: str,
    *,
    keys: Mapping[str, Any] | None = None,
    types: Mapping[str, Type] | None = None,
    skip: tuple[str, ...] = (),
    extra: Mapping[str, Array] | None = None,
    split: Mapping[str, int] | None = None,
) -> Path:
    """A whole model at `path`.

    Args:
        keys: more metadata, or other values.
        types: a tensor's name in the file, or "linear" or "table" -> its type; else it is F32.
        skip: names of tensors that are left out.
        extra: more tensors, F32.
        split: what the first of several parts says of them.
    """
    model = config(architecture)
    file = writer(path, architecture, KEYS[architecture] | VOCABULARY | dict(keys or {}))
    for key, number in (split or {}).items():
        file.add_uint32(key, number)
    tensors: dict[str, tuple[Array, Type]] = {}
    for spec in expected_tensors(model):
        name = gguf_tensor(spec, model).name
        kind = "linear" if spec.linear else "table" if spec.table else ""
        tensors[name] = to_file(spec, model), (types or {}).get(name, (types or {}).get(kind, Type.F32))
    if architecture == "gemma4":
        tensors["rope_freqs.weight"] = np.array([1.0] * 8 + [1e30] * 24, np.float32), Type.F32
    tensors = {name: tensor for name, tensor in tensors.items() if name not in skip}
    tensors |= {name: (array, Type.F32) for name, array in (extra or {}).items()}
    for name, (array, kind) in tensors.items():
        file.add_tensor(name, _encoded(array, kind), raw_dtype=kind)
    close(file)
    return path


def _encoded(array: Array, kind: Type) -> Array:
    try:
        return quants.quantize(array, kind)
    except NotImplementedError:
        return random_blocks(kind, *array.shape)


def close(file: GGUFWriter) -> None:
    file.write_header_to_file()
    file.write_kv_data_to_file()
    file.write_tensors_to_file()
    file.close()
