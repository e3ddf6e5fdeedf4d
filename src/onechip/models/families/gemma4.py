"""The config.json of a Gemma 4 text model, or of the text part of a multimodal one, in; ModelConfig out."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from onechip.errors import CheckpointError
from onechip.models.architecture import Block, LayerKind, LayerSpec, ModelConfig, Rope
from onechip.models.families.fields import (
    Fields,
    checked_layer,
    eos_ids,
    layer_kinds,
    show,
    text_part,
    top_flag,
)

MODEL_TYPES = ("gemma4", "gemma4_text", "gemma4_unified", "gemma4_unified_text")

BLOCK = Block(
    activation="gelu_tanh",
    norm_offset=0.0,
    qk_norm=True,
    v_norm=True,
    post_norms=True,
    layer_scalar=True,
)

_LAYER_OVERRIDES = ("head_dim", "num_key_value_heads")


def parse(raw: Mapping[str, Any]) -> ModelConfig:
    """ModelConfig from the raw config.json, multimodal (nested) or text-only (flat).

    Both layouts of the layers' shapes are read: `global_head_dim` and `num_global_key_value_heads` as
    published, and `per_layer_config` as transformers writes it since 5.15. Raises CheckpointError naming
    the field.
    """
    text = text_part(raw)
    _refuse_unserved(text)
    layers = _layers(text)
    ple_dim, ple_vocab = _ple(text, raw["model_type"])
    sliding, full = _ropes(text)
    hidden = text.size("hidden_size")
    return ModelConfig(
        model_type=raw["model_type"],
        block=BLOCK,
        vocab=text.size("vocab_size"),
        hidden=hidden,
        layers=layers,
        sliding_window=text.size("sliding_window"),
        ple_dim=ple_dim,
        ple_vocab=ple_vocab,
        max_position=text.size("max_position_embeddings"),
        norm_eps=text.positive("rms_norm_eps"),
        softcap=text.positive("final_logit_softcapping") if text.has("final_logit_softcapping") else None,
        attention_scale=1.0,  # q_norm has it
        embedding_scale=hidden**0.5,
        rope_sliding=sliding,
        rope_full=full,
        tied=top_flag(raw, text, "tie_word_embeddings", True),
        bos_id=text.token("bos_token_id", 2),
        pad_id=text.token("pad_token_id", 0),
        eos_ids=eos_ids(raw, text),
    )


def _refuse_unserved(text: Fields) -> None:
    """What a Gemma 4 config can say that this engine does not compute."""
    if text.flag("enable_moe_block", False):
        raise CheckpointError(
            "enable_moe_block is true: mixture-of-experts models (26B-A4B) are not served; "
            "E2B, E4B, 12B and 31B are."
        )
    text.refuse_biases("attention_bias")
    if text.values.get("use_bidirectional_attention") not in (None, "vision"):
        raise text.wrong("use_bidirectional_attention", 'null or "vision" (text is causal under both)')
    if text.values.get("hidden_activation", "gelu_pytorch_tanh") != "gelu_pytorch_tanh":
        raise text.wrong("hidden_activation", '"gelu_pytorch_tanh"')


def _kinds(text: Fields) -> list[LayerKind]:
    kinds = layer_kinds(text, text.size("num_hidden_layers"))
    if kinds[-1] != "full":
        raise CheckpointError(
            f"layer_types[{len(kinds) - 1}] is {show(text.values['layer_types'][-1])}: "
            "the last layer must be full_attention."
        )
    return kinds


def _layers(text: Fields) -> tuple[LayerSpec, ...]:
    kinds = _kinds(text)
    shared = text.whole("num_kv_shared_layers", 0, 0)
    own = len(kinds) - shared
    if own < 1:
        raise CheckpointError(
            f"num_kv_shared_layers is {shared}: num_hidden_layers, {len(kinds)}, must be more."
        )
    heads = text.size("num_attention_heads")
    width = text.size("intermediate_size")
    wide = 2 * width if text.flag("use_double_wide_mlp", False) else width
    overrides = _overrides(text, len(kinds))
    layers = []
    for index, kind in enumerate(kinds):
        kv_heads, head_dim = _attention_shape(text, kind, overrides[index] if overrides else None)
        layer = LayerSpec(
            index=index,
            kind=kind,
            heads=heads,
            kv_heads=kv_heads,
            head_dim=head_dim,
            intermediate=width if index < own else wide,
            kv_source=_kv_source(kinds, index, own),
            k_eq_v=kind == "full" and text.flag("attention_k_eq_v", False),
        )
        layers.append(checked_layer(layer))
    return tuple(layers)


def _kv_source(kinds: list[LayerKind], index: int, own: int) -> int:
    """The layer itself, or for a layer past the first `own` the last one of those of its kind."""
    for source in range(min(index, own - 1), -1, -1):
        if kinds[source] == kinds[index]:
            return source
    raise CheckpointError(
        f"layer {index} ({kinds[index]}) shares K and V, but none of the first {own} layers is: "
        "num_kv_shared_layers and layer_types do not fit together."
    )


def _attention_shape(text: Fields, kind: LayerKind, own: Fields | None) -> tuple[int, int]:
    """(kv_heads, head_dim) of a layer; `own` is its entry in `per_layer_config` where the config has that."""
    if own is not None:
        kv_heads = (own if own.has("num_key_value_heads") else text).size("num_key_value_heads")
        return kv_heads, (own if own.has("head_dim") else text).size("head_dim")
    if kind == "sliding":
        return text.size("num_key_value_heads"), text.size("head_dim")
    grouped = text.flag("attention_k_eq_v", False) and text.has("num_global_key_value_heads")
    kv_heads = text.size("num_global_key_value_heads" if grouped else "num_key_value_heads")
    return kv_heads, text.size("global_head_dim")


def _overrides(text: Fields, count: int) -> dict[int, Fields] | None:
    """`per_layer_config` with an entry for each of `count` layers, or None in the published layout."""
    if not text.has("per_layer_config"):
        return None
    table = text.object("per_layer_config")
    overrides = {index: Fields({}) for index in range(count)}
    for key in table.values:
        if not key.isdecimal() or int(key) >= count:
            raise CheckpointError(
                f"per_layer_config has the key {show(key)}: keys are layers, 0 to {count - 1}."
            )
        own = table.object(key)
        for name in own.values:
            if name not in _LAYER_OVERRIDES:
                served = " and ".join(_LAYER_OVERRIDES)
                raise CheckpointError(f"{own.prefix}{name} is not served: a layer can have its own {served}.")
        overrides[int(key)] = own
    return overrides


def _ple(text: Fields, model_type: str) -> tuple[int, int]:
    """(width, rows) of the per-layer embeddings, 0 and 0 without. The unified models name neither."""
    unified = model_type.startswith("gemma4_unified")
    width = text.whole("hidden_size_per_layer_input", 0, 0 if unified else None)
    if not width:
        return 0, 0
    return width, text.whole("vocab_size_per_layer_input", text.size("vocab_size"))


def _ropes(text: Fields) -> tuple[Rope, Rope]:
    """Of sliding layers and of full ones, of which only a fraction of the pairs turns."""
    parameters = text.object("rope_parameters")
    sliding = parameters.object("sliding_attention")
    full = parameters.object("full_attention")
    for fields, kind in ((sliding, "default"), (full, "proportional")):
        if fields.values.get("rope_type") != kind:
            raise fields.wrong("rope_type", f'"{kind}"')
        if fields.values.get("factor") not in (None, 1, 1.0):
            raise fields.wrong("factor", "absent: stretched RoPE is not served")
    fraction = full.positive("partial_rotary_factor")
    if fraction > 1:
        raise full.wrong("partial_rotary_factor", "at most 1")
    return Rope(sliding.positive("rope_theta")), Rope(full.positive("rope_theta"), fraction)
