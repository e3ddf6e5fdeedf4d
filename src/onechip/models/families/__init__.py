"""The families that are served: for each, its `model_type` values and the reader of its config.json."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from onechip.models.architecture import ModelConfig
from onechip.models.families import gemma3, gemma4, llama

Parse = Callable[[Mapping[str, Any]], ModelConfig]

FAMILIES: dict[str, tuple[tuple[str, ...], Parse]] = {
    "Gemma 4": (gemma4.MODEL_TYPES, gemma4.parse),
    "Gemma 3 text": (gemma3.MODEL_TYPES, gemma3.parse),
    "Llama": (llama.MODEL_TYPES, llama.parse),
}
"""Family's name -> (its model types, its reader)."""


def served() -> str:
    """All families with their model types, for a person."""
    *first, last = (f"{name} ({', '.join(types)})" for name, (types, _) in FAMILIES.items())
    return f"{', '.join(first)} and {last}"
