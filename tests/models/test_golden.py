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
from onechip.models.architecture import LayerSpec, ModelConfig, Rope
from onechip.models.config import read_config
from onechip.models.layout import Params, expected_tensors, get, put
from onechip.models.weights import load_weights

GOLDEN = Path(__file__).parents[1] / "golden"
GEMMA4 = ("e2b", "e4b", "12b", "31b")
CASES = (*GEMMA4, "gemma3", "gemma3-4b", "llama3", "llama-tied", "mistral")
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


def test_cases_cover_every_kind_of_layer_of_gemma_4() -> None:
    def kind(model: Golden, layer: LayerSpec) -> tuple[object, ...]:
        wide = layer.intermediate > model.config.layers[0].intermediate
        return layer.kind, layer.owns_kv, wide, layer.k_eq_v, layer.kv_heads > 1, model.config.ple_dim > 0

    kinds = {kind(model, layer) for model in map(golden, GEMMA4) for layer in model.config.layers}
    for attention in ("sliding", "full"):
        for kv_heads in (False, True):
            assert (attention, True, False, False, kv_heads, True) in kinds  # own K and V: E2B, E4B
        assert (attention, False, True, False, False, True) in kinds  # shared, double-wide: E2B
        assert (attention, False, False, False, True, True) in kinds  # shared, as wide: E4B
    assert ("sliding", True, False, False, True, False) in kinds  # 12B, 31B
    assert ("full", True, False, True, False, False) in kinds  # 12B: K is V, one head
    assert ("full", True, False, True, True, False) in kinds  # 31B: K is V, several heads


def test_cases_cover_what_the_families_do_differently() -> None:
    configs = {case: golden(case).config for case in CASES}
    for case, config in configs.items():
        assert min(golden(case).prompt_lengths) > config.sliding_window
    blocks = {case: config.block for case, config in configs.items()}
    assert len(set(blocks.values())) == 3
    assert blocks["mistral"] == blocks["llama3"] == blocks["llama-tied"]
    gemma3, llama3 = configs["gemma3"], configs["llama3"]
    assert (gemma3.layers[-1].kind, gemma3.layers[2].kind) == ("sliding", "full")
    assert gemma3.attention_scale != gemma3.layers[0].head_dim ** -0.5
    assert set(gemma3.rope_full.divisors) == {8.0}
    assert min(llama3.rope_full.divisors) == 1 < max(llama3.rope_full.divisors) == 8
    assert any(1 < divisor < 8 for divisor in llama3.rope_full.divisors)
    assert (llama3.tied, configs["llama-tied"].tied) == (False, True)
    assert {layer.kind for layer in configs["mistral"].layers} == {"sliding"}


@pytest.mark.parametrize("case", CASES)
def test_the_golden_logits_see_every_tensor(case: str) -> None:
    """Change any one tensor and the logits leave the truth: none can be misplaced or left out."""
    model = golden(case)
    last_scalar = ("layers", len(model.config.layers) - 1, "scalar")  # the final norm undoes it
    for spec in (spec for spec in expected_tensors(model.config) if spec.path != last_scalar):
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


def unstretched(config: ModelConfig) -> ModelConfig:
    return replace(config, rope_full=Rope(config.rope_full.theta))


def with_block(config: ModelConfig, **change: Any) -> ModelConfig:
    return replace(config, block=replace(config.block, **change))


WRONG = {
    "window": ("e2b", lambda config: replace(config, sliding_window=config.sliding_window + 1)),
    "rope-fraction": ("e2b", lambda config: replace(config, rope_full=Rope(config.rope_full.theta))),
    "kv-source": ("e2b", reshared),
    "linear-rope": ("gemma3", unstretched),
    "local-theta": ("gemma3", lambda config: replace(config, rope_sliding=config.rope_full)),
    "attention-scale": ("gemma3", lambda config: replace(config, attention_scale=0.25)),
    "embedding-scale": ("gemma3", lambda config: replace(config, embedding_scale=1.0)),
    "norm-offset": ("gemma3", lambda config: with_block(config, norm_offset=0.0)),
    "llama3-rope": ("llama3", unstretched),
    "activation": (
        "llama3",
        lambda config: with_block(config, activation="gelu_tanh"),
    ),
    "every-layer's-window": ("mistral", lambda config: replace(config, sliding_window=9)),
}


@pytest.mark.parametrize(("case", "wrong"), WRONG.values(), ids=WRONG)
def test_the_golden_logits_see_the_numbers_of_the_config(case: str, wrong: Any) -> None:
    model = golden(case)
    assert deviation(wrong(model.config), model.params, model) > 100 * RELATIVE
