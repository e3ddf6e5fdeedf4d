"""Names that checkpoints of the families give the same tensors, and what they carry besides."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from safetensors import safe_open

from onechip.models.config import read_config, read_json
from onechip.models.layout import expected_tensors, get
from onechip.models.weights import save_checkpoint
from tests.models.test_weights import GOLDEN, Tensors, assert_same, load, refused, rewrite

PUBLISHED, SAVED = "language_model.model.", "model.language_model."


def renamed(change: Callable[[str], str]) -> Callable[[Tensors], None]:
    def rename(tensors: Tensors) -> None:
        for name in list(tensors):
            tensors[change(name)] = tensors.pop(name)

    return rename


def as_saved_since_4_52(name: str) -> str:
    """The names that transformers gives inside the model, and wrote for a while."""
    return name.replace(PUBLISHED, SAVED) if name.startswith(PUBLISHED) else f"model.{name}"


@pytest.mark.parametrize("case", ["gemma3", "llama3", "llama-tied", "mistral"])
def test_text_models_have_every_tensor_under_model(case: str) -> None:
    config, params = read_config(GOLDEN / case), load(GOLDEN / case)
    with safe_open(GOLDEN / case / "model.safetensors", "np") as file:
        unread = set(file.keys())
    for spec in expected_tensors(config):
        assert get(params, spec.path).shape == spec.shape
        unread.remove(spec.name if spec.name == "lm_head.weight" else f"model.{spec.name}")
    assert not unread


def test_gemma_3_beside_a_vision_tower_in_both_namings(tmp_path: Path) -> None:
    source = GOLDEN / "gemma3-4b"
    with safe_open(source / "model.safetensors", "np") as file:
        heads = {name.split(".")[0] for name in file.keys()}  # noqa: SIM118
    assert heads == {"language_model", "vision_tower", "multi_modal_projector"}
    folder = rewrite(source, tmp_path, renamed(as_saved_since_4_52))
    assert_same(load(folder), load(source))


def test_an_untied_head_of_the_published_naming(tmp_path: Path) -> None:
    def add_head(tensors: Tensors) -> None:
        tensors["language_model.lm_head.weight"] = tensors[f"{PUBLISHED}embed_tokens.weight"]

    folder = rewrite(GOLDEN / "gemma3-4b", tmp_path, add_head)
    assert_same(load(folder), load(GOLDEN / "gemma3-4b"))  # tied: passed over
    config_file = folder / "config.json"
    config_file.write_text(config_file.read_text().replace('embeddings": true', 'embeddings": false'))
    params = load(folder)
    np.testing.assert_array_equal(params["lm_head"], params["embed"])


def test_the_frequencies_of_old_llama_checkpoints_are_passed_over(tmp_path: Path) -> None:
    name = "model.layers.0.self_attn.rotary_emb.inv_freq"
    folder = rewrite(GOLDEN / "llama3", tmp_path, lambda t: t.update({name: np.ones(6, np.float32)}))
    assert_same(load(folder), load(GOLDEN / "llama3"))


def test_a_norm_of_another_family_is_surplus(tmp_path: Path) -> None:
    name = "model.layers.0.self_attn.q_norm.weight"
    folder = rewrite(GOLDEN / "llama3", tmp_path, lambda t: t.update({name: np.ones(12, np.float32)}))
    refused(folder, f"{name} in .* is not a tensor of this model")


@pytest.mark.parametrize("case", ["gemma3-4b", "llama3"])
def test_save_then_load_is_exact(case: str, tmp_path: Path) -> None:
    params = load(GOLDEN / case)
    save_checkpoint(tmp_path, read_json(GOLDEN / case / "config.json"), params)
    assert_same(load(tmp_path), params)
