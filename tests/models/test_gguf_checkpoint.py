"""Whole GGUF files of each architecture: their weights, and what is wrong with damaged ones."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from gguf import GGMLQuantizationType, quants

from onechip.errors import CheckpointError
from onechip.kernels.api import Int4, Int8
from onechip.models.config import read_config
from onechip.models.gguf.names import gguf_tensor
from onechip.models.gguf.view import view
from onechip.models.layout import Params, TensorSpec, expected_tensors, get
from onechip.models.leaf import expand
from onechip.models.weights import load_weights, stored_kinds
from tests.models.gguf_files import VOCAB, config, to_file, values, write

Type = GGMLQuantizationType
BFLOAT16 = np.dtype(ml_dtypes.bfloat16)


def load(path: Path, dense_dtype: np.dtype[Any] = BFLOAT16) -> Params:
    folder = view(path, path.parent / "views")
    return load_weights(folder, read_config(folder), dense_dtype=dense_dtype)


def specs_of(architecture: str) -> dict[str, TensorSpec]:
    return {spec.name: spec for spec in expected_tensors(config(architecture))}


@pytest.mark.parametrize("architecture", ["gemma4", "gemma3", "llama"])
@pytest.mark.parametrize("kind", [Type.F32, Type.BF16, Type.F16], ids=lambda kind: kind.name)
def test_values_that_a_file_holds_come_back(tmp_path: Path, architecture: str, kind: Type) -> None:
    """Norms shifted back, rows of Q and K in our order, to the bit."""
    params = load(write(tmp_path / "x.gguf", architecture, types={"linear": kind, "table": kind}))
    for spec in specs_of(architecture).values():
        leaf, stored = get(params, spec.path), values(spec)
        assert leaf.shape == (() if spec.path[-1] == "scalar" else spec.shape)
        if spec.linear or spec.table:
            assert leaf.dtype == {"F32": np.float32, "F16": np.float16, "BF16": BFLOAT16}[kind.name]
            stored = stored.astype(leaf.dtype)
        np.testing.assert_array_equal(leaf.reshape(spec.shape).astype(np.float32), stored.astype(np.float32))


@pytest.mark.parametrize("kind", [Type.Q4_0, Type.Q8_0], ids=lambda kind: kind.name)
@pytest.mark.parametrize("architecture", ["gemma4", "llama"])
def test_q4_0_and_q8_0_keep_their_values(tmp_path: Path, architecture: str, kind: Type) -> None:
    """Linear weights and tables, in llama with the rows of Q and K in our order."""
    path = write(tmp_path / "x.gguf", architecture, types={"linear": kind, "table": kind})
    params, model = load(path), config(architecture)
    packed = set()
    for spec in specs_of(architecture).values():
        leaf = get(params, spec.path)
        if not isinstance(leaf, Int4 | Int8):
            continue
        packed.add(spec.name)
        assert leaf.scale.dtype == np.float16
        stored = quants.dequantize(quants.quantize(to_file(spec, model), kind), kind)
        heads = gguf_tensor(spec, model).heads
        if heads:
            pairs = stored.reshape(heads, spec.shape[0] // heads // 2, 2, -1)
            stored = pairs.swapaxes(1, 2).reshape(spec.shape)
        np.testing.assert_array_equal(expand(leaf, np.float32), stored)
    expected = {name for name, spec in specs_of(architecture).items() if spec.linear or spec.table}
    assert packed == expected
    folder = view(path, tmp_path / "views")
    kinds = dict.fromkeys(expected, "int4" if kind is Type.Q4_0 else "int8")
    assert stored_kinds(folder, read_config(folder)) == kinds


@pytest.mark.parametrize("dtype", [np.dtype(np.float32), BFLOAT16], ids=str)
def test_other_types_become_dense(tmp_path: Path, dtype: np.dtype[Any]) -> None:
    """Q5_0 linears beside a Q6_K table, and one Q4_1 tensor among them."""
    name = "layers.0.mlp.up_proj.weight"
    types = {"linear": Type.Q5_0, "table": Type.Q6_K, "blk.0.ffn_up.weight": Type.Q4_1}
    path = write(tmp_path / "x.gguf", "gemma3", types=types)
    params = load(path, dtype)
    specs, model = specs_of("gemma3"), config("gemma3")
    for spec, kind in ((specs[name], Type.Q4_1), (specs["layers.1.mlp.up_proj.weight"], Type.Q5_0)):
        stored = quants.dequantize(quants.quantize(to_file(spec, model), kind), kind)
        np.testing.assert_array_equal(get(params, spec.path), stored.astype(dtype))
    assert params["embed"].shape == (VOCAB, 256)
    assert params["embed"].dtype == dtype


def test_what_other_programs_put_into_files_is_passed_over(tmp_path: Path) -> None:
    """K and V of layers that share another's cache, and the parts for images and sound."""
    extra = {
        "blk.3.attn_k.weight": np.ones((128, 256), np.float32),
        "blk.3.attn_k_norm.weight": np.ones(64, np.float32),
        "blk.0.attn_rot_embd.weight": np.ones(16, np.float32),
        "v.blk.0.attn_q.weight": np.ones((2, 2), np.float32),
        "mm.input_projection.weight": np.ones((2, 2), np.float32),
    }
    assert "k" not in load(write(tmp_path / "x.gguf", "gemma4", extra=extra))["layers"][3]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (
            {"skip": ("blk.1.ffn_down.weight",)},
            r"blk\.1\.ffn_down\.weight is missing in .*x\.gguf: fetch the file",
        ),
        ({"skip": ("token_embd.weight",)}, r"token_embd\.weight is missing in .*x\.gguf"),
        (
            {"extra": {"blk.1.attn_q.bias": np.ones(256, np.float32)}},
            r"blk\.1\.attn_q\.bias in .*x\.gguf is not a tensor of this model as its metadata describes it "
            r"\(llama, 4 layers\)",
        ),
        (
            {
                "skip": ("blk.1.ffn_up.weight",),
                "extra": {"blk.1.ffn_up.weight": np.ones((8, 256), np.float32)},
            },
            r"blk\.1\.ffn_up\.weight in .*x\.gguf has shape \[8, 256\]: the file's metadata makes it",
        ),
    ],
)
def test_a_tensor_missing_surplus_or_of_another_shape(
    tmp_path: Path, changes: dict[str, Any], message: str
) -> None:
    path = write(tmp_path / "x.gguf", "llama", **changes)
    with pytest.raises(CheckpointError, match=message):
        load(path)


def test_a_type_that_is_no_weight(tmp_path: Path) -> None:
    path = write(tmp_path / "x.gguf", "llama")
    content = bytearray(path.read_bytes())
    at = (
        content.index(b"output_norm.weight") + len(b"output_norm.weight") + 4 + 8
    )  # its axes, and their lengths
    content[at : at + 4] = int(Type.I32).to_bytes(4, "little")
    path.write_bytes(content)
    with pytest.raises(
        CheckpointError, match=r"output_norm\.weight in .* has type I32: onechip reads F32, F16, BF16"
    ):
        load(path)
