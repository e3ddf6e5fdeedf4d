"""The forms of a checkpoint that `onechip convert` writes, and which of them a checkpoint on the disk has."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from onechip.errors import CheckpointError, UsageError
from onechip.models.gguf.file import GgufFile
from onechip.models.gguf.view import linked_files
from onechip.models.weights import open_files

Container = Literal["safetensors", "gguf"]
Encoding = Literal["BF16", "F16", "F32", "INT4", "INT8", "Q6_K"]


def gguf_type(encoding: Encoding) -> str:
    """The name that GGUF has for an encoding."""
    return {"INT4": "Q4_0", "INT8": "Q8_0"}.get(encoding, encoding)


@dataclass(frozen=True, slots=True)
class Form:
    """How a checkpoint is stored.

    Attributes:
        linears: of the linear weights of the layers and the projection of the per-layer embeddings. INT4 is
            pack-quantized W4A16 in safetensors and Q4_0 in GGUF, INT8 is Q8_0.
        tables: of the embedding tables and an untied head; None leaves them as exact as the source has them.
    """

    name: str
    container: Container
    linears: Encoding
    tables: Encoding | None


FORMS = {
    form.name: form
    for form in (
        Form("bf16", "safetensors", "BF16", "BF16"),
        Form("w4a16", "safetensors", "INT4", "BF16"),
        Form("w4a16-emb4", "safetensors", "INT4", "INT4"),
        Form("gguf-bf16", "gguf", "BF16", "BF16"),
        Form("gguf-f16", "gguf", "F16", "F16"),
        Form("gguf-f32", "gguf", "F32", "F32"),
        Form("gguf-q8_0", "gguf", "INT8", "INT8"),
        Form("gguf-q4_0", "gguf", "INT4", None),
    )
}
ALIASES = {"gguf": "gguf-bf16", "q8_0": "gguf-q8_0", "q4_0": "gguf-q4_0"}

TABLES: dict[str, Encoding] = {"q4_0": "INT4", "q6_k": "Q6_K", "bf16": "BF16"}
"""What --tables may say, for gguf-q4_0 only."""


def find_form(name: str, tables: str | None = None) -> Form:
    """The form of that name or alias, its tables as `tables` says. Raises UsageError for unknown ones."""
    form = FORMS.get(ALIASES.get(name, name))
    if form is None:
        raise UsageError(f"--to is {name}: it must be one of {', '.join([*FORMS, *ALIASES])}.")
    if tables is None:
        return form
    if form.name != "gguf-q4_0":
        raise UsageError(f"--tables is for gguf-q4_0 only: {form.name} says how its tables are stored.")
    if tables not in TABLES:
        raise UsageError(f"--tables is {tables}: it must be one of {', '.join(TABLES)}.")
    return Form(form.name, form.container, form.linears, TABLES[tables])


def form_of(path: Path) -> str:
    """What a checkpoint is: a name of FORMS where it is one, else alike, such as "f16" or "gguf-q6_k".

    Args:
        path: a folder of safetensors, a .gguf file, or a folder with one in it.

    Raises:
        CheckpointError: it is neither, or damaged.
    """
    if path.suffix == ".gguf":
        return f"gguf-{_most_common_type(GgufFile(path)).lower()}"
    if not any(path.glob("*.safetensors")) and (inside := linked_files(path)):
        return form_of(inside[0])
    tensors = {name: info for file in open_files(path) for name, info in file.tensors.items()}
    packed = [name for name in tensors if name.endswith(".weight_packed")]
    if any("embed_tokens" in name for name in packed):
        return "w4a16-emb4"
    if packed:
        return "w4a16"
    sizes: Counter[str] = Counter()
    for info in tensors.values():
        sizes[info.dtype] += info.nbytes
    return _most(sizes, path).lower()


def _most(sizes: Counter[str], path: Path) -> str:
    """The type with the most bytes."""
    if not sizes:
        raise CheckpointError(f"{path} holds no weights: fetch it again, or give another.")
    return sizes.most_common(1)[0][0]


def _most_common_type(file: GgufFile) -> str:
    """Of the layers' tensors, by bytes: tables do not count, nor do norms."""
    sizes: Counter[str] = Counter()
    for name, info in file.tensors.items():
        if name.startswith("blk.") or len(file.tensors) == 1:
            sizes[info.dtype] += info.nbytes
    return _most(sizes, file.path)
