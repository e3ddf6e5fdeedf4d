"""Checkpoints that load, and every way in which one can be damaged or of another kind."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import ml_dtypes
import numpy as np
import pytest
from safetensors import safe_open

from onechip.errors import CheckpointError
from onechip.kernels.api import Int4
from onechip.models.config import parse_config, read_config, read_json
from onechip.models.layout import Params, dead_modules, expected_tensors, get
from onechip.models.leaf import quantize_params
from onechip.models.quant import dequantize_int4
from onechip.models.tensorfile import TensorFile, TensorInfo, dtype_name, write_tensors
from onechip.models.weights import load_weights, save_checkpoint, weight_reader

GOLDEN = Path(__file__).parents[1] / "golden"
E2B = GOLDEN / "e2b"
PREFIX = "model.language_model."
Tensors = dict[str, np.ndarray]


@pytest.fixture(scope="module")
def quantized(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The golden E2B in W4A16."""
    folder = tmp_path_factory.mktemp("w4a16")
    config = read_config(E2B)
    save_checkpoint(
        folder, read_json(E2B / "config.json"), quantize_params(load_weights(E2B, config), config)
    )
    return folder


def rewrite(source: Path, target: Path, change: Callable[[Tensors], object]) -> Path:
    """A copy of a one-file checkpoint with its tensors changed in place by `change`."""
    target.mkdir(exist_ok=True)
    shutil.copy(source / "config.json", target / "config.json")
    file = TensorFile(source / "model.safetensors")
    tensors = {name: file.read(name) for name in file.tensors}
    change(tensors)
    infos = {name: TensorInfo(dtype_name(array.dtype), array.shape) for name, array in tensors.items()}
    write_tensors(target / "model.safetensors", infos, tensors.values())
    return target


def edit_config(folder: Path, change: Callable[[dict[str, Any]], object]) -> None:
    raw = read_json(folder / "config.json")
    change(raw)
    (folder / "config.json").write_text(json.dumps(raw))


def load(folder: Path) -> Params:
    return load_weights(folder, read_config(folder))


def assert_same(left: Params, right: Params) -> None:
    assert jax.tree.structure(left) == jax.tree.structure(right)
    for a, b in zip(jax.tree.leaves(left), jax.tree.leaves(right), strict=True):
        assert a.dtype == b.dtype
        np.testing.assert_array_equal(a, b)


def refused(folder: Path, message: str) -> None:
    with pytest.raises(CheckpointError, match=message) as caught:
        load(folder)
    assert "\n" not in caught.value.message


@pytest.mark.parametrize("case", ["e2b", "e4b", "12b", "31b"])
def test_every_tensor_is_where_transformers_wrote_it(case: str) -> None:
    folder = GOLDEN / case
    config, params = read_config(folder), load(folder)
    prefix = PREFIX if case in ("e2b", "12b") else "model."
    unread = set()
    for path in folder.glob("*.safetensors"):
        with safe_open(path, "np") as file:
            unread |= set(file.keys())
    for spec in expected_tensors(config):
        leaf = get(params, spec.path)
        assert leaf.dtype == ml_dtypes.bfloat16
        assert leaf.shape == (() if spec.path[-1] == "scalar" else spec.shape)
        unread.remove(spec.name if spec.name == "lm_head.weight" else prefix + spec.name)
    assert not unread
    assert len(params["layers"]) == len(config.layers)
    for layer, weights in zip(config.layers, params["layers"], strict=True):
        assert ("k" in weights) == ("k_norm" in weights) == layer.owns_kv
        assert ("v" in weights) == (layer.owns_kv and not layer.k_eq_v)
        assert ("ple_gate" in weights) == bool(config.ple_dim)


def test_progress_counts_every_tensor() -> None:
    config = read_config(E2B)
    calls: list[tuple[str, int, int]] = []
    read = weight_reader(E2B, config, progress=lambda *call: calls.append(call))
    for spec in expected_tensors(config):
        read(spec)
    names = [spec.name for spec in expected_tensors(config)]
    assert calls == [(name, i, len(names)) for i, name in enumerate(names, 1)]


def test_arrays_are_views_of_the_file() -> None:
    embed = load(E2B)["embed"]
    assert not embed.flags.owndata
    assert not embed.flags.writeable


@pytest.mark.parametrize("case", ["e2b", "31b"])
def test_save_then_load_is_exact(case: str, tmp_path: Path) -> None:
    folder = GOLDEN / case
    params = load(folder)
    save_checkpoint(tmp_path / "new", read_json(folder / "config.json"), params)
    assert_same(load(tmp_path / "new"), params)
    assert read_json(tmp_path / "new" / "config.json") == read_json(folder / "config.json")
    with safe_open(tmp_path / "new" / "model.safetensors", "np") as file:  # the library reads what we wrote
        assert len(file.keys()) == len(expected_tensors(read_config(folder)))


def test_text_only_names_load_too(tmp_path: Path) -> None:
    def rename(tensors: Tensors) -> None:
        for name in list(tensors):
            tensors[name.replace(PREFIX, "model.")] = tensors.pop(name)

    assert_same(load(rewrite(E2B, tmp_path, rename)), load(E2B))


def test_what_a_text_model_does_not_need_is_passed_over(tmp_path: Path) -> None:
    def add(tensors: Tensors) -> None:
        other = np.zeros((2, 2), np.float64)
        for part in (
            "vision_tower.x",
            "audio_tower.y",
            "embed_vision.z",
            "embed_audio.z",
            "vision_embedder.w",
        ):
            tensors[f"model.{part}.weight"] = other
        tensors["lm_head.weight"] = tensors[f"{PREFIX}embed_tokens.weight"]
        for module in dead_modules(read_config(E2B)):
            tensors[f"{PREFIX}{module}.weight"] = other

    folder = rewrite(E2B, tmp_path, add)
    assert f"{PREFIX}layers.4.self_attn.k_norm.weight" in TensorFile(folder / "model.safetensors").tensors
    assert_same(load(folder), load(E2B))


@pytest.mark.parametrize("kind", [np.float32, np.float16])
def test_other_floats_load_as_stored(kind: Any, tmp_path: Path) -> None:
    def widen(tensors: Tensors) -> None:
        tensors |= {name: array.astype(kind) for name, array in tensors.items()}

    params = load(rewrite(E2B, tmp_path, widen))
    assert {leaf.dtype for leaf in jax.tree.leaves(params)} == {np.dtype(kind)}


def test_missing_tensor(tmp_path: Path) -> None:
    folder = rewrite(E2B, tmp_path, lambda tensors: tensors.pop(f"{PREFIX}layers.3.mlp.up_proj.weight"))
    refused(folder, r"model\.language_model\.layers\.3\.mlp\.up_proj\.weight is missing in")


def test_own_layers_need_their_keys_and_values(tmp_path: Path) -> None:
    folder = rewrite(E2B, tmp_path, lambda tensors: tensors.pop(f"{PREFIX}layers.3.self_attn.k_norm.weight"))
    refused(folder, r"layers\.3\.self_attn\.k_norm\.weight is missing in")


def test_untied_model_needs_its_head(tmp_path: Path) -> None:
    folder = rewrite(GOLDEN / "31b", tmp_path, lambda tensors: tensors.pop("lm_head.weight"))
    refused(folder, r"lm_head\.weight is missing in")


@pytest.mark.parametrize(
    "name",
    [f"{PREFIX}layers.8.mlp.up_proj.weight", f"{PREFIX}layers.0.self_attn.q_proj.bias", "adapter.weight"],
)
def test_surplus_tensor(name: str, tmp_path: Path) -> None:
    folder = rewrite(E2B, tmp_path, lambda tensors: tensors.update({name: np.zeros(2, np.float32)}))
    refused(folder, f"{name} in .* is not a tensor of this model")


def test_a_stray_tensor_of_the_other_naming_is_the_one_that_is_refused(tmp_path: Path) -> None:
    def add(name: str) -> Callable[[Tensors], object]:
        return lambda tensors: tensors.update({name: np.zeros(2, np.float32)})

    for case, stray in (("31b", f"{PREFIX}layers.0.x.weight"), ("e2b", "model.layers.0.x.weight")):
        folder = rewrite(GOLDEN / case, tmp_path / case, add(stray))
        refused(folder, f"^{stray} in .* is not a tensor of this model")


def test_value_projection_is_surplus_where_k_is_v(tmp_path: Path) -> None:
    name = "model.layers.1.self_attn.v_proj.weight"
    folder = rewrite(
        GOLDEN / "31b", tmp_path, lambda tensors: tensors.update({name: np.zeros(2, np.float32)})
    )
    refused(folder, f"{name} in .* is not a tensor of this model")


def test_mis_shaped_tensor(tmp_path: Path) -> None:
    name = f"{PREFIX}layers.4.mlp.gate_proj.weight"
    folder = rewrite(E2B, tmp_path, lambda tensors: tensors.update({name: tensors[name][:64]}))
    refused(folder, rf"{name} in .* has shape \[64, 64\]: config.json makes it \[128, 64\]")


def test_wrong_dtype(tmp_path: Path) -> None:
    name = f"{PREFIX}norm.weight"
    folder = rewrite(E2B, tmp_path, lambda tensors: tensors.update({name: tensors[name].astype(np.int32)}))
    refused(folder, f"{name} in .* has dtype I32: onechip reads BF16, F16, F32 here")


def test_float8_is_refused_by_name(tmp_path: Path) -> None:
    folder = rewrite(E2B, tmp_path, lambda tensors: None)
    path = folder / "model.safetensors"
    path.write_bytes(path.read_bytes().replace(b'"BF16"', b'"F8_X"', 1))
    refused(folder, "has dtype F8_X: onechip reads BF16, F16, F32 here")


def test_no_weights(tmp_path: Path) -> None:
    shutil.copy(E2B / "config.json", tmp_path)
    refused(tmp_path, "has no weights: a checkpoint folder has a .safetensors or a .gguf file")
    for name in ("a", "b"):
        shutil.copy(E2B / "model.safetensors", tmp_path / f"{name}.safetensors")
    refused(tmp_path, "has 2 .safetensors files and no model.safetensors.index.json")


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (
            lambda folder: (folder / "model-00002-of-00003.safetensors").unlink(),
            "model-00002-of-00003.safetensors is missing in .*sharded, model.safetensors.index.json names it",
        ),
        (lambda folder: (folder / "model.safetensors.index.json").write_text("{}"), "has no weight_map"),
        (
            lambda folder: (folder / "model.safetensors.index.json").write_text(
                json.dumps({"weight_map": {"model.norm.weight": "../model.safetensors"}})
            ),
            "has no weight_map of tensor names to file names",
        ),
        (
            lambda folder: (folder / "model.safetensors.index.json").write_text(
                json.dumps({"weight_map": {"model.norm.weight": "model-00001-of-00003.safetensors"}})
            ),
            "model.norm.weight is missing in .*model-00001-of-00003.safetensors, where",
        ),
    ],
)
def test_damaged_shards(damage: Callable[[Path], object], message: str, tmp_path: Path) -> None:
    folder = tmp_path / "sharded"
    shutil.copytree(GOLDEN / "e4b", folder)
    damage(folder)
    refused(folder, message)


def test_quantising_replaces_the_linears_of_the_layers(quantized: Path) -> None:
    config, dense, params = read_config(quantized), load(E2B), load(quantized)
    for spec in expected_tensors(config):
        leaf, original = get(params, spec.path), get(dense, spec.path)
        assert isinstance(leaf, Int4) == spec.linear, spec.name
        if isinstance(leaf, Int4):
            assert leaf.shape == spec.shape
            step = np.repeat(leaf.scale.astype(np.float32), 32, axis=1)
            error = np.abs(dequantize_int4(leaf.packed, leaf.scale) - original.astype(np.float32))
            assert (error <= 0.54 * step).all(), spec.name
        else:
            np.testing.assert_array_equal(leaf, original)
    assert_same(quantize_params(params, config), params)


def test_an_untied_head_stays_dense(tmp_path: Path) -> None:
    folder = GOLDEN / "31b"
    config = read_config(folder)
    save_checkpoint(tmp_path, read_json(folder / "config.json"), quantize_params(load(folder), config))
    params = load(tmp_path)
    assert read_json(tmp_path / "config.json")["quantization_config"]["ignore"] == ["lm_head"]
    assert not isinstance(params["lm_head"], Int4)
    assert isinstance(params["layers"][1]["k"], Int4)


def test_quantising_names_the_tensor_that_it_cannot_do() -> None:
    config, params = read_config(E2B), load(E2B)
    params["layers"][2]["down"] = np.full(params["layers"][2]["down"].shape, np.nan, np.float32)
    with pytest.raises(
        CheckpointError, match=r"layers\.2\.mlp\.down_proj\.weight cannot be quantised.*not finite"
    ):
        quantize_params(params, config)


def unpack_module(module: str) -> Callable[[Tensors], None]:
    """Put a packed module back as a dense weight."""

    def change(tensors: Tensors) -> None:
        packed, scale = tensors.pop(f"{module}.weight_packed"), tensors.pop(f"{module}.weight_scale")
        del tensors[f"{module}.weight_shape"]
        tensors[f"{module}.weight"] = dequantize_int4(packed, scale)

    return change


@pytest.mark.parametrize("name", [f"{PREFIX}layers.0.mlp.up_proj", r"re:.*layers\.0\.mlp\.up.*"])
def test_ignored_modules_stay_dense(name: str, quantized: Path, tmp_path: Path) -> None:
    folder = rewrite(quantized, tmp_path, unpack_module(f"{PREFIX}layers.0.mlp.up_proj"))
    refused(folder, "layers.0.mlp.up_proj is dense in .* add it to quantization_config.ignore")
    edit_config(folder, lambda raw: raw["quantization_config"]["ignore"].append(name))
    params = load(folder)
    assert params["layers"][0]["up"].dtype == np.float32
    assert isinstance(params["layers"][0]["gate"], Int4)
    assert isinstance(params["layers"][1]["up"], Int4)


def test_packed_weights_need_a_quantization_config(quantized: Path, tmp_path: Path) -> None:
    folder = rewrite(quantized, tmp_path, lambda tensors: None)
    edit_config(folder, lambda raw: raw["quantization_config"]["ignore"].append("re:.*q_proj"))
    refused(
        folder,
        r"layers\.0\.self_attn\.q_proj is packed int4 in .*, but quantization_config lists it in `ignore`",
    )
    edit_config(folder, lambda raw: raw.pop("quantization_config"))
    refused(folder, "is packed int4 in .*, but config.json has no quantization_config")


@pytest.mark.parametrize(
    ("suffix", "value", "message"),
    [
        ("weight_scale", None, "weight_scale is missing in"),
        ("weight_scale", np.zeros((64, 1), ml_dtypes.bfloat16), r"weight_scale in .* has shape \[64, 1\]"),
        ("weight_scale", np.zeros((64, 2), np.float32), "weight_scale in .* has dtype F32"),
        ("weight_packed", np.zeros((64, 8), np.uint8), "weight_packed in .* has dtype U8"),
        (
            "weight_shape",
            np.array([64, 32]),
            r"weight_shape says \[64, 32\]: config.json makes it \[64, 64\]",
        ),
        (
            "weight_zero_point",
            np.zeros((64, 2), np.int32),
            "weight_zero_point in .* is not a tensor of this model",
        ),
        ("weight_g_idx", np.zeros(64, np.int32), "weight_g_idx in .* is not a tensor of this model"),
    ],
)
def test_damaged_int4(
    suffix: str, value: np.ndarray | None, message: str, quantized: Path, tmp_path: Path
) -> None:
    name = f"{PREFIX}layers.0.mlp.gate_proj.{suffix}"

    def change(tensors: Tensors) -> None:
        tensors.pop(name, None)
        if value is not None:
            tensors[name] = value

    refused(rewrite(quantized, tmp_path, change), message)


def test_inputs_that_are_not_groups_of_32(tmp_path: Path) -> None:
    raw = read_json(E2B / "config.json")
    raw["text_config"]["hidden_size"] = 72
    raw["quantization_config"] = {
        "quant_method": "compressed-tensors",
        "format": "pack-quantized",
        "config_groups": {
            "group_0": {
                "targets": ["Linear"],
                "weights": {
                    "num_bits": 4,
                    "type": "int",
                    "symmetric": True,
                    "strategy": "group",
                    "group_size": 32,
                },
            }
        },
    }
    config = parse_config(raw)
    tensors = {PREFIX + spec.name: np.zeros(spec.shape, np.float32) for spec in expected_tensors(config)}
    infos = {name: TensorInfo("F32", array.shape) for name, array in tensors.items()}
    (tmp_path / "config.json").write_text(json.dumps(raw))
    write_tensors(tmp_path / "model.safetensors", infos, tensors.values())
    refused(tmp_path, "has 72 inputs: int4 needs groups of 32")
