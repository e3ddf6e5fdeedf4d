"""A ModelConfig in; out come the keys of a GGUF file that say the same to llama.cpp.

Which keys an architecture reads is in llama.cpp's src/models/{gemma4,gemma3,llama}.cpp, how they are filled
in its conversion/ (2026-11).
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from onechip.convert.gguf_writer import Metadata, Value
from onechip.errors import CheckpointError
from onechip.models.architecture import LayerSpec, ModelConfig
from onechip.models.gguf.names import (
    OWN_DO_SAMPLE,
    OWN_GENERATION_STOPS,
    OWN_RANDOM_WEIGHTS,
    OWN_STOPS,
    SAMPLING,
    architecture,
    gemma3_query_scalar,
)
from onechip.models.source import RANDOM_WEIGHTS

FILE_TYPES = {"F32": 0, "F16": 1, "Q4_0": 2, "Q8_0": 7, "BF16": 32}
"""`general.file_type`: what most of the tensors are."""

_STILL = 1e30  # divides the frequency of a pair that does not turn: the angle is then 0 in float32
_QUANTIZATION_VERSION = 2


def general_metadata(config: ModelConfig, name: str, most: str) -> Metadata:
    """The keys about the file itself; `most` is the type of most of its tensors."""
    return {
        "general.architecture": Value("STRING", architecture(config)),
        "general.type": Value("STRING", "model"),
        "general.name": Value("STRING", name),
        "general.file_type": Value("U32", FILE_TYPES[most]),
        "general.quantization_version": Value("U32", _QUANTIZATION_VERSION),
    }


def model_metadata(config: ModelConfig) -> Metadata:
    """The keys about the model's shape, under its architecture's name."""
    arch = architecture(config)
    if arch == "gemma3":
        _check_attention_scale(config)
    keys = _common(config)
    if config.sliding_window:
        keys["attention.sliding_window"] = Value("U32", config.sliding_window)
    if arch in ("gemma3", "gemma4"):
        sliding = [layer.kind == "sliding" for layer in config.layers]
        keys["attention.sliding_window_pattern"] = Value("BOOL", sliding, is_list=True)
        keys["rope.freq_base_swa"] = Value("F32", config.rope_sliding.theta)
        if config.softcap is not None:
            keys["final_logit_softcapping"] = Value("F32", config.softcap)
    if arch == "gemma4":
        keys |= _gemma4(config)
    return {f"{arch}.{key}": value for key, value in keys.items()}


def settings_metadata(
    config: ModelConfig, config_json: Mapping[str, Any], generation_json: Mapping[str, Any]
) -> Metadata:
    """How the model is sampled and where it stops, and whether its weights are random.

    A checkpoint that says `do_sample: false` gets the temperature 0, which is how llama.cpp is greedy.
    """
    keys = {OWN_STOPS: Value("I32", list(config.eos_ids), is_list=True)}
    settings = {name: generation_json[name] for name in SAMPLING if generation_json.get(name) is not None}
    do_sample = generation_json.get("do_sample")
    if do_sample is not None:
        keys[OWN_DO_SAMPLE] = Value("BOOL", do_sample)
    if do_sample is False:
        settings["temperature"] = 0.0
    for name, value in settings.items():
        keys[SAMPLING[name]] = Value("I32" if name == "top_k" else "F32", value)
    stops = generation_json.get("eos_token_id")
    stops = [stops] if isinstance(stops, int) else stops
    if stops:
        keys[OWN_GENERATION_STOPS] = Value("I32", stops, is_list=True)
    if config_json.get(RANDOM_WEIGHTS) is True:
        keys[OWN_RANDOM_WEIGHTS] = Value("BOOL", True)
    return keys


def _check_attention_scale(config: ModelConfig) -> None:
    """Raise CheckpointError if llama.cpp would divide a Gemma 3's queries by something else."""
    layer = config.layers[0]
    scalar = gemma3_query_scalar(len(config.layers), config.hidden, layer.heads, layer.head_dim)
    if not math.isclose(config.attention_scale, scalar**-0.5):
        raise CheckpointError(
            f"query_pre_attn_scalar is {config.attention_scale**-2:g}: GGUF has no key for it, and llama.cpp "
            f"would take {scalar}."
        )


def _common(config: ModelConfig) -> Metadata:
    layers = config.layers
    full = _widest(config)
    keys = {
        "block_count": Value("U32", len(layers)),
        "context_length": Value("U32", config.max_position),
        "embedding_length": Value("U32", config.hidden),
        "feed_forward_length": _per_layer([layer.intermediate for layer in layers]),
        "attention.head_count": _per_layer([layer.heads for layer in layers]),
        "attention.head_count_kv": _per_layer([layer.kv_heads for layer in layers]),
        "attention.key_length": Value("U32", full.head_dim),
        "attention.value_length": Value("U32", full.head_dim),
        "attention.layer_norm_rms_epsilon": Value("F32", config.norm_eps),
        "rope.dimension_count": Value("U32", full.head_dim),
        "rope.freq_base": Value("F32", config.rope_full.theta),
        "vocab_size": Value("U32", config.vocab),
    }
    linear = _linear_factor(config)
    if linear:
        keys["rope.scaling.type"] = Value("STRING", "linear")
        keys["rope.scaling.factor"] = Value("F32", linear)
    return keys


def _gemma4(config: ModelConfig) -> Metadata:
    shared = sum(not layer.owns_kv for layer in config.layers)
    sliding = next(layer for layer in config.layers if layer.kind == "sliding")
    return {
        "attention.shared_kv_layers": Value("U32", shared),
        "attention.key_length_swa": Value("U32", sliding.head_dim),
        "attention.value_length_swa": Value("U32", sliding.head_dim),
        "rope.dimension_count_swa": Value("U32", sliding.head_dim),
        "embedding_length_per_layer_input": Value("U32", config.ple_dim),
    }


def rope_freqs(config: ModelConfig) -> NDArray[np.float32] | None:
    """What divides each frequency of the full layers [head_dim / 2]; None where it is 1 or a single factor.

    In Gemma 4 the pairs past the fraction do not turn; llama.cpp wants the tensor of every such file.
    """
    pairs = _widest(config).head_dim // 2
    if architecture(config) == "gemma4":
        turning = int(config.rope_full.fraction * pairs)
        return np.array([1.0] * turning + [_STILL] * (pairs - turning), dtype=np.float32)
    if config.rope_full.divisors and not _linear_factor(config):
        return np.array(config.rope_full.divisors, dtype=np.float32)
    return None


def _linear_factor(config: ModelConfig) -> float | None:
    """The factor by which all frequencies of the full layers are divided, if it is one."""
    factors = set(config.rope_full.divisors)
    return factors.pop() if len(factors) == 1 else None


def _widest(config: ModelConfig) -> LayerSpec:
    """A full layer; where there are none, a layer."""
    return next((layer for layer in config.layers if layer.kind == "full"), config.layers[0])


def _per_layer(values: list[int]) -> Value:
    """One number if it is the same for all layers, else a list."""
    if len(set(values)) == 1:
        return Value("U32", values[0])
    return Value("I32", values, is_list=True)
