"""A checkpoint's folder -> what is said of the model to clients that ask."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from onechip.models.config import read_json

_FORMATS = {".safetensors": "safetensors", ".gguf": "gguf"}


@dataclass(frozen=True, slots=True)
class Facts:
    """Read once, when the model is loaded: its files may be gone later.

    Attributes:
        family: `model_type` of config.json.
        format: of the weights' files, safetensors or gguf; empty if there are none.
        weight_bytes: size of the weights' files.
        modified: when the newest of them was written, in seconds since 1970.
    """

    family: str
    format: str
    weight_bytes: int
    modified: float

    @classmethod
    def read(cls, folder: Path) -> Facts:
        """The facts of `folder`. Raises CheckpointError if it has no readable config.json."""
        files = [path for path in sorted(folder.iterdir()) if path.suffix in _FORMATS]
        stats = [path.stat() for path in files]
        return cls(
            family=str(read_json(folder / "config.json").get("model_type", "")),
            format=_FORMATS[files[0].suffix] if files else "",
            weight_bytes=sum(stat.st_size for stat in stats),
            modified=max((stat.st_mtime for stat in stats), default=0.0),
        )
