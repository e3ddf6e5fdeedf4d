"""A checkpoint's config.json in; out comes ModelConfig, a frozen dataclass the rest of the code relies on.

Whatever the file says that we do not serve is refused here, by name, before anything is loaded.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from onechip.errors import CheckpointError

LayerKind = Literal["sliding", "full"]

MODEL_TYPES = ("gemma4", "gemma4_text", "gemma4_unified", "gemma4_unified_text")
"""The `model_type` values that we serve; the ones without `_text` nest the text model under `text_config`."""

_KINDS: dict[str, LayerKind] = {"sliding_attention": "sliding", "full_attention": "full"}
_LAYER_OVERRIDES = ("head_dim", "num_key_value_heads")


@dataclass(frozen=True, slots=True)
class LayerSpec:
    """The shape of one layer.

    Attributes:
        index: 0-based position in the stack.
        kind: "sliding" (attends to the last `sliding_window` positions, itself included) or "full".
        heads, kv_heads, head_dim: of this layer; Q has the same head_dim as K and V.
        intermediate: width of the MLP.
        kv_source: the layer whose cache it attends to; its own index if it computes K and V.
        k_eq_v: V is the raw K projection, normalised; there is no v_proj.
    """

    index: int
    kind: LayerKind
    heads: int
    kv_heads: int
    head_dim: int
    intermediate: int
    kv_source: int
    k_eq_v: bool

    @property
    def owns_kv(self) -> bool:
        return self.kv_source == self.index


@dataclass(frozen=True, slots=True)
class ModelConfig:
    """A Gemma 4 text model (the published config.json of google/gemma-4-E2B-it and its family).

    Attributes:
        ple_dim: width of the per-layer embeddings, 0 if the model has none.
        ple_vocab: rows of the per-layer table, 0 if the model has none.
        layers: one LayerSpec a layer.
        softcap: final logit softcapping, None if there is none.
        rope_theta_sliding, rope_theta_full: RoPE bases; the full layers use "proportional" RoPE, in which
            only the first `rope_fraction_full` of the frequency pairs turn.
        tied: the output head is the embedding table.
        eos_ids: stop ids of config.json (the tokenizer side adds generation_config's).
    """

    model_type: str
    vocab: int
    hidden: int
    layers: tuple[LayerSpec, ...]
    sliding_window: int
    ple_dim: int
    ple_vocab: int
    max_position: int
    norm_eps: float
    softcap: float | None
    rope_theta_sliding: float
    rope_theta_full: float
    rope_fraction_full: float
    tied: bool
    bos_id: int
    pad_id: int
    eos_ids: tuple[int, ...]

    @property
    def own_layers(self) -> tuple[LayerSpec, ...]:
        """The layers that write a cache, in order."""
        return tuple(layer for layer in self.layers if layer.owns_kv)

    @property
    def first_shared(self) -> int:
        """Index of the first layer after which nothing writes a cache; len(layers) if all do."""
        return max(layer.index for layer in self.layers if layer.owns_kv) + 1


def read_json(path: Path) -> dict[str, Any]:
    """The JSON object in a checkpoint's file. Raises CheckpointError, naming the file, if there is none."""
    try:
        value = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise CheckpointError(
            f"{path} is missing: a checkpoint folder has config.json, *.safetensors and tokenizer.json."
        ) from None
    except (OSError, ValueError) as error:
        raise CheckpointError(f"{path} cannot be read as JSON ({error}): fetch the file again.") from None
    if not isinstance(value, dict):
        raise CheckpointError(f"{path} holds {_show(value)}, not a JSON object: fetch the file again.")
    return value


def read_config(folder: Path) -> ModelConfig:
    """The config of the checkpoint in `folder`. Raises CheckpointError naming the file and the field."""
    if not folder.is_dir():
        raise CheckpointError(f"{folder} is not a folder: give the folder that holds config.json.")
    path = folder / "config.json"
    try:
        return parse_config(read_json(path))
    except CheckpointError as error:
        prefix = "" if str(path) in error.message else f"{path}: "
        raise CheckpointError(prefix + error.message) from None


def parse_config(raw: Mapping[str, Any]) -> ModelConfig:
    """ModelConfig from the raw JSON object of config.json, multimodal (nested) or text-only (flat).

    Both layouts of the layers' shapes are read: `global_head_dim` and `num_global_key_value_heads` as
    published, and `per_layer_config` as transformers writes it since 5.15. Raises CheckpointError naming
    the field.
    """
    model_type = raw.get("model_type")
    if model_type not in MODEL_TYPES:
        raise CheckpointError(
            f"model_type is {_show(model_type)}: onechip serves Gemma 4 only ({', '.join(MODEL_TYPES)})."
        )
    nested = raw.get("text_config")
    if nested is not None and not isinstance(nested, Mapping):
        raise CheckpointError(f"text_config is {_show(nested)}: it must be an object.")
    text = _Fields(raw if nested is None else nested)
    _refuse_unserved(text)
    layers = _layers(text)
    ple_dim, ple_vocab = _ple(text, model_type)
    theta_sliding, theta_full, fraction = _rope(text)
    return ModelConfig(
        model_type=model_type,
        vocab=text.size("vocab_size"),
        hidden=text.size("hidden_size"),
        layers=layers,
        sliding_window=text.size("sliding_window"),
        ple_dim=ple_dim,
        ple_vocab=ple_vocab,
        max_position=text.size("max_position_embeddings"),
        norm_eps=text.positive("rms_norm_eps"),
        softcap=text.positive("final_logit_softcapping") if text.has("final_logit_softcapping") else None,
        rope_theta_sliding=theta_sliding,
        rope_theta_full=theta_full,
        rope_fraction_full=fraction,
        tied=(_Fields(raw) if "tie_word_embeddings" in raw else text).flag("tie_word_embeddings", True),
        bos_id=text.token("bos_token_id", 2),
        pad_id=text.token("pad_token_id", 0),
        eos_ids=_eos_ids(raw, text),
    )


@dataclass(frozen=True, slots=True)
class _Fields:
    """Typed reads from a JSON object; a missing or wrong value is a CheckpointError that names the field."""

    values: Mapping[str, Any]
    prefix: str = ""

    def has(self, name: str) -> bool:
        return self.values.get(name) is not None

    def wrong(self, name: str, wanted: str) -> CheckpointError:
        value = self.values.get(name)
        state = "is missing" if value is None else f"is {_show(value)}"
        return CheckpointError(f"{self.prefix}{name} {state}: it must be {wanted}.")

    def whole(self, name: str, at_least: int, default: int | None = None) -> int:
        value = self.values.get(name)
        if value is None and default is not None:
            return default
        if not isinstance(value, int) or isinstance(value, bool) or value < at_least:
            raise self.wrong(name, f"a whole number of at least {at_least}")
        return value

    def size(self, name: str) -> int:
        return self.whole(name, 1)

    def token(self, name: str, default: int) -> int:
        return self.whole(name, 0, default)

    def positive(self, name: str) -> float:
        value = self.values.get(name)
        if not isinstance(value, int | float) or isinstance(value, bool) or not 0 < value < math.inf:
            raise self.wrong(name, "a number above 0")
        return float(value)

    def flag(self, name: str, default: bool) -> bool:
        value = self.values.get(name, default)
        if not isinstance(value, bool):
            raise self.wrong(name, "true or false")
        return value

    def object(self, name: str) -> _Fields:
        value = self.values.get(name)
        if not isinstance(value, Mapping):
            raise self.wrong(name, "an object")
        return _Fields(value, f"{self.prefix}{name}.")


def _show(value: object) -> str:
    """A value as JSON, cut so that a message stays one line."""
    text = json.dumps(value, default=str)
    return text if len(text) <= 60 else text[:57] + "..."


def _refuse_unserved(text: _Fields) -> None:
    """What a Gemma 4 config can say that this engine does not compute."""
    if text.flag("enable_moe_block", False):
        raise CheckpointError(
            "enable_moe_block is true: mixture-of-experts models (26B-A4B) are not served; "
            "E2B, E4B, 12B and 31B are."
        )
    if text.flag("attention_bias", False):
        raise CheckpointError("attention_bias is true: onechip serves Gemma 4 without attention biases only.")
    if text.values.get("use_bidirectional_attention") not in (None, "vision"):
        raise text.wrong("use_bidirectional_attention", 'null or "vision" (text is causal under both)')
    if text.values.get("hidden_activation", "gelu_pytorch_tanh") != "gelu_pytorch_tanh":
        raise text.wrong("hidden_activation", '"gelu_pytorch_tanh"')


def _kinds(text: _Fields) -> list[LayerKind]:
    count = text.size("num_hidden_layers")
    names = text.values.get("layer_types")
    if not isinstance(names, list) or len(names) != count:
        raise text.wrong("layer_types", f"a list of {count} names, one for each of num_hidden_layers")
    for index, name in enumerate(names):
        if name not in _KINDS:
            raise CheckpointError(
                f"layer_types[{index}] is {_show(name)}: it must be one of {', '.join(_KINDS)}."
            )
    if names[-1] != "full_attention":
        raise CheckpointError(
            f"layer_types[{count - 1}] is {_show(names[-1])}: the last layer must be full_attention."
        )
    return [_KINDS[name] for name in names]


def _layers(text: _Fields) -> tuple[LayerSpec, ...]:
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
        if heads % kv_heads:
            raise CheckpointError(
                f"layer {index} has {heads} heads and {kv_heads} key-value heads: no multiple."
            )
        if head_dim % 2:
            raise CheckpointError(f"layer {index} has head_dim {head_dim}: RoPE needs an even number.")
        layers.append(
            LayerSpec(
                index=index,
                kind=kind,
                heads=heads,
                kv_heads=kv_heads,
                head_dim=head_dim,
                intermediate=width if index < own else wide,
                kv_source=_kv_source(kinds, index, own),
                k_eq_v=kind == "full" and text.flag("attention_k_eq_v", False),
            )
        )
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


def _attention_shape(text: _Fields, kind: LayerKind, own: _Fields | None) -> tuple[int, int]:
    """(kv_heads, head_dim) of a layer; `own` is its entry in `per_layer_config` where the config has that."""
    if own is not None:
        kv_heads = (own if own.has("num_key_value_heads") else text).size("num_key_value_heads")
        return kv_heads, (own if own.has("head_dim") else text).size("head_dim")
    if kind == "sliding":
        return text.size("num_key_value_heads"), text.size("head_dim")
    grouped = text.flag("attention_k_eq_v", False) and text.has("num_global_key_value_heads")
    kv_heads = text.size("num_global_key_value_heads" if grouped else "num_key_value_heads")
    return kv_heads, text.size("global_head_dim")


def _overrides(text: _Fields, count: int) -> dict[int, _Fields] | None:
    """`per_layer_config` with an entry for each of `count` layers, or None in the published layout."""
    if not text.has("per_layer_config"):
        return None
    table = text.object("per_layer_config")
    overrides = {index: _Fields({}) for index in range(count)}
    for key in table.values:
        if not key.isdecimal() or int(key) >= count:
            raise CheckpointError(
                f"per_layer_config has the key {_show(key)}: keys are layers, 0 to {count - 1}."
            )
        own = table.object(key)
        for name in own.values:
            if name not in _LAYER_OVERRIDES:
                served = " and ".join(_LAYER_OVERRIDES)
                raise CheckpointError(f"{own.prefix}{name} is not served: a layer can have its own {served}.")
        overrides[int(key)] = own
    return overrides


def _ple(text: _Fields, model_type: str) -> tuple[int, int]:
    """(width, rows) of the per-layer embeddings, 0 and 0 without. The unified models name neither."""
    unified = model_type.startswith("gemma4_unified")
    width = text.whole("hidden_size_per_layer_input", 0, 0 if unified else None)
    if not width:
        return 0, 0
    return width, text.whole("vocab_size_per_layer_input", text.size("vocab_size"))


def _rope(text: _Fields) -> tuple[float, float, float]:
    """(theta of sliding layers, theta of full layers, fraction of the full layers' pairs that turn)."""
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
    return sliding.positive("rope_theta"), full.positive("rope_theta"), fraction


def _eos_ids(raw: Mapping[str, Any], text: _Fields) -> tuple[int, ...]:
    """Stop ids, from the top level where there are any, else from the text part."""
    holder = raw if raw.get("eos_token_id") is not None else text.values
    value = holder.get("eos_token_id")
    ids = value if isinstance(value, list) else [value]
    if not ids or not all(isinstance(i, int) and not isinstance(i, bool) and i >= 0 for i in ids):
        raise _Fields(holder).wrong("eos_token_id", "a token id or a list of token ids")
    return tuple(dict.fromkeys(ids))
