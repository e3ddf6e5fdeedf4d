"""Our logits against those that transformers computed (tests/golden/make.py), on every kind of layer."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from onechip.models import decoder
from onechip.models.config import LayerSpec, ModelConfig, read_config
from onechip.models.layout import Params, expected_tensors, get, put
from onechip.models.weights import load_weights

GOLDEN = Path(__file__).parents[1] / "golden"
CASES = ("e2b", "e4b", "12b", "31b")
RELATIVE = 1e-4


@dataclass(frozen=True)
class Golden:
    """A shrunken model and what transformers made of two prompts.

    Attributes:
        params: float32.
        prompt_lengths: of each prompt.
        tokens: [2, T] prompts and greedy continuations, the shorter one filled with 0 at its end.
        logits: transformers' float32 logits of each, [length, V].
    """

    config: ModelConfig
    params: Params
    prompt_lengths: list[int]
    tokens: np.ndarray
    logits: list[np.ndarray]


@cache
def golden(case: str) -> Golden:
    folder = GOLDEN / case
    config = read_config(folder)
    params = jax.tree.map(lambda leaf: jnp.asarray(leaf, jnp.float32), load_weights(folder, config))
    with np.load(folder / "golden.npz") as stored:
        lengths = stored["prompt_lengths"].tolist()
        rows = [stored[f"tokens_{i}"] for i in range(len(lengths))]
        logits = [stored[f"logits_{i}"] for i in range(len(lengths))]
    longest = max(map(len, rows))
    tokens = np.stack([np.pad(row, (0, longest - len(row))) for row in rows])
    return Golden(config, params, lengths, tokens, logits)


@cache
def program(config: ModelConfig) -> Any:
    def run(params: Params, tokens: jax.Array) -> jax.Array:
        positions = jnp.broadcast_to(jnp.arange(tokens.shape[1], dtype=jnp.int32), tokens.shape)
        return decoder.forward(config, params, tokens, positions, dtype=jnp.float32)

    return jax.jit(run)


def our_logits(config: ModelConfig, params: Params, model: Golden) -> list[np.ndarray]:
    """Logits of each run [length, V]; what fills the shorter one comes after it, so that it cannot matter."""
    padded = np.asarray(program(config)(params, model.tokens))
    return [row[: len(truth)] for row, truth in zip(padded, model.logits, strict=True)]


def deviation(config: ModelConfig, params: Params, model: Golden) -> float:
    """The largest difference from transformers' logits, over the largest of those."""
    ours, truth = np.concatenate(our_logits(config, params, model)), np.concatenate(model.logits)
    return float(np.abs(ours - truth).max() / np.abs(truth).max())


@pytest.mark.parametrize("case", CASES)
def test_logits_and_greedy_text(case: str) -> None:
    """One pass over prompt and continuation: it is greedy if each token is the argmax before it."""
    model = golden(case)
    all_ours = our_logits(model.config, model.params, model)
    runs = zip(all_ours, model.logits, model.tokens, model.prompt_lengths, strict=True)
    for ours, truth, tokens, prompt_length in runs:
        np.testing.assert_allclose(ours, truth, rtol=RELATIVE, atol=RELATIVE * np.abs(truth).max())
        continuation = tokens[prompt_length : len(truth)]
        assert len(continuation) == 64
        np.testing.assert_array_equal(ours[prompt_length - 1 : -1].argmax(axis=-1), continuation)


def test_cases_cover_every_kind_of_layer() -> None:
    def kind(model: Golden, layer: LayerSpec) -> tuple[object, ...]:
        wide = layer.intermediate > model.config.layers[0].intermediate
        return layer.kind, layer.owns_kv, wide, layer.k_eq_v, layer.kv_heads > 1, model.config.ple_dim > 0

    kinds = {kind(model, layer) for model in map(golden, CASES) for layer in model.config.layers}
    for attention in ("sliding", "full"):
        for kv_heads in (False, True):
            assert (attention, True, False, False, kv_heads, True) in kinds  # own K and V: E2B, E4B
        assert (attention, False, True, False, False, True) in kinds  # shared, double-wide: E2B
        assert (attention, False, False, False, True, True) in kinds  # shared, as wide: E4B
    assert ("sliding", True, False, False, True, False) in kinds  # 12B, 31B
    assert ("full", True, False, True, False, False) in kinds  # 12B: K is V, one head
    assert ("full", True, False, True, True, False) in kinds  # 31B: K is V, several heads
    for model in map(golden, CASES):
        assert min(model.prompt_lengths) > model.config.sliding_window


@pytest.mark.parametrize("case", CASES)
def test_the_golden_logits_see_every_tensor(case: str) -> None:
    """Change any one tensor and the logits leave the truth: none can be misplaced or left out."""
    model = golden(case)
    *specs, last_scalar, norm = (s for s in expected_tensors(model.config) if s.path != ("lm_head",))
    assert last_scalar.path == ("layers", len(model.config.layers) - 1, "scalar")  # the final norm undoes it
    for spec in [*specs, norm]:
        leaf = get(model.params, spec.path)
        params = jax.tree.map(lambda leaf: leaf, model.params)
        put(params, spec.path, leaf[::-1] if leaf.ndim else leaf + 1)
        assert deviation(model.config, params, model) > RELATIVE, spec.name


def reshared(config: ModelConfig) -> ModelConfig:
    """The layers that share a cache read the first one of their kind instead of the last."""
    first = {"sliding": 0, "full": 1}
    layers = [
        layer if layer.owns_kv else replace(layer, kv_source=first[layer.kind]) for layer in config.layers
    ]
    return replace(config, layers=tuple(layers))


@pytest.mark.parametrize(
    "wrong",
    [
        lambda config: replace(config, sliding_window=config.sliding_window + 1),
        lambda config: replace(config, rope_full=replace(config.rope_full, fraction=1.0)),
        reshared,
    ],
    ids=["window", "rope-fraction", "kv-source"],
)
def test_the_golden_logits_see_the_numbers_of_the_config(wrong: Any) -> None:
    model = golden("e2b")
    assert deviation(wrong(model.config), model.params, model) > 100 * RELATIVE
