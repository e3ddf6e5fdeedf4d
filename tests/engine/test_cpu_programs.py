"""Whole models on the CPU's own kernels against transformers' golden logits: every family, prompts longer
than the window.

Activations are float32 here and weights are the golden models' bf16, so that both sides compute the same
numbers up to the order of sums; what int8 activations change is measured in docs/kernels.md.
"""

from __future__ import annotations

from functools import cache, partial
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
import pytest

from onechip.engine import programs
from onechip.engine.attention import Chunk
from onechip.engine.cache import Cache
from onechip.engine.plan import Plan
from onechip.engine.programs import Computation
from onechip.kernels import xla
from onechip.kernels.api import Kernels
from onechip.kernels.choice import choose
from onechip.models import decoder
from onechip.models.config import ModelConfig, read_config
from onechip.models.layout import Params
from onechip.models.weights import load_weights

GOLDEN = Path(__file__).parents[1] / "golden"
CASES = ("e2b", "e4b", "12b", "31b", "gemma3", "llama3", "mistral")
SLOTS = 4
PLAN = Plan(768, SLOTS, jnp.float32, (SLOTS,), (16, 64), True, 4, 0, 0, 0, 0)

OURS, WHY_NOT = choose("cpu")
pytestmark = pytest.mark.skipif(WHY_NOT is not None, reason=str(WHY_NOT))


@cache
def model(case: str) -> tuple[ModelConfig, Params]:
    """Its config, and its weights as the kernels take them."""
    config = read_config(GOLDEN / case)
    multiplied = {"ple_proj", "embed" if config.tied else "lm_head"}

    def place(name: str, leaf: np.ndarray, product: bool) -> Any:
        if product:
            return OURS.pack(leaf.astype(ml_dtypes.bfloat16), exact=True, paired=name == "gate_up")
        return jnp.asarray(leaf, jnp.float32)

    params = decoder.fuse(jax.tree.map(np.asarray, load_weights(GOLDEN / case, config)))
    layers = [{n: place(n, leaf, leaf.ndim == 2) for n, leaf in layer.items()} for layer in params["layers"]]
    whole = {n: place(n, leaf, n in multiplied) for n, leaf in params.items() if n != "layers"}
    return config, whole | {"layers": layers}


@cache
def golden(case: str) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """A prompt, transformers' greedy tokens after it, and its logits at every position."""
    with np.load(GOLDEN / case / "golden.npz") as stored:
        length, tokens = stored["prompt_lengths"][0], stored["tokens_0"].astype(np.int32)
        return tokens[:length], tokens[length:], stored["logits_0"]


@cache
def compiled(case: str, kernels: Kernels, name: str) -> Any:
    config, _ = model(case)
    computation = Computation(config, kernels, jnp.float32)

    def decode_logits(params: Params, kept: Cache, *rows: jax.Array) -> tuple[Cache, jax.Array]:
        kept, hidden = programs.decode_step(computation, params, kept, *rows)
        return kept, decoder.logits(config, kernels, params, hidden)

    function = {"prefill": partial(programs.prefill, computation), "decode_step": decode_logits}[name]
    return jax.jit(function, compiler_options=xla.compiler_options(jax.default_backend()))


def run(case: str, kernels: Kernels, size: int) -> tuple[list[int], np.ndarray]:
    """The prompt in slot 2, in chunks of `size`, then its greedy text -> its tokens, logits of 24 steps."""
    config, params = model(case)
    prompt = golden(case)[0]
    state = programs.listing(config, PLAN, kernels, params)[0].function()
    rows = np.arange(64, dtype=np.int32)
    for start in range(0, len(prompt) - 1, size):
        piece = prompt[start : min(start + size, len(prompt) - 1)]
        chunk = Chunk(
            tokens=np.pad(piece, (0, 64 - len(piece)), constant_values=3).astype(np.int32),
            slots=0 * rows + 2,
            positions=rows + np.int32(start),
            valid=np.int32(len(piece)),
        )
        state, _ = compiled(case, kernels, "prefill")(params, state, chunk)
    tokens, kept, out = [int(prompt[-1])], state.cache, []
    for position in range(len(prompt) - 1, len(prompt) + 23):
        kept, logits = compiled(case, kernels, "decode_step")(
            params,
            kept,
            np.full(SLOTS, tokens[-1], np.int32),
            np.full(SLOTS, position, np.int32),
            np.arange(SLOTS) == 2,
        )
        out.append(np.asarray(logits[2]))
        tokens.append(int(out[-1].argmax()))
    return tokens[1:], np.stack(out)


@pytest.mark.parametrize("case", CASES)
def test_logits_and_text_are_those_of_transformers(case: str) -> None:
    prompt, continuation, truth = golden(case)
    tokens, logits = run(case, OURS, 64)
    assert tokens == continuation[:24].tolist()
    truth = truth[len(prompt) - 1 :][:24]
    np.testing.assert_allclose(logits, truth, rtol=1e-4, atol=1e-4 * np.abs(truth).max())
    chunked, again = run(case, OURS, 7)
    assert chunked == tokens
    config, _ = model(case)
    if Computation(config, OURS, jnp.float32).attend_rows is not None:
        np.testing.assert_array_equal(again, logits)  # to the bit: how a prompt is cut changes nothing


def test_prompts_that_share_a_chunk_are_computed_as_if_alone() -> None:
    """Three prompts in one program, to the bit as one by one."""
    config, params = model("e2b")
    text, _, _ = golden("e2b")
    parts = [(3, text[:20]), (0, text[5:6]), (1, text[7:30])]

    def run_parts(*chunks: list[tuple[int, np.ndarray]]) -> Cache:
        state = programs.listing(config, PLAN, OURS, params)[0].function()
        for chunk in chunks:
            numbers = np.zeros((3, 64), np.int32)
            columns = [
                np.stack([tokens, np.full_like(tokens, slot), np.arange(len(tokens), dtype=np.int32)])
                for slot, tokens in chunk
            ]
            joined = np.concatenate(columns, axis=1)
            numbers[:, : joined.shape[1]] = joined
            rows = Chunk(*numbers, np.int32(joined.shape[1]))
            state, _ = compiled("e2b", OURS, "prefill")(params, state, rows)
        return jax.tree.map(np.asarray, state.cache)

    together, alone = run_parts(parts), run_parts(*([part] for part in parts))
    jax.tree.map(np.testing.assert_array_equal, together, alone)
    assert any(kept.k[3].any() for kept in together.values())


@pytest.mark.parametrize("case", ["e2b", "mistral"])
def test_what_stands_in_rows_that_do_not_matter_changes_nothing(case: str) -> None:
    """The kernels leave such rows as they find the memory; here it holds NaN."""

    class Poisoned(type(OURS)):  # type: ignore[misc]
        def _spoil(self, out: jax.Array) -> jax.Array:
            rows = jnp.arange(out.shape[0]).reshape(-1, *[1] * (out.ndim - 1))
            return jnp.where(rows < self._live, out, jnp.nan)

        def first_rows(self, count: jax.Array) -> Kernels:
            return Poisoned(count)

        def matmul(self, *operands: Any, **options: Any) -> jax.Array:
            return self._spoil(super().matmul(*operands, **options))

        def matmul_add(self, *operands: Any, **options: Any) -> jax.Array:
            return self._spoil(super().matmul_add(*operands, **options))

        def mlp(self, *operands: Any, **options: Any) -> jax.Array:
            return self._spoil(super().mlp(*operands, **options))

    tokens, logits = run(case, OURS, 40)
    poisoned, spoilt = run(case, Poisoned(), 40)
    assert poisoned == tokens
    np.testing.assert_allclose(spoilt, logits, rtol=1e-4, atol=1e-4 * np.abs(logits).max())
