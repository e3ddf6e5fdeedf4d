"""The tensors of a GGUF file, or of all its parts, checked one by one and turned into leaves of Params."""

from __future__ import annotations

import re
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from onechip.errors import CheckpointError
from onechip.kernels.api import Int4, Int8, Kind
from onechip.models.config import ModelConfig
from onechip.models.gguf import blocks
from onechip.models.gguf.file import BlockInfo, GgufFile
from onechip.models.gguf.names import NAMINGS, ROPE_FREQS, architecture, deinterleave, gguf_tensor
from onechip.models.layout import TensorSpec, dead_modules

_PART = re.compile(r"(.+)-(\d{5})-of-(\d{5})\.gguf")
_SIBLINGS = ("v.", "a.", "mm.")  # vision and audio, in files that have everything in one
_UNREAD = ".attn_rot_embd.weight"  # in old Llama files


def open_parts(path: Path) -> list[GgufFile]:
    """The file, or all parts of the one that it is a part of, in order; the first has the metadata.

    Raises CheckpointError naming what is missing or damaged.
    """
    paths = part_paths(path)
    files = [GgufFile(part) for part in paths]
    for number, file in enumerate(files):
        stated = file.metadata.get("split.count", 1), file.metadata.get("split.no", 0)
        if stated[0] <= 1 and len(files) == 1:
            continue
        if stated != (len(files), number):
            raise CheckpointError(
                f"{file.path} says that it is part {stated[1] + 1} of {stated[0]}, its name that it is "
                f"part {number + 1} of {len(files)}: give each part the name that it was published with."
            )
    total = sum(len(file.tensors) for file in files)
    wanted = files[0].metadata.get("split.tensors.count", total)
    if len(files) > 1 and wanted != total:
        raise CheckpointError(f"{path} and its other parts have {total} tensors, {wanted} are announced.")
    return files


def opened_parts(path: Path) -> list[GgufFile]:
    """`open_parts`, but what was opened last is not parsed again while it is the same."""
    stamps = [
        (part, part.stat().st_size, part.stat().st_mtime_ns) for part in part_paths(path) if part.exists()
    ]
    return _opened(path, tuple(stamps))


@lru_cache(maxsize=1)
def _opened(path: Path, stamps: tuple[Any, ...]) -> list[GgufFile]:
    return open_parts(path)


def part_paths(path: Path) -> list[Path]:
    """The paths of all parts of a GGUF file named `...-00001-of-00003.gguf`; else the one path."""
    match = _PART.fullmatch(path.name)
    if match is None:
        return [path]
    count = int(match[3])
    paths = [path.with_name(f"{match[1]}-{number:05}-of-{match[3]}.gguf") for number in range(1, count + 1)]
    for part in paths:
        if not part.exists():
            raise CheckpointError(f"{part} is missing: {path.name} is one of {count} parts, fetch them all.")
    return paths


class GgufCheckpoint:
    """The tensors of all parts by name; raises CheckpointError naming the tensor and the file.

    Args:
        dense_dtype: what quantised tensors other than Q4_0 and Q8_0 ones are expanded to.
    """

    def __init__(self, files: list[GgufFile], config: ModelConfig, dense_dtype: np.dtype[Any]) -> None:
        self._config = config
        self._dense_dtype = dense_dtype
        self._files = {name: file for file in files for name in file.tensors}
        self._path = files[0].path

    def kind(self, spec: TensorSpec) -> Kind:
        """What the tensor becomes: linear weights and tables in Q4_0 and Q8_0 stay quantised."""
        stored = self._info(spec).dtype
        return blocks.KINDS.get(stored, "dense") if spec.module_class else "dense"

    def _info(self, spec: TensorSpec) -> BlockInfo:
        name = gguf_tensor(spec, self._config).name
        file = self._files.get(name)
        if file is None:
            raise CheckpointError(f"{name} is missing in {self._path}: fetch the file again.")
        info = file.tensors[name]
        if info.shape != spec.shape:
            raise CheckpointError(
                f"{name} in {file.path} has shape {list(info.shape)}: the file's metadata makes it "
                f"{list(spec.shape)}, so the file is damaged or of a kind of model that is not served."
            )
        if not blocks.readable(info.dtype):
            raise CheckpointError(
                f"{name} in {file.path} has type {info.dtype}: onechip reads {blocks.readable_types()}."
            )
        return info

    def leaf(self, spec: TensorSpec, rows: slice | NDArray[Any] | None = None) -> Any:
        """The tensor's array, Int4 or Int8; of a matrix also some of its rows alone."""
        info, place = self._info(spec), gguf_tensor(spec, self._config)
        raw = self._files[place.name].blocks(place.name)
        index = slice(None) if rows is None else rows
        raw = raw[deinterleave(spec.shape[0], place.heads)[index] if place.heads else index]
        kind = self.kind(spec)
        if kind == "int4":
            return Int4(*blocks.int4(raw))
        if kind == "int8":
            return Int8(*blocks.int8(raw))
        if info.dtype in blocks.PLAIN:
            values = blocks.plain(raw, info.dtype)
        else:
            values = blocks.dense(raw, info.dtype, self._dense_dtype)
        if place.shift:
            values = values.astype(np.float32) - np.float32(place.shift)
        return values.reshape(-1, *spec.shape[1:])

    def refuse_surplus(self, specs: list[TensorSpec]) -> None:
        """Raise on a tensor that the model, as the metadata describes it, does not have."""
        known = {gguf_tensor(spec, self._config).name for spec in specs}
        if architecture(self._config) != "gemma3":
            known.add(ROPE_FREQS)
        layer = NAMINGS[architecture(self._config)].layer
        for module in dead_modules(self._config):
            _, index, rest = module.split(".", 2)
            known.add(f"blk.{index}.{layer[rest]}.weight")
        for name, file in self._files.items():
            if name not in known and not name.startswith(_SIBLINGS) and not name.endswith(_UNREAD):
                raise CheckpointError(
                    f"{name} in {file.path} is not a tensor of this model as its metadata describes it "
                    f"({architecture(self._config)}, {len(self._config.layers)} layers)."
                )
