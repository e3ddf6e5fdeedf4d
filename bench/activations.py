"""What rounding activations to int8 costs in truth: logits of int4 weights under three kinds of arithmetic.

    python bench/activations.py

The truth is the float32 forward pass of acorn on the same 4-bit values. Against it: bf16 activations in plain
JAX, bf16 activations in the CPU's kernels (--dtype w4a16), and int8 activations (--dtype w4a8, the default
there). Texts are the problems that ship with the package, with their solutions.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import partial
from importlib import resources
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np

import onechip.models
from onechip.engine import placement
from onechip.engine.types import Dtype
from onechip.kernels.api import Kernels
from onechip.kernels.choice import choose
from onechip.kernels.xla import PlainKernels
from onechip.models import decoder
from onechip.models.config import ModelConfig, read_config
from onechip.models.layout import Params
from onechip.models.tokenizer import Tokenizer
from onechip.models.weights import weight_reader

ACORN = Path(onechip.models.__file__).parent / "acorn"
TEXTS = 100
LENGTH = 128


def texts() -> np.ndarray:
    """Token ids [TEXTS, LENGTH], padded with 0 or cut."""
    tokenizer = Tokenizer.load(ACORN, ())
    raw = (resources.files("onechip.ladder") / "data" / "acorn_problems.jsonl").read_text().splitlines()
    rows = [json.loads(line) for line in raw[:TEXTS]]
    ids = [tokenizer.encode(f"{row['question']}\n{row['answer']}", add_bos=True)[:LENGTH] for row in rows]
    return np.array([[*text, *[0] * (LENGTH - len(text))] for text in ids], np.int32)


def forward(
    config: ModelConfig, kernels: Kernels, dtype: jnp.dtype, params: Params, tokens: jax.Array
) -> jax.Array:
    """Log-probabilities [T, V] of one text [T], without a cache."""
    positions = jnp.arange(tokens.size)[None]
    scores = decoder.forward_fused(config, kernels, params, tokens[None], positions, dtype=dtype)
    return jax.nn.log_softmax(scores[0])


def arithmetic(
    config: ModelConfig, wish: Dtype, kernels: Kernels, float32: bool = False
) -> Callable[..., jax.Array]:
    """tokens [T] -> log-probabilities [T, V] with 4-bit weights."""
    precision = placement.choose_precision(config, wish, {}, "cpu", kernels)
    if float32:
        precision = placement.Precision(jnp.float32, rounded="int4")
    placed = placement.place(config, weight_reader(ACORN, config), precision)
    return jax.jit(partial(forward, config, precision.kernels, precision.activations, placed))


def main() -> None:
    config = read_config(ACORN)
    ours, why_not = choose("cpu")
    if why_not is not None:
        raise SystemExit(f"The CPU's kernels are not in use: {why_not}")
    truth = arithmetic(config, "w4a16", PlainKernels(), float32=True)
    kinds = {
        "bf16 activations, plain JAX": arithmetic(config, "w4a16", PlainKernels()),
        "bf16 activations, our kernels": arithmetic(config, "w4a16", ours),
        "int8 activations, our kernels": arithmetic(config, "w4a8", ours),
    }
    print("| arithmetic | mean KL to float32 [nats] | 99 % of positions below | same first choice |")
    print("|---|---|---|---|")
    for name, kind in kinds.items():
        divergences, same = [], []
        for text in texts():
            real = int(np.count_nonzero(text))
            exact, other = (np.asarray(run(text), np.float64)[:real] for run in (truth, kind))
            divergences.append((np.exp(exact) * (exact - other)).sum(-1))
            same.append(exact.argmax(-1) == other.argmax(-1))
        found = np.concatenate(divergences)
        share = np.concatenate(same).mean()
        print(f"| {name} | {found.mean():.2e} | {np.quantile(found, 0.99):.2e} | {share:.2%} |")


if __name__ == "__main__":
    main()
