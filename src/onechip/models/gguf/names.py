"""A tensor of the model in; out comes its name in a GGUF file, and what is done to its values there.

Names are those of the `gguf` package's tables. What is done to values is llama.cpp's convention, found in its
converter (conversion/gemma.py, conversion/llama.py, 2026-11) and in how its graphs use the weights.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from onechip.models.config import ModelConfig
from onechip.models.layout import TensorSpec

ARCHITECTURES = {"gemma4": "gemma4_text", "gemma3": "gemma3_text", "llama": "llama"}
"""`general.architecture` of the files that we read and write -> `model_type` of the config made from it."""

CAUSAL_MODELS = {
    "gemma4_text": "Gemma4ForCausalLM",
    "gemma3_text": "Gemma3ForCausalLM",
    "llama": "LlamaForCausalLM",
    "mistral": "MistralForCausalLM",
}
"""`model_type` of a config made from a GGUF file -> what `architectures` calls the model that writes text."""

SAMPLING = {
    "temperature": "general.sampling.temp",
    "top_k": "general.sampling.top_k",
    "top_p": "general.sampling.top_p",
    "min_p": "general.sampling.min_p",
}
"""A field of generation_config.json -> the format's key for it."""

OWN_DO_SAMPLE = "onechip.generation.do_sample"
OWN_STOPS = "onechip.eos_token_ids"
OWN_GENERATION_STOPS = "onechip.generation.eos_token_ids"
OWN_RANDOM_WEIGHTS = "onechip.random_weights"
"""What the format has no key for: whether to sample, all stop ids in their order (config.json's and
generation_config.json's), and the mark of `onechip synth`. Other readers skip keys that they do not know."""

ROPE_FREQS = "rope_freqs.weight"
"""F32 [head_dim / 2] of the full layers: each frequency is divided by its entry. It follows from the config
(the part of gemma4's pairs that turns, llama3's scaling) and is no tensor of ours; gemma3 files have none."""

_SHARED = {
    "embed_tokens": "token_embd",
    "norm": "output_norm",
    "lm_head": "output",
}
_LAYER = {
    "input_layernorm": "attn_norm",
    "self_attn.q_proj": "attn_q",
    "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v",
    "self_attn.o_proj": "attn_output",
    "mlp.gate_proj": "ffn_gate",
    "mlp.up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down",
}
_LLAMA_LAYER = _LAYER | {"post_attention_layernorm": "ffn_norm"}
_GEMMA3_LAYER = _LAYER | {
    "self_attn.q_norm": "attn_q_norm",
    "self_attn.k_norm": "attn_k_norm",
    "post_attention_layernorm": "post_attention_norm",
    "pre_feedforward_layernorm": "ffn_norm",
    "post_feedforward_layernorm": "post_ffw_norm",
}
_GEMMA4_LAYER = _GEMMA3_LAYER | {
    "per_layer_input_gate": "inp_gate",
    "per_layer_projection": "proj",
    "post_per_layer_input_norm": "post_norm",
    "layer_scalar": "layer_output_scale",
}
_GEMMA4 = _SHARED | {
    "embed_tokens_per_layer": "per_layer_token_embd",
    "per_layer_model_projection": "per_layer_model_proj",
    "per_layer_projection_norm": "per_layer_proj_norm",
}


@dataclass(frozen=True, slots=True)
class Naming:
    """The names of one architecture, and what its files do to values.

    Attributes:
        model, layer: a module of ours -> its name in GGUF, outside the layers and in one (after "blk.N.").
        norm_shift: added to every norm's weights in the file: where a model multiplies by 1 + w, that is 1.
        interleaved: the rows of Q and K stand in the order of RoPE over neighbouring pairs; see `interleave`.
    """

    model: Mapping[str, str]
    layer: Mapping[str, str]
    norm_shift: float = 0.0
    interleaved: bool = False


NAMINGS = {
    "gemma4": Naming(_GEMMA4, _GEMMA4_LAYER),
    "gemma3": Naming(_SHARED, _GEMMA3_LAYER, norm_shift=1.0),
    "llama": Naming(_SHARED, _LLAMA_LAYER, interleaved=True),
}

_GEMMA3_27B_LAYERS = 62
_LAYER_NAME = re.compile(r"layers\.(\d+)\.(.+)")


@dataclass(frozen=True, slots=True)
class GgufTensor:
    """Where a tensor of ours stands in a GGUF file.

    Attributes:
        name: in the file.
        shift: the file's values are ours plus this.
        heads: above 0, the file's rows are ours through `interleave(rows, heads)`.
    """

    name: str
    shift: float = 0.0
    heads: int = 0


def architecture(config: ModelConfig) -> str:
    """`general.architecture` of a GGUF file with this model."""
    if config.model_type == "mistral":
        return "llama"
    return next(name for name in NAMINGS if config.model_type.startswith(name))


def gguf_tensor(spec: TensorSpec, config: ModelConfig) -> GgufTensor:
    """The place of `spec` in a GGUF file of this model. Raises KeyError if its architecture has none."""
    naming = NAMINGS[architecture(config)]
    match = _LAYER_NAME.fullmatch(spec.module)
    name = naming.model[spec.module] if match is None else f"blk.{match[1]}.{naming.layer[match[2]]}"
    shift = naming.norm_shift if spec.module.endswith("norm") else 0.0
    heads = 0
    if naming.interleaved and match is not None and match[2] in ("self_attn.q_proj", "self_attn.k_proj"):
        layer = config.layers[int(match[1])]
        heads = layer.heads if match[2] == "self_attn.q_proj" else layer.kv_heads
    return GgufTensor(f"{name}.weight", shift, heads)


def gemma3_query_scalar(layers: int, hidden: int, heads: int, head_dim: int) -> int:
    """`query_pre_attn_scalar`, which stands in no key: llama.cpp knows the 27B, the one published model where
    it is not the width of a head, by its number of layers.
    """
    return hidden // heads if layers == _GEMMA3_27B_LAYERS else head_dim


def interleave(rows: int, heads: int) -> NDArray[Any]:
    """Which of our rows stands at each row of the file, [rows]: of each head, one of each half in turn.

    Our RoPE turns the pairs (i, i + d/2) of a head of d rows, llama.cpp's for Llama the pairs (2i, 2i + 1).
    """
    order = np.arange(rows).reshape(heads, 2, rows // heads // 2)
    return order.swapaxes(1, 2).reshape(rows)


def deinterleave(rows: int, heads: int) -> NDArray[Any]:
    """Which row of the file stands at each of our rows, [rows]; the inverse of `interleave`."""
    return np.argsort(interleave(rows, heads))
