"""A checkpoint to convert: its config, its tensors some rows at a time, and the files that go with it."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from onechip.convert.encode import Index
from onechip.convert.gguf_tokenizer import tokenizer_metadata
from onechip.convert.gguf_writer import Metadata
from onechip.errors import CheckpointError
from onechip.kernels.api import kind_of
from onechip.models.config import parse_config, read_json
from onechip.models.generation import GenerationDefaults
from onechip.models.gguf.view import linked_files
from onechip.models.layout import TensorSpec, expected_tensors
from onechip.models.source import resolve_model
from onechip.models.tensorfile import TensorFile
from onechip.models.weights import SIBLINGS, Checkpoint, open_checkpoint, open_files

_COMPANIONS = ("*.json", "*.jinja", "*.model", "*.txt", "additional_chat_templates/*.jinja")
_NOT_COMPANIONS = ("config.json", "model.safetensors.index.json")


class SourceTensor:
    """A tensor of the source; an `encode.Tensor`."""

    def __init__(self, checkpoint: Checkpoint, spec: TensorSpec) -> None:
        self._checkpoint = checkpoint
        self._spec = spec
        self.name = spec.name
        self.shape = spec.shape
        first = checkpoint.leaf(spec, slice(0, 1))
        self.kind = kind_of(first)
        self.dtype: np.dtype[Any] = first.dtype if self.kind == "dense" else first.scale.dtype

    def rows(self, index: Index) -> Any:
        """These rows: an Int4, an Int8 or an array of `dtype`."""
        return self._checkpoint.leaf(self._spec, index)


class Source:
    """A checkpoint folder, or the one that stands for a GGUF file.

    Attributes:
        name: of the model, for a person.
        config_json: the raw config.json.
        config: the same, read.

    Raises:
        CheckpointError: a file is missing, damaged, or of a kind that is not served.
    """

    def __init__(self, path: Path) -> None:
        self._folder = resolve_model(str(path))
        self.name = _name(path, self._folder)
        self.config_json = read_json(self._folder / "config.json")
        self.config = parse_config(self.config_json)
        # Quantised types other than int4 and int8 are read in float32, so that nothing is rounded twice.
        self._checkpoint = open_checkpoint(self._folder, self.config, np.dtype(np.float32))
        self._checkpoint.refuse_surplus(expected_tensors(self.config))

    def tensor(self, spec: TensorSpec) -> SourceTensor:
        """A tensor of the text model. Raises CheckpointError if it is missing or damaged."""
        return SourceTensor(self._checkpoint, spec)

    @cached_property
    def siblings(self) -> dict[str, TensorFile]:
        """Tensors of the vision and audio parts: name -> the file that has it."""
        if any(self._folder.glob("*.gguf")):
            return {}  # GGUF has them in a file of their own
        files = open_files(self._folder)
        return {name: file for file in files for name in file.tensors if name.startswith(SIBLINGS)}

    def companions(self) -> dict[str, bytes]:
        """The files that the folder has beside config.json and the weights: name -> content."""
        try:
            return {str(path.relative_to(self._folder)): path.read_bytes() for path in self._companions()}
        except OSError as error:
            raise CheckpointError(f"{error.filename} cannot be read: {error.strerror}.") from None

    def generation_json(self) -> dict[str, Any]:
        """generation_config.json, empty where there is none. Raises CheckpointError if it is damaged."""
        GenerationDefaults.load(self._folder)
        path = self._folder / "generation_config.json"
        return read_json(path) if path.is_file() else {}

    def tokenizer_keys(self) -> Metadata:
        """The `tokenizer.*` keys of a GGUF file. Raises CheckpointError if GGUF has none for this one."""
        return tokenizer_metadata(self._folder, self.config)

    def _companions(self) -> Iterator[Path]:
        for pattern in _COMPANIONS:
            for path in sorted(self._folder.glob(pattern)):
                if path.name not in _NOT_COMPANIONS and path.is_file():
                    yield path


def _name(path: Path, folder: Path) -> str:
    """What a person calls the model: the GGUF file's name, the hub's, or the folder's."""
    gguf = [path] if path.suffix == ".gguf" else linked_files(folder)
    if gguf:
        return gguf[0].stem
    whole = path.absolute()
    if whole.parent.name == "snapshots":  # of the hub's cache: models--OWNER--NAME/snapshots/HASH
        return whole.parent.parent.name.rpartition("--")[2]
    return whole.name
