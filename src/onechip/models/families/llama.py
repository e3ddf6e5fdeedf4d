"""The config.json of a Llama-architecture model in; ModelConfig out.

Mistral's models are built alike; those with a `sliding_window` have it in every layer.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from onechip.errors import CheckpointError
from onechip.models.architecture import Block, LayerKind, LayerSpec, ModelConfig, Rope
from onechip.models.families.fields import Fields, checked_layer, eos_ids, layer_kinds
from onechip.models.families.rope import scaled_rope

MODEL_TYPES = ("llama", "mistral")

BLOCK = Block(
    activation="silu",
    norm_offset=0.0,
    qk_norm=False,
    v_norm=False,
    post_norms=False,
    layer_scalar=False,
)


def parse(raw: Mapping[str, Any]) -> ModelConfig:
    """ModelConfig from the raw config.json. Raises CheckpointError naming the field."""
    text = Fields(raw)
    _refuse_unserved(text)
    window = _window(text)
    layers = _layers(text, "sliding" if window else "full")
    max_position = text.size("max_position_embeddings", 2048 if raw["model_type"] == "llama" else 131072)
    rope = _rope(text, layers[0].head_dim, max_position)
    return ModelConfig(
        model_type=raw["model_type"],
        block=BLOCK,
        vocab=text.size("vocab_size"),
        hidden=text.size("hidden_size"),
        layers=layers,
        sliding_window=window,
        ple_dim=0,
        ple_vocab=0,
        max_position=max_position,
        norm_eps=text.positive("rms_norm_eps", 1e-6),
        softcap=None,
        attention_scale=layers[0].head_dim ** -0.5,
        embedding_scale=1.0,
        rope_sliding=rope,
        rope_full=rope,
        tied=text.flag("tie_word_embeddings", False),
        bos_id=text.token("bos_token_id", 1),
        pad_id=0 if text.values.get("pad_token_id") == -1 else text.token("pad_token_id", 0),
        eos_ids=eos_ids(raw, text, 2),
    )


def _refuse_unserved(text: Fields) -> None:
    """What a Llama config can say that this engine does not compute."""
    text.refuse_biases("attention_bias", "mlp_bias")
    if text.values.get("hidden_act", "silu") != "silu":
        raise text.wrong("hidden_act", '"silu"')


def _window(text: Fields) -> int:
    """Positions that each layer sees, 0 for all; an absent one is 4,096 in a Mistral, null is none."""
    if text.values.get("model_type") == "mistral":
        absent = 0 if "sliding_window" in text.values else 4096
        return text.whole("sliding_window", 1, absent)
    if text.has("sliding_window"):
        raise text.wrong("sliding_window", "null in a model of type llama")
    return 0


def _layers(text: Fields, kind: LayerKind) -> tuple[LayerSpec, ...]:
    count, heads = text.size("num_hidden_layers"), text.size("num_attention_heads")
    if text.has("layer_types") and set(layer_kinds(text, count)) != {kind}:
        raise text.wrong("layer_types", f'absent, or "{kind}_attention" for every layer')
    layer = LayerSpec(
        index=0,
        kind=kind,
        heads=heads,
        kv_heads=text.size("num_key_value_heads", heads),
        head_dim=_head_dim(text, heads),
        intermediate=text.size("intermediate_size"),
        kv_source=0,
    )
    checked_layer(layer)
    return tuple(replace(layer, index=index, kv_source=index) for index in range(count))


def _head_dim(text: Fields, heads: int) -> int:
    hidden = text.size("hidden_size")
    if not text.has("head_dim") and hidden % heads:
        raise CheckpointError(
            f"head_dim is missing, and hidden_size, {hidden}, is no multiple of num_attention_heads, {heads}."
        )
    return text.size("head_dim", hidden // heads)


def _rope(text: Fields, head_dim: int, max_position: int) -> Rope:
    """In transformers' spelling (`rope_parameters`) or in the published one."""
    if text.has("rope_parameters"):
        fields = text.object("rope_parameters")
        theta = (fields if fields.has("rope_theta") else text).positive("rope_theta", 1e4)
    else:
        fields = text.object("rope_scaling") if text.has("rope_scaling") else Fields({})
        theta = text.positive("rope_theta", 1e4)
    return scaled_rope(fields, theta, head_dim, max_position)
