"""The quantization_config of a checkpoint in; out comes which of its modules are int4.

One scheme is served: compressed-tensors W4A16, pack-quantized, symmetric, groups of 32, no activation
quantisation (the `-qat-w4a16-ct` checkpoints). Anything else is refused by the name of the field.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from onechip.errors import CheckpointError
from onechip.kernels.api import GROUP

_WEIGHTS: dict[str, tuple[Any, ...]] = {
    "num_bits": (4,),
    "type": ("int",),
    "symmetric": (True,),
    "strategy": ("group",),
    "group_size": (GROUP,),
    "dynamic": (False, None),
    "actorder": (None, False, "static", "weight"),  # these order the rounding, not the columns
    "block_structure": (None,),
    "zp_dtype": (None,),
}
_WEIGHTS_REQUIRED = ("num_bits", "type", "symmetric", "strategy", "group_size")
_WEIGHTS_FREE = {"observer", "observer_kwargs", "scale_dtype"}  # say how the scales were found and stored
_GROUP: dict[str, tuple[Any, ...]] = {
    "input_activations": (None,),
    "output_activations": (None,),
    "format": (None, "pack-quantized"),
}
_TOP: dict[str, tuple[Any, ...]] = {
    "quant_method": ("compressed-tensors",),
    "format": ("pack-quantized",),
    "kv_cache_scheme": (None,),
    "sparsity_config": (None, {}, {"format": "dense"}),
    "transform_config": (None, {}),
    "quantization_status": (None, "compressed", "frozen"),
}
_TOP_FREE = {"version", "global_compression_ratio"}


@dataclass(frozen=True, slots=True)
class W4A16:
    """Which modules of a checkpoint are int4.

    Attributes:
        targets, ignore: module names, class names ("Linear", "Embedding"), or patterns ("re:..."); `ignore`
            wins.
    """

    targets: tuple[str, ...]
    ignore: tuple[str, ...]

    def covers(self, module: str, module_class: str = "Linear") -> bool:
        """Whether a module of this class, by its full name in the checkpoint, is packed."""
        names = (module, module_class)
        return _listed(names, self.targets) and not _listed(names, self.ignore)


def config_entry(ignore: list[str], tables: Sequence[str] = ()) -> dict[str, Any]:
    """A quantization_config for config.json in the one scheme that we read.

    Args:
        ignore: full names of the linear modules that are dense.
        tables: full names of the embedding tables that are int4.
    """
    weights = {"num_bits": 4, "type": "int", "symmetric": True, "strategy": "group", "group_size": GROUP}
    rest = {"weights": weights, "input_activations": None, "output_activations": None}
    groups = {"group_0": {"targets": ["Linear"], **rest}}
    if tables:
        # By name: the class of Gemma's tables is one of its own, which "Embedding" does not match everywhere.
        groups["group_1"] = {"targets": list(tables), **rest}
    return {
        "quant_method": "compressed-tensors",
        "format": "pack-quantized",
        "quantization_status": "compressed",
        "config_groups": groups,
        "ignore": ignore,
        "kv_cache_scheme": None,
    }


def read_scheme(config_json: Mapping[str, Any]) -> W4A16 | None:
    """The scheme of a checkpoint from its raw config.json; None if the weights are dense.

    Raises CheckpointError naming the field that is not served.
    """
    raw = config_json.get("quantization_config")
    if raw is None:
        raw = (config_json.get("text_config") or {}).get("quantization_config")
    if raw is None:
        return None
    where = "quantization_config"
    if not isinstance(raw, Mapping):
        raise _refused(where, raw)
    _check(raw, where, _TOP, ("quant_method", "format"), {"config_groups", "ignore"} | _TOP_FREE)
    groups = raw.get("config_groups")
    if not isinstance(groups, Mapping) or not groups:
        raise _refused(f"{where}.config_groups", groups)
    targets: list[str] = []
    for name, group in groups.items():
        targets += _group_targets(group, f"{where}.config_groups.{name}")
    return W4A16(tuple(targets), tuple(_names(raw.get("ignore") or [], f"{where}.ignore")))


def _group_targets(group: Any, where: str) -> list[str]:
    if not isinstance(group, Mapping):
        raise _refused(where, group)
    _check(group, where, _GROUP, (), {"targets", "weights"})
    weights = group.get("weights")
    if not isinstance(weights, Mapping):
        raise _refused(f"{where}.weights", weights)
    _check(weights, f"{where}.weights", _WEIGHTS, _WEIGHTS_REQUIRED, _WEIGHTS_FREE)
    return _names(group.get("targets"), f"{where}.targets")


def _check(
    values: Mapping[str, Any],
    where: str,
    served: Mapping[str, tuple[Any, ...]],
    required: tuple[str, ...],
    free: set[str],
) -> None:
    """Refuse a field that is required and absent, has a value that is not served, or is not known."""
    for name in required:
        if name not in values:
            raise _refused(f"{where}.{name}", None)
    for name, value in values.items():
        if name not in free and value not in served.get(name, (None,)):
            raise _refused(f"{where}.{name}", value)


def _names(value: Any, where: str) -> list[str]:
    if not isinstance(value, list) or not all(isinstance(name, str) for name in value):
        raise _refused(where, value)
    for name in value:
        if name.startswith("re:"):
            try:
                re.compile(name[3:])
            except re.error as error:
                raise CheckpointError(
                    f"{where} has the pattern {name!r}, which does not parse: {error}."
                ) from None
    return value


def _listed(names: tuple[str, str], listed: tuple[str, ...]) -> bool:
    """Whether a module of these names (its own, its class's) is in a list of names and patterns."""
    return any(
        re.match(name[3:], names[0]) is not None if name.startswith("re:") else name in names
        for name in listed
    )


def _refused(where: str, value: Any) -> CheckpointError:
    return CheckpointError(
        f"{where} is {json.dumps(value, default=str)}: onechip reads dense checkpoints and "
        f"compressed-tensors W4A16 only (pack-quantized, symmetric, group {GROUP}, activations as they are)."
    )
