"""Conversions there and back: the same bits, whichever way, or a refusal that names the place."""

from __future__ import annotations

import json
import shutil
import struct
import subprocess
import sys
from collections import namedtuple
from itertools import permutations
from pathlib import Path

import jax
import ml_dtypes
import numpy as np
import pytest
from typer.testing import CliRunner

from onechip.cli import app
from onechip.convert.convert import convert, form_of
from onechip.convert.source import Source
from onechip.errors import CheckpointError, UsageError
from onechip.kernels.api import Int4
from onechip.models.config import read_config
from onechip.models.layout import expected_tensors
from onechip.models.leaf import quantize_params
from onechip.models.quant import dequantize_int4
from onechip.models.tensorfile import TensorFile, TensorInfo, dtype_name, write_tensors
from onechip.models.weights import load_weights
from tests.convert.made import FAMILIES, GEMMA3, GEMMA4, make

INT4_FORMS = ("w4a16-emb4", "gguf-q4_0")


@pytest.fixture(autouse=True)
def own_cache(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is made of GGUF files goes nowhere near the user's cache."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path_factory.mktemp("cache")))


def target(folder: Path, form: str) -> Path:
    return folder / (f"{form}.gguf" if form.startswith("gguf") else form)


def tensors(path: Path) -> dict[str, tuple[np.ndarray, ...]]:
    """Name -> (levels, scales in float32) or (values in float32): dtypes of scales do not count."""
    source = Source(path)
    found = {}
    for spec in expected_tensors(source.config):
        leaf = source.tensor(spec).rows(slice(None))
        parts = (leaf.packed, leaf.scale) if isinstance(leaf, Int4) else (leaf,)
        found[spec.name] = tuple(
            part if part.dtype == np.int32 else part.astype(np.float32) for part in parts
        )
    return found


def dense(parts: tuple[np.ndarray, ...]) -> np.ndarray:
    return dequantize_int4(*parts) if len(parts) == 2 else parts[0]


def assert_same(one: Path, other: Path) -> None:
    mine, theirs = tensors(one), tensors(other)
    for name, parts in mine.items():
        assert len(parts) == len(theirs[name]), name
        for part, expected in zip(parts, theirs[name], strict=True):
            np.testing.assert_array_equal(part, expected, err_msg=name)


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("forms", permutations(["w4a16-emb4", "gguf-q4_0", "bf16"]), ids="-".join)
def test_int4_goes_round_through_every_form(family: str, forms: tuple[str, ...], tmp_path: Path) -> None:
    """Linears and tables; through bf16 the levels are found again by the search."""
    first = make(tmp_path / "first", FAMILIES[family], int4="tables")
    at = first
    for form in forms:
        goal = target(tmp_path, form)
        if form_of(at) == form:
            continue
        head = "bf16" in (form, form_of(at)) and form == "gguf-q4_0"
        convert(at, goal, form, tables="q4_0" if head and family != "llama" else None)
        at = goal
    last = tmp_path / "last"
    if form_of(at) != "w4a16-emb4":
        convert(at, last, "w4a16-emb4")
        at = last
    if family != "llama" or "bf16" not in forms:
        assert_same(first, at)
    else:
        for name, parts in tensors(first).items():
            np.testing.assert_array_equal(dense(parts), dense(tensors(at)[name]), err_msg=name)


@pytest.mark.parametrize("family", FAMILIES)
def test_w4a16_and_gguf_there_and_back_are_the_same_bytes(family: str, tmp_path: Path) -> None:
    first = make(tmp_path / "model", FAMILIES[family])
    convert(first, tmp_path / "model.gguf", "q4_0")
    convert(tmp_path / "model.gguf", tmp_path / "back" / "model", "w4a16")
    assert_same(first, tmp_path / "back" / "model")
    convert(tmp_path / "back" / "model", tmp_path / "back" / "model.gguf", "q4_0")
    assert (tmp_path / "back" / "model.gguf").read_bytes() == (tmp_path / "model.gguf").read_bytes()


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("form", ["gguf-bf16", "gguf-f32"])
def test_dense_there_and_back_is_the_same_file(family: str, form: str, tmp_path: Path) -> None:
    first = make(tmp_path / "first", FAMILIES[family], int4="no")
    summary = convert(first, tmp_path / "there.gguf", form)
    assert not summary.notes.rounded
    summary = convert(tmp_path / "there.gguf", tmp_path / "back", "bf16")
    assert not summary.notes.rounded or family == "gemma3"
    if family == "gemma3":  # whose norms are w + 1 in the file: float32 holds the sum to 2^-24
        for name, (values,) in tensors(first).items():
            np.testing.assert_allclose(tensors(tmp_path / "back")[name][0], values, rtol=2**-8, atol=2**-24)
    else:
        assert (tmp_path / "back" / "model.safetensors").read_bytes() == (
            first / "model.safetensors"
        ).read_bytes()


def test_rounding_is_the_same_in_every_form(tmp_path: Path) -> None:
    first = make(tmp_path / "first", GEMMA4, int4="no")
    for form in INT4_FORMS:
        convert(first, target(tmp_path, form), form, round=True, tables="q4_0" if "gguf" in form else None)
    assert_same(tmp_path / "w4a16-emb4", tmp_path / "gguf-q4_0.gguf")
    stored = TensorFile(tmp_path / "w4a16-emb4" / "model.safetensors")
    assert {i.dtype for n, i in stored.tensors.items() if n.endswith("weight_scale")} == {"BF16"}


def test_rounding_is_that_of_the_engine(tmp_path: Path) -> None:
    first = make(tmp_path / "first", GEMMA4, int4="no")
    config = read_config(first)
    convert(first, tmp_path / "to", "w4a16", round=True)
    mine, theirs = load_weights(tmp_path / "to", config), quantize_params(load_weights(first, config), config)
    for (path, one), other in zip(jax.tree.leaves_with_path(mine), jax.tree.leaves(theirs), strict=True):
        assert one.dtype == other.dtype
        np.testing.assert_array_equal(one, other, err_msg=jax.tree_util.keystr(path))


def test_rounding_leaves_a_grid_alone(tmp_path: Path) -> None:
    on_grid = make(tmp_path / "on-grid", GEMMA4, int4="dense")
    convert(on_grid, tmp_path / "strict", "w4a16-emb4")
    summary = convert(on_grid, tmp_path / "allowed", "w4a16-emb4", round=True)
    assert not summary.notes.levels
    assert_same(tmp_path / "strict", tmp_path / "allowed")


def _edit(folder: Path, name: str, edit: object) -> None:
    """Write the one safetensors file of the folder again, with one tensor changed in place."""
    path = folder / "model.safetensors"
    file = TensorFile(path)
    arrays = {key: np.array(file.read(key)) for key in file.tensors}
    edit(arrays[name])  # type: ignore[operator]
    write_tensors(path, file.tensors, arrays.values())


def test_a_group_on_no_grid_is_refused_by_its_place(tmp_path: Path) -> None:
    first = make(tmp_path / "first", GEMMA4, int4="dense")

    def spoil(weight: np.ndarray) -> None:
        weight[5, 32:64] = np.linspace(0.1, 0.2, 32)

    _edit(first, "model.layers.1.mlp.up_proj.weight", spoil)
    for form in ("w4a16", *INT4_FORMS):
        with pytest.raises(
            CheckpointError, match=r"layers\.1\.mlp\.up_proj\.weight, row 5, group 1 .*32 to 63"
        ):
            convert(first, target(tmp_path, form), form)
        assert sorted(path.name for path in tmp_path.iterdir()) == ["first"]
    summary = convert(first, tmp_path / "rounded", "w4a16", round=True)
    assert not summary.notes.levels  # the rest of the tensor kept its grid
    before, after = tensors(first), tensors(tmp_path / "rounded")
    changed = dense(after["layers.1.mlp.up_proj.weight"]).astype(ml_dtypes.bfloat16).astype(np.float32)
    other = np.ones(changed.shape, bool)
    other[5, 32:64] = False
    np.testing.assert_array_equal(changed[other], before["layers.1.mlp.up_proj.weight"][0][other])


@pytest.mark.parametrize(("scale", "shown"), [(1e-9, "9.968"), (1e6, "999424"), (np.nan, "nan")])
def test_a_scale_that_float16_does_not_hold_is_refused_by_its_place(
    scale: float, shown: str, tmp_path: Path
) -> None:
    first = make(tmp_path / "first", GEMMA4)

    def spoil(scales: np.ndarray) -> None:
        scales[7, 2] = scale

    _edit(first, "model.layers.0.self_attn.q_proj.weight_scale", spoil)
    with pytest.raises(CheckpointError, match=rf"q_proj\.weight, row 7, group 2: its scale is {shown}"):
        convert(first, tmp_path / "to.gguf", "q4_0")
    assert not (tmp_path / "to.gguf").exists()


def test_bf16_counts_the_products_that_it_rounds(tmp_path: Path) -> None:
    first = make(tmp_path / "first", GEMMA4)
    summary = convert(first, tmp_path / "bf16", "bf16")
    expected = 0
    for parts in tensors(first).values():
        exact = dense(parts)
        expected += int((exact.astype(ml_dtypes.bfloat16).astype(np.float32) != exact).sum())
    assert summary.notes.rounded == {"BF16": expected}
    assert expected > 0
    assert any("Rounded to BF16" in line for line in summary.lines())


def test_what_a_quantised_source_left_dense_stays_dense(tmp_path: Path) -> None:
    first = make(tmp_path / "first", GEMMA4)
    name = "model.per_layer_model_projection"
    raw = json.loads((first / "config.json").read_text())
    raw["quantization_config"]["ignore"].append(name)
    (first / "config.json").write_text(json.dumps(raw))
    file = TensorFile(first / "model.safetensors")
    arrays = {key: np.array(file.read(key)) for key in file.tensors}
    packed, scale = (arrays.pop(f"{name}.weight_{part}") for part in ("packed", "scale"))
    del arrays[f"{name}.weight_shape"]
    arrays[f"{name}.weight"] = dequantize_int4(packed, scale).astype(ml_dtypes.bfloat16)
    arrays[f"{name}.weight"][0, 0] = 0.37  # on no grid
    infos = {key: TensorInfo(dtype_name(array.dtype), array.shape) for key, array in arrays.items()}
    write_tensors(first / "model.safetensors", infos, arrays.values())
    summary = convert(first, tmp_path / "to.gguf", "q4_0")
    assert summary.notes.kept == ["per_layer_model_projection.weight"]
    convert(tmp_path / "to.gguf", tmp_path / "back", "w4a16")
    assert_same(first, tmp_path / "back")
    assert (
        name in json.loads((tmp_path / "back" / "config.json").read_text())["quantization_config"]["ignore"]
    )


def test_a_folder_is_complete_and_served_as_before(tmp_path: Path) -> None:
    first = make(tmp_path / "first", GEMMA4, int4="no")
    (first / "additional_chat_templates").mkdir()
    (first / "additional_chat_templates" / "tool_use.jinja").write_text("{{ tools }}")
    convert(first, tmp_path / "to", "w4a16", round=True)
    names = {path.name for path in first.iterdir()}
    assert {path.name for path in (tmp_path / "to").iterdir()} == names
    for name in names - {"config.json", "model.safetensors", "additional_chat_templates"}:
        assert (tmp_path / "to" / name).read_bytes() == (first / name).read_bytes()
    assert read_config(tmp_path / "to") == read_config(first)
    back = tmp_path / "back"
    convert(tmp_path / "to", back, "bf16")
    assert "quantization_config" not in json.loads((back / "config.json").read_text())


def test_vision_tensors_go_along(tmp_path: Path) -> None:
    first = make(tmp_path / "first", {"model_type": "gemma4", "text_config": GEMMA4}, int4="dense")
    extra = {"model.vision_tower.encoder.weight": np.arange(8, dtype=np.float32).reshape(2, 4)}
    file = TensorFile(first / "model.safetensors")
    infos = dict(file.tensors)
    arrays = [np.array(file.read(key)) for key in infos]
    for name, array in extra.items():
        infos[name] = TensorInfo("F32", array.shape)
        arrays.append(array)
    write_tensors(first / "model.safetensors", infos, arrays)
    convert(first, tmp_path / "to", "w4a16")
    written = TensorFile(tmp_path / "to" / "model.safetensors")
    for name, array in extra.items():
        np.testing.assert_array_equal(written.read(name), array)
    ignored = json.loads((tmp_path / "to" / "config.json").read_text())["quantization_config"]["ignore"]
    assert "re:.*(vision|audio|multi_modal).*" in ignored
    assert_same(first, tmp_path / "to") if form_of(first) == "w4a16" else None
    convert(tmp_path / "to", tmp_path / "to.gguf", "q4_0")  # the text part
    assert_same(tmp_path / "to", tmp_path / "to.gguf")


def test_the_head_width_that_transformers_leaves_out_is_written_back(tmp_path: Path) -> None:
    raw = {key: value for key, value in GEMMA4.items() if key != "global_head_dim"}
    raw["per_layer_config"] = {"1": {"head_dim": 64}, "3": {"head_dim": 64}}
    first = make(tmp_path / "first", raw, int4="dense")
    convert(first, tmp_path / "to", "w4a16")
    assert json.loads((tmp_path / "to" / "config.json").read_text())["global_head_dim"] == 64


@pytest.mark.parametrize(
    ("form", "tables", "message"),
    [
        ("int8", None, r"--to is int8: it must be one of bf16, w4a16, .*gguf, q8_0, q4_0"),
        ("gguf", "q6_k", "--tables is for gguf-q4_0 only"),
        ("q4_0", "q5_1", "--tables is q5_1: it must be one of q4_0, q6_k, bf16"),
        ("w4a16", None, "is w4a16 already: copy it"),
    ],
)
def test_what_cannot_be_asked_for(form: str, tables: str | None, message: str, tmp_path: Path) -> None:
    first = make(tmp_path / "first", GEMMA3)
    with pytest.raises(UsageError, match=message):
        convert(first, tmp_path / "to", form, tables=tables)
    assert not (tmp_path / "to").exists()


def test_targets_in_use_are_left_alone(tmp_path: Path) -> None:
    first = make(tmp_path / "first", GEMMA3)
    (tmp_path / "file.gguf").write_text("keep")
    with pytest.raises(UsageError, match="is a file: give a new name"):
        convert(first, tmp_path / "file.gguf", "q4_0")
    with pytest.raises(UsageError, match="is not empty"):
        convert(first, first, "bf16")
    with pytest.raises(UsageError, match=r"ends in \.gguf, but bf16 is a folder"):
        convert(first, tmp_path / "new.gguf", "bf16")
    assert (tmp_path / "file.gguf").read_text() == "keep"


def test_a_disk_too_small_is_seen_before_writing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first = make(tmp_path / "first", GEMMA3)
    usage = namedtuple("usage", "total used free")
    monkeypatch.setattr(shutil, "disk_usage", lambda folder: usage(100, 0, 10**7))
    for form in ("bf16", "gguf-bf16"):
        with pytest.raises(UsageError, match=r"its disk has 0\.01 GB free"):
            convert(first, target(tmp_path, form), form)
        assert not target(tmp_path, form).exists()


def test_an_interrupt_leaves_nothing(tmp_path: Path) -> None:
    first = make(tmp_path / "first", GEMMA3)

    def stop(done: int, total: int) -> None:
        if done > total / 2:
            raise KeyboardInterrupt

    for form in ("bf16", "gguf-bf16"):
        with pytest.raises(KeyboardInterrupt):
            convert(first, target(tmp_path, form), form, progress=stop)
        assert [path.name for path in tmp_path.iterdir()] == ["first"]


def test_progress_counts_to_the_end(tmp_path: Path) -> None:
    first = make(tmp_path / "first", GEMMA3)
    for form in ("bf16", "gguf-q4_0"):
        seen: list[tuple[int, int]] = []

        def show(done: int, total: int, seen: list[tuple[int, int]] = seen) -> None:
            seen.append((done, total))

        summary = convert(first, target(tmp_path, form), form, progress=show)
        assert seen[-1] == (summary.weight_bytes, summary.weight_bytes)
        assert seen == sorted(seen)


def test_gguf_into_a_folder(tmp_path: Path) -> None:
    first = make(tmp_path / "first", GEMMA3)
    (tmp_path / "to").mkdir()
    convert(first, tmp_path / "to", "q4_0")
    assert [path.name for path in (tmp_path / "to").iterdir()] == ["model.gguf"]
    assert form_of(tmp_path / "to") == "gguf-q4_0"


def test_command(tmp_path: Path) -> None:
    arguments = ["convert", "acorn", str(tmp_path / "a.gguf"), "--to", "q4_0"]
    command = [sys.executable, "-m", "onechip.cli", *arguments]
    refused = subprocess.run(command, capture_output=True, text=True, check=False)
    assert refused.returncode == CheckpointError.exit_code
    assert "row 0, group 0 (columns 0 to 31)" in refused.stderr
    assert "--round" in refused.stderr
    done = CliRunner().invoke(app, [*arguments, "--round"])
    assert done.exit_code == 0, done.output
    assert "a.gguf: gguf-q4_0, 1.76 MB of weights" in done.output
    assert "Rounded to int4, as --round allows: 42 tensors." in done.output


def test_a_file_without_tensors(tmp_path: Path) -> None:
    (tmp_path / "nothing.gguf").write_bytes(b"GGUF" + struct.pack("<IQQ", 2, 0, 0))
    with pytest.raises(CheckpointError, match=r"nothing\.gguf holds no weights: fetch it again"):
        convert(tmp_path / "nothing.gguf", tmp_path / "z", "bf16")
