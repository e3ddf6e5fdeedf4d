"""The key-value pairs of a GGUF file in; out come the config.json and generation_config.json that say it.

Keys and their defaults are those of llama.cpp's loaders (src/models/{gemma4,gemma3,llama}.cpp, 2026-11).
Which layers have no V, how much of a head turns, and Llama 3's scaling stand in no key: tensors say it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from onechip.errors import CheckpointError
from onechip.models.gguf import blocks
from onechip.models.gguf.file import GgufFile, Strings
from onechip.models.gguf.names import (
    ARCHITECTURES,
    CAUSAL_MODELS,
    OWN_DO_SAMPLE,
    OWN_GENERATION_STOPS,
    OWN_RANDOM_WEIGHTS,
    OWN_STOPS,
    ROPE_FREQS,
    SAMPLING,
    gemma3_query_scalar,
)
from onechip.models.gguf.ropes import llama3_scaling, turning_fraction
from onechip.models.source import RANDOM_WEIGHTS

_PROJECTORS = ("clip", "mmproj")
_MOST_LAYERS = 1000


@dataclass(frozen=True, slots=True)
class Metadata:
    """Typed reads of a file's pairs, with the architecture put before the key; errors name the key and file.

    Attributes:
        files: all parts; the first has the pairs.
    """

    files: list[GgufFile]
    architecture: str

    @classmethod
    def read(cls, files: list[GgufFile]) -> Metadata:
        """Raises CheckpointError if the file is no language model, or one of an architecture not served."""
        path, pairs = files[0].path, files[0].metadata
        name = pairs.get("general.architecture")
        served = ", ".join(ARCHITECTURES)
        if name in _PROJECTORS or pairs.get("general.type") == "mmproj":
            raise CheckpointError(
                f"{path} is a projector for images or sound: give the model's own .gguf file."
            )
        if pairs.get("general.type") in ("adapter", "imatrix"):
            raise CheckpointError(
                f"{path} is an {pairs['general.type']}, not a model: give the model's file."
            )
        if not isinstance(name, str):
            raise CheckpointError(f"{path} has no general.architecture: fetch the file again.")
        if name not in ARCHITECTURES:
            raise CheckpointError(
                f"{path} has the architecture {name}: onechip serves {served} from GGUF files."
            )
        return cls(files, name)

    @property
    def path(self) -> Path:
        return self.files[0].path

    def has(self, key: str) -> bool:
        return self._full(key) in self.files[0].metadata

    def whole(self, key: str, default: int | None = None) -> int:
        """A whole number; where the file has one a layer, they must be equal."""
        values = set(self.whole_numbers(key, 1, default))
        if len(values) != 1:
            raise self._wrong(key, "one number for all layers")
        return values.pop()

    def whole_numbers(self, key: str, count: int, default: int | None = None) -> list[int]:
        """The file's array of them, or `count` times its one number."""
        value = self.files[0].metadata.get(self._full(key), default)
        if isinstance(value, int) and not isinstance(value, bool):
            return [value] * count
        if isinstance(value, np.ndarray) and value.dtype.kind in "iub" and len(value):
            return [int(number) for number in value]
        raise self._wrong(key, "a whole number, or an array of them")

    def number(self, key: str, default: float | None = None) -> float:
        value = self.files[0].metadata.get(self._full(key), default)
        if not isinstance(value, int | float) or isinstance(value, bool):
            raise self._wrong(key, "a number")
        return float(value)

    def text(self, key: str, default: str | None = None) -> str:
        value = self.files[0].metadata.get(self._full(key), default)
        if not isinstance(value, str):
            raise self._wrong(key, "a string")
        return value

    def flag(self, key: str, default: bool) -> bool:
        value = self.files[0].metadata.get(self._full(key), default)
        if not isinstance(value, bool):
            raise self._wrong(key, "true or false")
        return value

    def numbers(self, key: str) -> list[float]:
        value = self.files[0].metadata.get(self._full(key))
        if not isinstance(value, np.ndarray):
            raise self._wrong(key, "an array of numbers")
        return [float(number) for number in value]

    def strings(self, key: str) -> list[str]:
        value = self.files[0].metadata.get(self._full(key))
        if not isinstance(value, Strings):
            raise self._wrong(key, "a list of strings")
        try:
            return value.decode()
        except UnicodeDecodeError:
            raise CheckpointError(
                f"{self.path} is damaged ({key} is not UTF-8): fetch the file again."
            ) from None

    def _full(self, key: str) -> str:
        first = key.split(".")[0]
        return key if first in ("general", "tokenizer", "onechip") else f"{self.architecture}.{key}"

    def _wrong(self, key: str, wanted: str) -> CheckpointError:
        state = "no" if not self.has(key) else "an unusable"
        return CheckpointError(f"{self.path} has {state} {self._full(key)}: it must be {wanted}.")

    def layers(self) -> int:
        """The number of layers, which no damaged file may make billions."""
        count = self.whole("block_count")
        if not 0 < count <= _MOST_LAYERS:
            raise CheckpointError(f"{self.path} has {count} layers: the file is damaged, fetch it again.")
        return count

    def shape(self, tensor: str) -> tuple[int, ...]:
        """Raises CheckpointError if the file has no such tensor."""
        for file in self.files:
            if tensor in file.tensors:
                return file.tensors[tensor].shape
        raise CheckpointError(f"{tensor} is missing in {self.path}: fetch the file again.")

    def has_tensor(self, tensor: str) -> bool:
        return any(tensor in file.tensors for file in self.files)

    def rope_freqs(self) -> list[float] | None:
        """By what the file divides each frequency; None if it does not say so."""
        for file in self.files:
            if ROPE_FREQS in file.tensors and file.tensors[ROPE_FREQS].dtype == "F32":
                return [float(x) for x in blocks.plain(file.blocks(ROPE_FREQS), "F32")[0]]
        return None


def config_json(metadata: Metadata) -> dict[str, Any]:
    """The raw config.json. Raises CheckpointError naming the key that is missing or not served."""
    build = {"gemma4": _gemma4, "gemma3": _gemma3, "llama": _llama}[metadata.architecture]
    common = {
        "model_type": ARCHITECTURES[metadata.architecture],
        "hidden_size": metadata.whole("embedding_length"),
        "num_hidden_layers": metadata.layers(),
        "num_attention_heads": metadata.whole("attention.head_count"),
        "vocab_size": metadata.shape("token_embd.weight")[0],
        "max_position_embeddings": metadata.whole("context_length"),
        "rms_norm_eps": metadata.number("attention.layer_norm_rms_epsilon"),
        "tie_word_embeddings": not metadata.has_tensor("output.weight"),
        "attention_bias": False,
    }
    config = common | _token_ids(metadata, OWN_STOPS) | build(metadata)
    if config["model_type"] in CAUSAL_MODELS:
        # Without it vLLM takes a model for one that embeds.
        config["architectures"] = [CAUSAL_MODELS[config["model_type"]]]
    if metadata.has(OWN_RANDOM_WEIGHTS) and metadata.flag(OWN_RANDOM_WEIGHTS, False):
        config[RANDOM_WEIGHTS] = True
    return config


def generation_json(metadata: Metadata) -> dict[str, Any]:
    """generation_config.json: stop ids, and the sampling that the file recommends, if it does."""
    found: dict[str, Any] = {}
    for name, key in SAMPLING.items():
        if metadata.has(key):
            found[name] = metadata.whole(key) if name == "top_k" else metadata.number(key)
    greedy = found.get("temperature", 1.0) <= 0
    if found or metadata.has(OWN_DO_SAMPLE):
        found["do_sample"] = not greedy and metadata.flag(OWN_DO_SAMPLE, True)
    if greedy:
        del found["temperature"]  # do_sample says it
    return found | _token_ids(metadata, OWN_GENERATION_STOPS)


def _token_ids(metadata: Metadata, own_stops: str) -> dict[str, Any]:
    """Special ids; of stop ids the list that a file of ours has under `own_stops`, else what GGUF names."""
    ids: dict[str, Any] = {}
    for name, key in (("bos_token_id", "bos"), ("pad_token_id", "padding")):
        if metadata.has(f"tokenizer.ggml.{key}_token_id"):
            ids[name] = metadata.whole(f"tokenizer.ggml.{key}_token_id")
    stops = [f"tokenizer.ggml.{key}_token_id" for key in ("eos", "eot", "eom")]
    found = dict.fromkeys(metadata.whole(key) for key in stops if metadata.has(key))
    if metadata.has(own_stops):
        found = dict.fromkeys(metadata.whole_numbers(own_stops, 1))
    return ids | ({"eos_token_id": list(found)} if found else {})


def _gemma4(metadata: Metadata) -> dict[str, Any]:
    count = metadata.layers()
    kinds = _layer_types(metadata, count, None)
    full = [index for index, kind in enumerate(kinds) if kind == "full_attention"]
    widths = metadata.whole_numbers("feed_forward_length", count)
    shared = metadata.whole("attention.shared_kv_layers", 0)
    no_v = any(
        index < count - shared and not metadata.has_tensor(f"blk.{index}.attn_v.weight") for index in full
    )
    ple = metadata.whole("embedding_length_per_layer_input", 0)
    config: dict[str, Any] = {
        "layer_types": kinds,
        "intermediate_size": widths[0],
        "use_double_wide_mlp": widths[-1] == 2 * widths[0],
        "num_kv_shared_layers": shared,
        "sliding_window": metadata.whole("attention.sliding_window"),
        "hidden_size_per_layer_input": ple,
        "attention_k_eq_v": no_v,
        "enable_moe_block": metadata.whole("expert_count", 0) > 0,
        "hidden_activation": "gelu_pytorch_tanh",
        "rope_parameters": _gemma4_ropes(metadata),
    }
    if ple:
        config["vocab_size_per_layer_input"] = metadata.shape("per_layer_token_embd.weight")[0]
    if metadata.has("final_logit_softcapping"):
        config["final_logit_softcapping"] = metadata.number("final_logit_softcapping")
    return config | _gemma4_heads(metadata, kinds, full)


def _gemma4_heads(metadata: Metadata, kinds: list[str], full: list[int]) -> dict[str, Any]:
    """Widths of heads and numbers of key-value heads, in sliding and in full layers."""
    kv_heads = metadata.whole_numbers("attention.head_count_kv", len(kinds))
    if len(kv_heads) != len(kinds):
        raise CheckpointError(
            f"{metadata.path} has {len(kv_heads)} numbers of key-value heads for {len(kinds)} layers."
        )
    sliding = [index for index in range(len(kinds)) if index not in full]
    of_sliding, of_full = kv_heads[(sliding or full)[0]], kv_heads[(full or sliding)[0]]
    head_dim = metadata.whole("attention.key_length")
    own = {"head_dim": head_dim, "num_key_value_heads": of_full}
    return {
        "head_dim": metadata.whole("attention.key_length_swa", head_dim),
        "num_key_value_heads": of_sliding,
        "per_layer_config": {str(index): own for index in full},
    }


def _gemma4_ropes(metadata: Metadata) -> dict[str, Any]:
    divisors = metadata.rope_freqs()
    return {
        "full_attention": {
            "rope_type": "proportional",
            "rope_theta": metadata.number("rope.freq_base", 1e6),
            "partial_rotary_factor": 1.0 if divisors is None else turning_fraction(divisors, metadata.path),
        },
        "sliding_attention": {
            "rope_type": "default",
            "rope_theta": metadata.number("rope.freq_base_swa", 1e4),
        },
    }


def _gemma3(metadata: Metadata) -> dict[str, Any]:
    count, heads = metadata.layers(), metadata.whole("attention.head_count")
    head_dim = metadata.whole("attention.key_length", 256)
    hidden = metadata.whole("embedding_length")
    full = {"rope_type": "default", "rope_theta": metadata.number("rope.freq_base", 1e6)} | _scaling(metadata)
    config: dict[str, Any] = {
        "layer_types": _layer_types(metadata, count, 6 if metadata.has("attention.sliding_window") else 1),
        "intermediate_size": metadata.whole("feed_forward_length"),
        "num_key_value_heads": metadata.whole("attention.head_count_kv", heads),
        "head_dim": head_dim,
        "query_pre_attn_scalar": gemma3_query_scalar(count, hidden, heads, head_dim),
        "hidden_activation": "gelu_pytorch_tanh",
        "sliding_window": metadata.whole("attention.sliding_window", metadata.whole("context_length")),
        "rope_parameters": {
            "full_attention": full,
            "sliding_attention": {
                "rope_type": "default",
                "rope_theta": metadata.number("rope.freq_base_swa", 1e4),
            },
        },
    }
    if metadata.has("final_logit_softcapping") and metadata.number("final_logit_softcapping"):
        config["final_logit_softcapping"] = metadata.number("final_logit_softcapping")
    return config


def _llama(metadata: Metadata) -> dict[str, Any]:
    heads, hidden = metadata.whole("attention.head_count"), metadata.whole("embedding_length")
    head_dim = metadata.whole("attention.key_length", metadata.whole("rope.dimension_count", hidden // heads))
    if metadata.whole("expert_count", 0):
        return {"model_type": "mixtral"}  # which the reader of configs refuses by name
    if metadata.whole("rope.dimension_count", head_dim) != head_dim:
        raise CheckpointError(f"{metadata.path} turns a part of each head only: that is not served.")
    theta = metadata.number("rope.freq_base", 1e4)
    ropes: Mapping[str, Any] = {"rope_type": "default", "rope_theta": theta} | _scaling(metadata)
    divisors = metadata.rope_freqs()
    if divisors is not None:
        ropes = {"rope_theta": theta} | llama3_scaling(divisors, theta, metadata.path)
    config = {
        "intermediate_size": metadata.whole("feed_forward_length"),
        "num_key_value_heads": metadata.whole("attention.head_count_kv", heads),
        "head_dim": head_dim,
        "hidden_act": "silu",
        "mlp_bias": False,
        "rope_parameters": ropes,
    }
    if metadata.has("attention.sliding_window"):
        config |= {"model_type": "mistral", "sliding_window": metadata.whole("attention.sliding_window")}
    return config


def _scaling(metadata: Metadata) -> dict[str, Any]:
    """What the file says of stretched RoPE, as a config says it, whose reader refuses what is not served."""
    kind = metadata.text("rope.scaling.type", "none")
    if kind == "none":
        return {}
    return {"rope_type": kind, "factor": metadata.number("rope.scaling.factor", 1.0)}


def _layer_types(metadata: Metadata, count: int, period: int | None) -> list[str]:
    """The kind of each layer, from an array of flags or from a period."""
    key = "attention.sliding_window_pattern"
    flags = metadata.whole_numbers(key, 1, period)
    if len(flags) == 1:
        flags = [(index + 1) % flags[0] for index in range(count)]
    if len(flags) < count:
        raise CheckpointError(f"{metadata.path} has {len(flags)} flags in {key}: it has {count} layers.")
    return ["sliding_attention" if flag else "full_attention" for flag in flags[:count]]
