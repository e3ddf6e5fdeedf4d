"""Packed tables, and what of the decoder no golden model shows."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from onechip.engine import placement
from onechip.kernels.api import Int4
from onechip.kernels.xla import PlainKernels
from onechip.models import decoder
from onechip.models.config import ModelConfig, read_config, read_json
from onechip.models.layout import Params, expected_tensors, get, put
from onechip.models.leaf import quantize_params
from onechip.models.quant import dequantize_int4, quantize_int4
from onechip.models.scheme import read_scheme
from onechip.models.weights import load_weights, save_checkpoint, stored_kinds

PLAIN = PlainKernels()
E2B = Path(__file__).parents[1] / "golden" / "e2b"
TABLES = {"embed_tokens.weight", "embed_tokens_per_layer.weight"}
MODULES = [
    "model.language_model.embed_tokens",
    "model.language_model.embed_tokens_per_layer",
]


def packed_everywhere(scale_dtype: type | None = None) -> tuple[ModelConfig, Params]:
    """The golden E2B with linears and tables in int4, on the host."""
    config = read_config(E2B)
    params = quantize_params(load_weights(E2B, config), config)
    for spec in expected_tensors(config):
        if spec.table:
            words, scale = quantize_int4(np.asarray(get(params, spec.path)))
            put(params, spec.path, Int4(words, scale.astype(scale_dtype or scale.dtype)))
    return config, params


@pytest.mark.parametrize("scale_dtype", [None, np.float16])
def test_packed_tables_are_saved_and_loaded_exactly(scale_dtype: type | None, tmp_path: Path) -> None:
    config, params = packed_everywhere(scale_dtype)
    save_checkpoint(tmp_path, read_json(E2B / "config.json"), params)
    loaded = load_weights(tmp_path, config)
    assert jax.tree.structure(loaded) == jax.tree.structure(params)
    for ours, theirs in zip(jax.tree.leaves(loaded), jax.tree.leaves(params), strict=True):
        assert ours.dtype == theirs.dtype
        np.testing.assert_array_equal(ours, theirs)
    linears = {spec.name for spec in expected_tensors(config) if spec.linear}
    assert stored_kinds(tmp_path, config) == dict.fromkeys(linears | TABLES, "int4")
    groups = read_json(tmp_path / "config.json")["quantization_config"]["config_groups"]
    assert [group["targets"] for group in groups.values()] == [["Linear"], MODULES]


@pytest.mark.parametrize("targets", [["Embedding"], ["re:.*embed_tokens.*"], MODULES])
def test_tables_are_named_by_class_by_pattern_or_by_name(targets: list[str], tmp_path: Path) -> None:
    save_checkpoint(tmp_path, read_json(E2B / "config.json"), packed_everywhere()[1])
    raw = read_json(tmp_path / "config.json")
    raw["quantization_config"]["config_groups"]["group_1"]["targets"] = targets
    scheme = read_scheme(raw)
    assert scheme is not None
    assert all(scheme.covers(module, "Embedding") for module in MODULES)
    assert scheme.covers("model.language_model.layers.0.mlp.up_proj")
    assert not scheme.covers("lm_head")


@pytest.mark.parametrize("tokens", [(1,), (2, 9)], ids=str)
def test_packed_rows_are_those_of_the_expanded_table(tokens: tuple[int, ...]) -> None:
    config, params = packed_everywhere()
    ids = jnp.asarray(np.random.default_rng(1).integers(0, config.vocab, tokens), jnp.int32)
    dense = {
        name: dequantize_int4(leaf.packed, leaf.scale) if isinstance(leaf, Int4) else leaf
        for name, leaf in params.items()
        if name != "layers"
    }
    packed = jax.tree.map(jnp.asarray, {name: params[name] for name in dense})
    for ours, theirs in zip(
        decoder.embed(config, PLAIN, packed, ids, jnp.float32),
        decoder.embed(config, PLAIN, dense, ids, jnp.float32),
        strict=True,
    ):
        np.testing.assert_array_equal(ours, theirs)


def test_at_least_eight_rows_of_a_packed_table_are_fetched() -> None:
    """One row makes a TPU's compiler copy the whole table in each step; eight do not (found by compiling)."""
    config, params = packed_everywhere()
    params = jax.tree.map(jnp.asarray, params)
    program = jax.make_jaxpr(lambda ids: decoder.embed(config, PLAIN, params, ids, jnp.bfloat16))
    gathers = [e for e in program(jnp.zeros(1, jnp.int32)).jaxpr.eqns if e.primitive.name == "gather"]
    assert len(gathers) == 4  # words and scales of two tables
    assert {e.outvars[0].aval.shape[0] for e in gathers} == {8}


def test_a_model_with_packed_tables_computes_what_its_values_say() -> None:
    """Packed as on an accelerator, expanded as on the CPU: the same logits, from the same 4-bit values."""
    config, params = packed_everywhere()
    tokens = jnp.asarray(np.random.default_rng(2).integers(0, config.vocab, (2, 12)), jnp.int32)
    positions = jnp.broadcast_to(jnp.arange(12), (2, 12))

    def logits(packed: bool) -> np.ndarray:
        kinds = dict.fromkeys((s.name for s in expected_tensors(config) if s.linear or s.table), "int4")
        precision = placement.Precision(jnp.float32, kinds if packed else {})
        placed = placement.place(config, lambda spec: get(params, spec.path), precision)
        assert isinstance(placed["embed"], Int4) == packed
        forward = jax.jit(partial(decoder.forward_fused, config, PLAIN, dtype=jnp.float32))
        return np.asarray(forward(placed, tokens, positions))

    np.testing.assert_allclose(logits(True), logits(False), rtol=1e-4, atol=1e-4)


def test_a_scale_on_the_rotation_is_a_scale_of_the_scores() -> None:
    x = jnp.asarray(np.random.default_rng(3).normal(size=(5, 2, 16)), jnp.float32)
    layer = replace(read_config(E2B).layers[0], head_dim=16)
    turns = decoder.rope_turns(read_config(E2B), layer, jnp.arange(5))
    plain, scaled = (decoder.rope(x, turns, scale) for scale in (1.0, 0.3))
    np.testing.assert_allclose(scaled, 0.3 * plain, rtol=1e-6, atol=1e-6)
