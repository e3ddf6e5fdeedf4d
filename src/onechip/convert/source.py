"""A checkpoint to convert: its config, its tensors some rows at a time, and the files that go with it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from onechip.convert.encode import Index, Tensor
from onechip.convert.gguf_tokenizer import tokenizer_metadata
from onechip.convert.gguf_writer import Metadata
from onechip.kernels.api import Int4
from onechip.models.config import ModelConfig, parse_config, read_json
from onechip.models.layout import TensorSpec, get
from onechip.models.quant import BFLOAT16
from onechip.models.tensorfile import TensorFile
from onechip.models.weights import SIBLINGS, load_weights, open_files

_COMPANIONS = ("*.json", "*.jinja", "*.model", "*.txt", "additional_chat_templates/*.jinja")
_NOT_COMPANIONS = ("config.json", "model.safetensors.index.json")


class Source(Protocol):
    """A checkpoint.

    Attributes:
        name: of the model, for a person.
        config_json: the raw config.json, or what stands for it.
        config: the same, read.
        siblings: tensors of the vision and audio parts: name -> the file that has it.
    """

    name: str
    config_json: dict[str, Any]
    config: ModelConfig
    siblings: dict[str, TensorFile]

    def tensor(self, spec: TensorSpec) -> Tensor:
        """A tensor of the text model. Raises CheckpointError if it is missing or damaged."""

    def companions(self) -> dict[str, bytes]:
        """The files that a checkpoint folder has beside config.json and the weights: name -> content."""

    def tokenizer_keys(self) -> Metadata:
        """The `tokenizer.*` keys of a GGUF file. Raises CheckpointError if GGUF has none for this one."""


def open_source(path: Path) -> Source:
    """The checkpoint in a folder of safetensors or in a .gguf file. Raises CheckpointError if it is none."""
    if path.suffix == ".gguf":
        from onechip.convert.gguf_source import GgufSource

        return GgufSource(path)
    return FolderSource(path)


@dataclass(frozen=True)
class _Leaf:
    """A tensor of which everything is mapped or in memory."""

    name: str
    shape: tuple[int, ...]
    leaf: Any

    @property
    def int4(self) -> bool:
        return isinstance(self.leaf, Int4)

    @property
    def dtype(self) -> np.dtype[Any]:
        return BFLOAT16 if self.int4 else self.leaf.dtype

    def rows(self, index: Index) -> Any:
        if isinstance(self.leaf, Int4):
            return Int4(self.leaf.packed[index], self.leaf.scale[index])
        return self.leaf.reshape(self.shape)[index]


class FolderSource:
    """config.json, safetensors, and what else is in the folder; a `Source`."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.name = folder.resolve().name
        self.config_json = read_json(folder / "config.json")
        self.config = parse_config(self.config_json)
        self._params = load_weights(folder, self.config)

    def tensor(self, spec: TensorSpec) -> Tensor:
        return _Leaf(spec.name, spec.shape, get(self._params, spec.path))

    @cached_property
    def siblings(self) -> dict[str, TensorFile]:
        files = open_files(self._folder)
        return {name: file for file in files for name in file.tensors if name.startswith(SIBLINGS)}

    def companions(self) -> dict[str, bytes]:
        return {str(path.relative_to(self._folder)): path.read_bytes() for path in self._companion_paths()}

    def tokenizer_keys(self) -> Metadata:
        return tokenizer_metadata(self._folder, self.config)

    def _companion_paths(self) -> Iterator[Path]:
        for pattern in _COMPANIONS:
            for path in sorted(self._folder.glob(pattern)):
                if path.name not in _NOT_COMPANIONS and path.is_file():
                    yield path
