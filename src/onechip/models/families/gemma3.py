"""The config.json of a Gemma 3 text model, or of the text part of a multimodal one, in; ModelConfig out.

Published configs of the 4B, 12B and 27B leave out what transformers (5.24, configuration_gemma3.py) has as
defaults: those are taken here too.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from onechip.models.architecture import Block, LayerKind, LayerSpec, ModelConfig, Rope
from onechip.models.families.fields import Fields, checked_layer, eos_ids, layer_kinds, text_part, top_flag
from onechip.models.families.rope import scaled_rope

MODEL_TYPES = ("gemma3", "gemma3_text")

BLOCK = Block(
    activation="gelu_tanh",
    norm_offset=1.0,
    qk_norm=True,
    v_norm=False,
    post_norms=True,
    layer_scalar=False,
)


def parse(raw: Mapping[str, Any]) -> ModelConfig:
    """ModelConfig from the raw config.json, nested or flat. Raises CheckpointError naming the field."""
    text = text_part(raw)
    _refuse_unserved(text)
    hidden = text.size("hidden_size")
    layers = _layers(text)
    max_position = text.size("max_position_embeddings", 131072)
    sliding, full = _ropes(text, layers[0].head_dim, max_position)
    return ModelConfig(
        model_type=raw["model_type"],
        block=BLOCK,
        vocab=text.size("vocab_size", 262208),
        hidden=hidden,
        layers=layers,
        sliding_window=text.size("sliding_window", 4096),
        ple_dim=0,
        ple_vocab=0,
        max_position=max_position,
        norm_eps=text.positive("rms_norm_eps", 1e-6),
        softcap=text.positive("final_logit_softcapping") if text.has("final_logit_softcapping") else None,
        attention_scale=text.positive("query_pre_attn_scalar", 256) ** -0.5,
        embedding_scale=hidden**0.5,
        rope_sliding=sliding,
        rope_full=full,
        tied=top_flag(raw, text, "tie_word_embeddings", True),
        bos_id=text.token("bos_token_id", 2),
        pad_id=text.token("pad_token_id", 0),
        eos_ids=eos_ids(raw, text, 1),
    )


def _refuse_unserved(text: Fields) -> None:
    """What a Gemma 3 config can say that this engine does not compute."""
    text.refuse_biases("attention_bias")
    if text.values.get("use_bidirectional_attention") not in (None, False):
        raise text.wrong("use_bidirectional_attention", "false: embedding models are not served")
    if text.has("attn_logit_softcapping"):
        raise text.wrong("attn_logit_softcapping", "null: capped attention (Gemma 2) is not served")
    if text.values.get("hidden_activation", "gelu_pytorch_tanh") != "gelu_pytorch_tanh":
        raise text.wrong("hidden_activation", '"gelu_pytorch_tanh"')


def _kinds(text: Fields, count: int) -> list[LayerKind]:
    """From `layer_types`, or every so many-th layer full, as published configs say it."""
    if text.has("layer_types"):
        return layer_kinds(text, count)
    name = "sliding_window_pattern" if text.has("sliding_window_pattern") else "_sliding_window_pattern"
    period = text.size(name, 6)
    return ["sliding" if (index + 1) % period else "full" for index in range(count)]


def _layers(text: Fields) -> tuple[LayerSpec, ...]:
    return tuple(
        checked_layer(
            LayerSpec(
                index=index,
                kind=kind,
                heads=text.size("num_attention_heads", 8),
                kv_heads=text.size("num_key_value_heads", 4),
                head_dim=text.size("head_dim", 256),
                intermediate=text.size("intermediate_size"),
                kv_source=index,
            )
        )
        for index, kind in enumerate(_kinds(text, text.size("num_hidden_layers")))
    )


def _ropes(text: Fields, head_dim: int, max_position: int) -> tuple[Rope, Rope]:
    """Of sliding and of full layers, in transformers' spelling or in the published one.

    As published, `rope_scaling` is for the full layers alone.
    """
    if text.has("rope_parameters"):
        parameters = text.object("rope_parameters")
        sliding, full = (parameters.object(f"{kind}_attention") for kind in ("sliding", "full"))
        thetas = sliding.positive("rope_theta", 1e4), full.positive("rope_theta", 1e6)
    else:
        sliding = Fields({})
        full = text.object("rope_scaling") if text.has("rope_scaling") else Fields({})
        thetas = text.positive("rope_local_base_freq", 1e4), text.positive("rope_theta", 1e6)
    return (
        scaled_rope(sliding, thetas[0], head_dim, max_position),
        scaled_rope(full, thetas[1], head_dim, max_position),
    )
