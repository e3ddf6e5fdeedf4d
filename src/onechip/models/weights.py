"""A checkpoint folder in, Params out: NumPy arrays mapped from the files; and Params to a checkpoint folder.

Read are safetensors in bf16, f16 or f32, compressed-tensors W4A16, and GGUF files through the folder that
`gguf.view` makes for them. Every tensor is checked by name, shape and dtype before it is used.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from onechip.errors import CheckpointError
from onechip.kernels.api import GROUP, Int4, Kind, kind_of
from onechip.models.config import ModelConfig, parse_config, read_json
from onechip.models.layout import (
    Params,
    Read,
    TensorSpec,
    dead_modules,
    empty_params,
    expected_tensors,
    get,
    put,
)
from onechip.models.quant import BFLOAT16
from onechip.models.scheme import W4A16, config_entry, read_scheme
from onechip.models.tensorfile import TensorFile, TensorInfo, dtype_name, write_tensors

Array = NDArray[Any]
Rows = slice | Array
"""Rows of a matrix, as NumPy indexes them."""
Progress = Callable[[str, int, int], None]

_NESTED_PREFIX = "model.language_model."
_FLAT_PREFIX = "model."
_PREFIXES = {_FLAT_PREFIX: "", _NESTED_PREFIX: "", "language_model.model.": "language_model."}
"""What names of the text model begin with, and its head's: text-only, multimodal, Gemma 3 as published."""
SIBLINGS = tuple(
    f"{prefix}{part}."
    for prefix in ("", "model.")
    for part in (
        "vision_tower",
        "vision_embedder",
        "embed_vision",
        "audio_tower",
        "embed_audio",
        "multi_modal_projector",
    )
)
_UNREAD_BUFFER = ".self_attn.rotary_emb.inv_freq"  # in old Llama checkpoints
_DENSE_DTYPES = ("BF16", "F16", "F32")
_INDEX = "model.safetensors.index.json"


class Checkpoint(Protocol):
    """The tensors of an opened checkpoint, whatever their format. All raise CheckpointError."""

    def kind(self, spec: TensorSpec) -> Kind:
        """What `leaf` gives for a tensor."""
        ...

    def refuse_surplus(self, specs: list[TensorSpec]) -> None:
        """Raise on a tensor that none of `specs`, and no part that is passed over, accounts for."""
        ...

    def leaf(self, spec: TensorSpec, rows: Rows | None = None) -> Any:
        """The tensor's array, Int4 or Int8, checked; of a matrix also some of its rows alone."""
        ...


def open_checkpoint(folder: Path, config: ModelConfig, dense_dtype: np.dtype[Any] = BFLOAT16) -> Checkpoint:
    """The checkpoint in `folder`; nothing but headers is read.

    Args:
        dense_dtype: what GGUF's quantised types other than Q4_0 and Q8_0 become.
    """
    if not any(folder.glob("*.gguf")) or any(folder.glob("*.safetensors")):
        return SafetensorsCheckpoint(folder, config)
    # Imported here: seldom needed, and it needs a library that is slow to import.
    from onechip.models.gguf.checkpoint import GgufCheckpoint, opened_parts
    from onechip.models.gguf.view import linked_files

    return GgufCheckpoint(opened_parts(linked_files(folder)[0]), config, dense_dtype)


def weight_reader(
    folder: Path,
    config: ModelConfig,
    *,
    dense_dtype: np.dtype[Any] = BFLOAT16,
    progress: Progress | None = None,
) -> Read:
    """Reads the tensors in `folder`, as views of its mapped files; nothing is read from the disk before it is
    used.

    Quantised tensors of a GGUF file are no views: Q4_0 becomes Int4, Q8_0 Int8, all else is expanded to
    `dense_dtype`.

    Tensors of the vision and audio parts, K and V of layers that share another's cache, and the head of a
    tied model are passed over. Every other tensor must be expected, and every expected one be there.

    Args:
        folder: config.json and *.safetensors, one file or shards with an index; or one for a GGUF file.
        config: of the same folder, from `read_config`.
        dense_dtype: bfloat16, or float32 where nothing is to be rounded.
        progress: called with (tensor's name, tensors read, tensors in all).

    Raises:
        CheckpointError: naming the file or tensor that is surplus or damaged; what is missing or not of a
            served kind when it is read.
    """
    checkpoint = open_checkpoint(folder, config, dense_dtype)
    specs = expected_tensors(config)
    checkpoint.refuse_surplus(specs)
    count = 0

    def read(spec: TensorSpec) -> Any:
        nonlocal count
        count += 1
        if progress is not None:
            progress(spec.name, count, len(specs))
        leaf = checkpoint.leaf(spec)
        return leaf.reshape(()) if spec.path[-1] == "scalar" else leaf

    return read


def load_weights(folder: Path, config: ModelConfig, *, dense_dtype: np.dtype[Any] = BFLOAT16) -> Params:
    """All weights in `folder`; see `weight_reader`."""
    read = weight_reader(folder, config, dense_dtype=dense_dtype)
    params = empty_params(config)
    for spec in expected_tensors(config):
        put(params, spec.path, read(spec))
    return params


def stored_kinds(folder: Path, config: ModelConfig) -> dict[str, Kind]:
    """Name (`TensorSpec.name`) -> kind of the tensors that are quantised in the checkpoint.

    Only headers are read.

    Raises:
        CheckpointError: a tensor is missing or damaged.
    """
    checkpoint = open_checkpoint(folder, config)
    kinds = {spec.name: checkpoint.kind(spec) for spec in expected_tensors(config)}
    return {name: kind for name, kind in kinds.items() if kind != "dense"}


def save_checkpoint(folder: Path, config_json: Mapping[str, Any], params: Params) -> None:
    """Write config.json and model.safetensors with the published names.

    `config_json` is the raw config; its quantization_config is set here, from the int4 weights in `params`.
    Raises CheckpointError if the folder cannot be written.
    """
    config = parse_config(config_json)
    prefix = name_prefix(config_json)
    stored: dict[str, Array] = {}
    dense = {"lm_head"}  # other engines pack a head unless it is named here, even one that is tied
    tables: list[str] = []
    quantized = False
    for spec in expected_tensors(config):
        leaf = get(params, spec.path)
        name = full_name(prefix, spec.name)
        if isinstance(leaf, Int4):
            quantized = True
            stored |= _stored_int4(name.removesuffix(".weight"), leaf)
            if spec.table:
                tables.append(name.removesuffix(".weight"))
        else:
            stored[name] = np.asarray(leaf).reshape(spec.shape)
            if spec.linear:
                dense.add(name.removesuffix(".weight"))
    raw = {key: value for key, value in config_json.items() if key != "quantization_config"}
    if quantized:
        raw["quantization_config"] = config_entry(sorted(dense), tables)
    infos = {name: TensorInfo(dtype_name(array.dtype), array.shape) for name, array in stored.items()}
    try:
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "config.json").write_text(json.dumps(raw, indent=2) + "\n", encoding="utf-8")
    except OSError as error:
        raise CheckpointError(f"{folder} cannot be written: {error.strerror or error}.") from None
    write_tensors(folder / "model.safetensors", infos, stored.values())


def name_prefix(config_json: Mapping[str, Any]) -> str:
    """What stands before the text model's names in a checkpoint with this config.json."""
    return _NESTED_PREFIX if "text_config" in config_json else _FLAT_PREFIX


def full_name(prefix: str, name: str) -> str:
    """A tensor's or module's name in the file; the head stands outside the text model's prefix."""
    return (_PREFIXES[prefix] if name.startswith("lm_head") else prefix) + name


def int4_infos(shape: tuple[int, ...]) -> dict[str, TensorInfo]:
    """Suffix -> dtype and shape of what stands for a weight [out, in] in a pack-quantized checkpoint."""
    rows, columns = shape
    return {
        "weight_packed": TensorInfo("I32", (rows, columns // 8)),
        "weight_scale": TensorInfo("BF16", (rows, columns // GROUP)),
        "weight_shape": TensorInfo("I64", (2,)),
    }


def _stored_int4(module: str, weight: Int4) -> dict[str, Array]:
    return {
        f"{module}.weight_packed": np.asarray(weight.packed),
        f"{module}.weight_scale": np.asarray(weight.scale),
        f"{module}.weight_shape": np.array(weight.shape, dtype=np.int64),
    }


class SafetensorsCheckpoint:
    """The tensors of a folder by name, whichever file they are in, and the scheme that its config states."""

    def __init__(self, folder: Path, config: ModelConfig) -> None:
        self._folder = folder
        self._config = config
        self._scheme: W4A16 | None = read_scheme(read_json(folder / "config.json"))
        self._files = {name: file for file in open_files(folder) for name in file.tensors}
        # By the most layers, so that a stray tensor of the other naming is the one that is refused.
        self._prefix = max(_PREFIXES, key=self._layer_tensors)

    def _layer_tensors(self, prefix: str) -> int:
        return sum(name.startswith(f"{prefix}layers.") for name in self._files)

    def kind(self, spec: TensorSpec) -> Kind:
        """What the tensor is by the scheme; checked, which reads nothing but the header."""
        return kind_of(self.leaf(spec))

    def _packed(self, spec: TensorSpec) -> bool:
        if self._scheme is None or not spec.module_class:
            return False
        return self._scheme.covers(self._name(spec.module), spec.module_class)

    def _name(self, name: str) -> str:
        return full_name(self._prefix, name)

    def leaf(self, spec: TensorSpec, rows: Rows | None = None) -> Any:
        """The tensor's array or Int4, checked; of a matrix also some of its rows alone."""
        index = slice(None) if rows is None else rows
        if not self._packed(spec):
            return self._array(self._name(spec.name), spec.shape, _DENSE_DTYPES)[index]
        module = self._name(spec.module)
        if spec.shape[1] % GROUP:
            raise CheckpointError(f"{module} has {spec.shape[1]} inputs: int4 needs groups of {GROUP}.")
        packed, scale, shape = int4_infos(spec.shape).values()
        words = self._array(f"{module}.weight_packed", packed.shape, ("I32",))
        scales = self._array(f"{module}.weight_scale", scale.shape, ("BF16", "F16"))
        stated = self._array(f"{module}.weight_shape", shape.shape, ("I64", "I32"))
        if tuple(stated.tolist()) != spec.shape:
            raise CheckpointError(
                f"{module}.weight_shape says {stated.tolist()}: config.json makes it {list(spec.shape)}."
            )
        return Int4(words[index], scales[index])

    def _array(self, name: str, shape: tuple[int, ...], dtypes: tuple[str, ...]) -> Array:
        file = self._files.get(name)
        if file is None:
            raise CheckpointError(self._absence(name))
        info = file.tensors[name]
        if info.shape != shape:
            raise CheckpointError(
                f"{name} in {file.path} has shape {list(info.shape)}: config.json makes it {list(shape)}, "
                "so one of the two files belongs to another model."
            )
        if info.dtype not in dtypes:
            raise CheckpointError(
                f"{name} in {file.path} has dtype {info.dtype}: onechip reads {', '.join(dtypes)} here."
            )
        return file.read(name)

    def _absence(self, name: str) -> str:
        module, _, kind = name.rpartition(".")
        if kind == "weight" and f"{module}.weight_packed" in self._files:
            reason = (
                "quantization_config lists it in `ignore`"
                if self._scheme
                else "config.json has no quantization_config"
            )
            return (
                f"{module} is packed int4 in {self._folder}, but {reason}: the files do not belong together."
            )
        if kind == "weight_packed" and f"{module}.weight" in self._files:
            return (
                f"{module} is dense in {self._folder}, but quantization_config covers it: "
                "add it to quantization_config.ignore in config.json."
            )
        return (
            f"{name} is missing in {self._folder}: fetch it again, or check that config.json belongs to it."
        )

    def refuse_surplus(self, specs: list[TensorSpec]) -> None:
        """Raise CheckpointError on a tensor that no part of such a checkpoint accounts for."""
        known = set(self._known(specs))
        modules = {self._name(module) for module in dead_modules(self._config)}
        if self._config.tied:
            modules.add(self._name("lm_head"))
        for name, file in self._files.items():
            passed = name.startswith(SIBLINGS) or name.endswith(_UNREAD_BUFFER)
            if name not in known and name.rpartition(".")[0] not in modules and not passed:
                raise CheckpointError(
                    f"{name} in {file.path} is not a tensor of this model as config.json describes it "
                    f"(model_type {self._config.model_type}, {len(self._config.layers)} layers)."
                )

    def _known(self, specs: list[TensorSpec]) -> Iterator[str]:
        for spec in specs:
            yield self._name(spec.name)
            if spec.module_class:
                yield from (
                    f"{self._name(spec.module)}.{suffix}"
                    for suffix in ("weight_packed", "weight_scale", "weight_shape")
                )


def open_files(folder: Path) -> list[TensorFile]:
    """The safetensors files of a checkpoint folder: those of its index, else the only one that there is."""
    if not folder.is_dir():
        raise CheckpointError(f"{folder} is not a folder: give the folder that holds config.json.")
    if (folder / _INDEX).exists():
        return _open_shards(folder)
    found = sorted(folder.glob("*.safetensors"))
    if len(found) == 1:
        return [TensorFile(found[0])]
    if found:
        raise CheckpointError(
            f"{folder} has {len(found)} .safetensors files and no {_INDEX}: fetch the index."
        )
    raise CheckpointError(f"{folder} has no weights: a checkpoint folder has a .safetensors or a .gguf file.")


def _open_shards(folder: Path) -> list[TensorFile]:
    index = folder / _INDEX
    table = read_json(index).get("weight_map")
    if not isinstance(table, dict) or not all(
        isinstance(v, str) and Path(v).name == v for v in table.values()
    ):
        raise CheckpointError(f"{index} has no weight_map of tensor names to file names: fetch it again.")
    shards = sorted(set(table.values()))
    for name in shards:
        if not (folder / name).exists():
            raise CheckpointError(f"{name} is missing in {folder}, {index.name} names it: fetch that file.")
    files = {name: TensorFile(folder / name) for name in shards}
    for tensor, name in table.items():
        if tensor not in files[name].tensors:
            raise CheckpointError(f"{tensor} is missing in {folder / name}, where {index.name} puts it.")
    return list(files.values())
