"""A JSON object in; typed values out, or a CheckpointError that names the field. What all families share."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from onechip.errors import CheckpointError
from onechip.models.architecture import LayerKind, LayerSpec

KINDS: dict[str, LayerKind] = {"sliding_attention": "sliding", "full_attention": "full"}


def show(value: object) -> str:
    """A value as JSON, cut so that a message stays one line."""
    text = json.dumps(value, default=str)
    return text if len(text) <= 60 else text[:57] + "..."


@dataclass(frozen=True, slots=True)
class Fields:
    """Typed reads from a JSON object; a missing or wrong value is a CheckpointError that names the field.

    A field that is null counts as one that is not there: its default is taken, if it has one.
    """

    values: Mapping[str, Any]
    prefix: str = ""

    def has(self, name: str) -> bool:
        return self.values.get(name) is not None

    def wrong(self, name: str, wanted: str) -> CheckpointError:
        value = self.values.get(name)
        state = "is missing" if value is None else f"is {show(value)}"
        return CheckpointError(f"{self.prefix}{name} {state}: it must be {wanted}.")

    def whole(self, name: str, at_least: int, default: int | None = None) -> int:
        value = self.values.get(name)
        if value is None and default is not None:
            return default
        if not isinstance(value, int) or isinstance(value, bool) or value < at_least:
            raise self.wrong(name, f"a whole number of at least {at_least}")
        return value

    def size(self, name: str, default: int | None = None) -> int:
        return self.whole(name, 1, default)

    def token(self, name: str, default: int) -> int:
        return self.whole(name, 0, default)

    def positive(self, name: str, default: float | None = None) -> float:
        value = self.values.get(name)
        if value is None and default is not None:
            return default
        if not isinstance(value, int | float) or isinstance(value, bool) or not 0 < value < math.inf:
            raise self.wrong(name, "a number above 0")
        return float(value)

    def flag(self, name: str, default: bool) -> bool:
        value = self.values.get(name)
        if value is None:
            return default
        if not isinstance(value, bool):
            raise self.wrong(name, "true or false")
        return value

    def object(self, name: str) -> Fields:
        value = self.values.get(name)
        if not isinstance(value, Mapping):
            raise self.wrong(name, "an object")
        return Fields(value, f"{self.prefix}{name}.")

    def refuse_biases(self, *names: str) -> None:
        """Raise if one of these flags says that linear weights have biases, which no served family has."""
        for name in names:
            if self.flag(name, False):
                raise CheckpointError(
                    f"{self.prefix}{name} is true: onechip serves models without biases only."
                )


def text_part(raw: Mapping[str, Any]) -> Fields:
    """The fields of the text model: those of `text_config` where a multimodal config has one."""
    nested = raw.get("text_config")
    if nested is not None and not isinstance(nested, Mapping):
        raise CheckpointError(f"text_config is {show(nested)}: it must be an object.")
    return Fields(raw if nested is None else nested)


def top_flag(raw: Mapping[str, Any], text: Fields, name: str, default: bool) -> bool:
    """A flag that stands at the top level or in the text part; the top level wins."""
    return (Fields(raw) if name in raw else text).flag(name, default)


def layer_kinds(text: Fields, count: int) -> list[LayerKind]:
    """The kind of each of `count` layers, from `layer_types`."""
    names = text.values.get("layer_types")
    if not isinstance(names, list) or len(names) != count:
        raise text.wrong("layer_types", f"a list of {count} names, one for each of num_hidden_layers")
    for index, name in enumerate(names):
        if name not in KINDS:
            raise CheckpointError(
                f"layer_types[{index}] is {show(name)}: it must be one of {', '.join(KINDS)}."
            )
    return [KINDS[name] for name in names]


def checked_layer(layer: LayerSpec) -> LayerSpec:
    """The layer itself. Raises CheckpointError if its numbers do not fit together."""
    if layer.heads % layer.kv_heads:
        raise CheckpointError(
            f"layer {layer.index} has {layer.heads} heads and {layer.kv_heads} key-value heads: no multiple."
        )
    if layer.head_dim % 2:
        raise CheckpointError(
            f"layer {layer.index} has head_dim {layer.head_dim}: RoPE needs an even number."
        )
    return layer


def eos_ids(raw: Mapping[str, Any], text: Fields, default: int | None = None) -> tuple[int, ...]:
    """Stop ids, from the top level where there are any, else from the text part, else `default`."""
    holder = raw if raw.get("eos_token_id") is not None else text.values
    value = holder.get("eos_token_id")
    value = default if value is None else value
    ids = value if isinstance(value, list) else [value]
    if not ids or not all(isinstance(i, int) and not isinstance(i, bool) and i >= 0 for i in ids):
        raise Fields(holder).wrong("eos_token_id", "a token id or a list of token ids")
    return tuple(dict.fromkeys(ids))
