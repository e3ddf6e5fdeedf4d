"""A checkpoint's config.json in; out comes ModelConfig, which the rest of the code relies on.

Whatever the file says that we do not serve is refused by name, here or in the family that it belongs to
(models/families), before anything is loaded.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from onechip.errors import CheckpointError
from onechip.models.architecture import LayerKind, LayerSpec, ModelConfig
from onechip.models.families import FAMILIES, served
from onechip.models.families.fields import show

__all__ = ["LayerKind", "LayerSpec", "ModelConfig", "parse_config", "read_config", "read_json"]


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
        raise CheckpointError(f"{path} holds {show(value)}, not a JSON object: fetch the file again.")
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
    """ModelConfig from the raw JSON object of config.json, of whichever family its `model_type` names.

    Raises CheckpointError naming the field; of a model that is of no served family, with the list of those.
    """
    model_type = raw.get("model_type")
    for types, parse in FAMILIES.values():
        if model_type in types:
            return parse(raw)
    raise CheckpointError(f"model_type is {show(model_type)}: onechip serves {served()}.")
