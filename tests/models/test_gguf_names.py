"""Names against the gguf package's table for converters, and the order of Llama's rows."""

from __future__ import annotations

import gguf
import numpy as np
import pytest

from onechip.models.gguf.names import architecture, deinterleave, gguf_tensor, interleave
from onechip.models.layout import expected_tensors
from tests.models.gguf_files import config

ARCHITECTURES = {
    "gemma4": gguf.MODEL_ARCH.GEMMA4,
    "gemma3": gguf.MODEL_ARCH.GEMMA3,
    "llama": gguf.MODEL_ARCH.LLAMA,
}


@pytest.mark.parametrize("name", ARCHITECTURES)
def test_names_are_the_packages(name: str) -> None:
    model = config(name, tie_word_embeddings=False)
    assert architecture(model) == name
    table = gguf.get_tensor_name_map(ARCHITECTURES[name], len(model.layers))
    for spec in expected_tensors(model):
        full = spec.name if spec.name.startswith("lm_head") else f"model.{spec.name}"
        expected = table.get_name(full.removesuffix(".weight"))
        assert gguf_tensor(spec, model).name == f"{expected}.weight"


def test_norms_of_gemma_3_alone_are_shifted() -> None:
    for name, shift in (("gemma4", 0.0), ("gemma3", 1.0), ("llama", 0.0)):
        model = config(name)
        places = {spec.name: gguf_tensor(spec, model) for spec in expected_tensors(model)}
        shifted = {name for name, place in places.items() if place.shift}
        assert shifted == ({name for name in places if name.endswith("norm.weight")} if shift else set())


def test_mistral_is_a_llama_file() -> None:
    assert architecture(config("llama", model_type="mistral", sliding_window=None)) == "llama"


def test_rows_of_q_and_k_are_interleaved_in_llama_alone() -> None:
    for name in ARCHITECTURES:
        model = config(name)
        heads = {spec.path[-1]: gguf_tensor(spec, model).heads for spec in expected_tensors(model)}
        assert (heads["q"], heads["k"], heads["v"]) == ((4, 2, 0) if name == "llama" else (0, 0, 0))


def test_interleave_is_llama_cpps_order() -> None:
    """Its converter reshapes [heads, 2, half] and swaps the inner axes; ours is an index of rows."""
    weights = np.arange(3 * 8 * 5).reshape(24, 5)
    expected = weights.reshape(3, 2, 4, 5).swapaxes(1, 2).reshape(24, 5)
    np.testing.assert_array_equal(weights[interleave(24, 3)], expected)
    np.testing.assert_array_equal(expected[deinterleave(24, 3)], weights)
