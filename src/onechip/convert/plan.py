"""A source and a form in; out comes what is written for each tensor, before the first of them is read."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

from numpy.typing import NDArray

from onechip.convert import encode
from onechip.convert.encode import DTYPES, Notes, Tensor
from onechip.convert.forms import Encoding, Form, gguf_type
from onechip.convert.gguf_writer import GgufInfo
from onechip.convert.q6_k import BLOCK
from onechip.convert.source import Source
from onechip.kernels.api import GROUP
from onechip.models.gguf.names import gguf_tensor, interleave
from onechip.models.layout import TensorSpec, expected_tensors
from onechip.models.tensorfile import TensorFile, TensorInfo
from onechip.models.weights import full_name, int4_infos, name_prefix

Array = NDArray[Any]
Pieces = Callable[[], Iterator[Array]]


@dataclass(frozen=True)
class Chosen:
    """A tensor of the source and the encoding that it gets."""

    spec: TensorSpec
    tensor: Tensor
    encoding: Encoding


def choose(source: Source, form: Form, notes: Notes) -> list[Chosen]:
    """What each tensor becomes. Raises CheckpointError where rows do not divide into the encoding's groups.

    A linear weight that is dense in a source whose others are int4 stays dense (`notes.kept`): whoever made
    the source left it so.
    """
    tensors = [(spec, source.tensor(spec)) for spec in expected_tensors(source.config)]
    packed = any(tensor.kind == "int4" for spec, tensor in tensors if spec.linear)
    chosen = []
    for spec, tensor in tensors:
        encoding = _encoding(spec, tensor, form, packed)
        if form.linears == "INT4" and packed and _layer_linear(spec) and encoding != "INT4":
            notes.kept.append(spec.name)
        if encoding in ("INT4", "INT8", "Q6_K"):
            encode.check_groups(spec, BLOCK if encoding == "Q6_K" else GROUP, encoding)
        chosen.append(Chosen(spec, tensor, encoding))
    return chosen


def _layer_linear(spec: TensorSpec) -> bool:
    """A linear weight, but not a head: that counts as a table."""
    return spec.linear and spec.path != ("lm_head",)


def _encoding(spec: TensorSpec, tensor: Tensor, form: Form, packed: bool) -> Encoding:
    if len(spec.shape) == 1:
        return "F32" if form.container == "gguf" else "BF16"
    if _layer_linear(spec):
        kept = form.linears == "INT4" and packed and tensor.kind != "int4"
        return _stored(tensor, form) if kept else form.linears
    # The published int4 checkpoints have no int4 head of its own.
    head = form.container == "safetensors" and not spec.table and form.tables == "INT4"
    if form.tables is None or head:
        return _stored(tensor, form)
    return form.tables


def _stored(tensor: Tensor, form: Form) -> Encoding:
    """The encoding that holds the tensor as it is in the source; safetensors have none for int8."""
    if tensor.kind == "int4":
        return "INT4"
    if tensor.kind == "int8":
        return "INT8" if form.container == "gguf" else "F32"
    return next(name for name, dtype in DTYPES.items() if dtype == tensor.dtype)


@dataclass(frozen=True)
class Part:
    """One tensor of the source as a safetensors file has it: dtypes and shapes by name, and the data."""

    infos: dict[str, TensorInfo]
    pieces: Pieces


def safetensors_parts(source: Source, chosen: list[Chosen], allowed: bool, notes: Notes) -> list[Part]:
    """The tensors of the text model, then those of the vision and audio parts as they are."""
    prefix = name_prefix(source.config_json)
    parts = [_safetensors_part(prefix, choice, allowed, notes) for choice in chosen]
    for name, file in source.siblings.items():
        parts.append(Part({name: file.tensors[name]}, partial(_whole, file, name)))
    return parts


def _whole(file: TensorFile, name: str) -> Iterator[Array]:
    yield file.read(name)


def _safetensors_part(prefix: str, choice: Chosen, allowed: bool, notes: Notes) -> Part:
    spec, tensor, encoding = choice.spec, choice.tensor, choice.encoding
    if encoding != "INT4":
        info = TensorInfo(encoding, spec.shape)
        return Part(
            {full_name(prefix, spec.name): info}, lambda: encode.dense(tensor, encoding, None, 0.0, notes)
        )
    module = full_name(prefix, spec.module)
    infos = int4_infos(spec.shape)
    scales = "BF16" if encode.scale_dtype(tensor, allowed) == DTYPES["BF16"] else "F16"
    infos["weight_scale"] = TensorInfo(scales, infos["weight_scale"].shape)
    return Part(
        {f"{module}.{suffix}": info for suffix, info in infos.items()},
        lambda: encode.pack_quantized(tensor, allowed, notes),
    )


@dataclass(frozen=True)
class Block:
    """One tensor of a GGUF file."""

    name: str
    info: GgufInfo
    pieces: Pieces


def gguf_blocks(source: Source, chosen: list[Chosen], allowed: bool, notes: Notes) -> list[Block]:
    """The tensors of the text model under their names in GGUF."""
    return [_gguf_block(source, choice, allowed, notes) for choice in chosen]


def _gguf_block(source: Source, choice: Chosen, allowed: bool, notes: Notes) -> Block:
    spec, tensor, encoding = choice.spec, choice.tensor, choice.encoding
    place = gguf_tensor(spec, source.config)
    order = interleave(spec.shape[0], place.heads) if place.heads else None
    info = GgufInfo(gguf_type(encoding), spec.shape)
    if encoding == "INT4":
        return Block(place.name, info, lambda: encode.q4_0(tensor, allowed, order, notes))
    if encoding == "INT8":
        return Block(place.name, info, lambda: encode.q8_0(tensor, order, notes))
    if encoding == "Q6_K":
        return Block(place.name, info, lambda: encode.q6_k_blocks(tensor, notes))
    return Block(place.name, info, lambda: encode.dense(tensor, encoding, order, place.shift, notes))
