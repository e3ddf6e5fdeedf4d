"""Shrunken random models in; out come their checkpoints and what transformers computes with them.

Run by `make golden` in .venv-oracle (torch and transformers, of which the tests need neither); with names of
cases (cases.py) it makes those alone. For each case it writes a folder beside this file: config.json, the
weights in bf16, and golden.npz with, for every prompt, the tokens (prompt and 64 greedy ones) and the float32
logits of all their positions.
"""

from __future__ import annotations

import itertools
import json
import shutil
import sys
from pathlib import Path

import numpy as np
import torch
import transformers
from cases import CASES, PLE, Case, configs

HERE = Path(__file__).parent
CONTINUATION = 64
PROMPTS = (41, 23)  # tokens; both longer than any case's window
MIN_GAP = 5e-3  # between the best and the next logit in a continuation: over twice the tolerance, 1e-4 of 20
MIN_DISTINCT = 20  # of the 64 tokens


@torch.no_grad()
def randomise(case: Case, model: torch.nn.Module, seed: int) -> None:
    """Weights under which every part of the model shows in the logits; all are exact in bf16."""
    generator = torch.Generator().manual_seed(seed)

    def normal(shape: torch.Size, std: float) -> torch.Tensor:
        return torch.randn(shape, generator=generator) * std

    scores = case.attention_scale**-0.5
    for name, tensor in model.state_dict().items():
        offset = case.norm_offset if name.endswith(("norm.weight", "layernorm.weight")) else 0.0
        if name.endswith(("layer_scalar", "per_layer_projection_norm.weight")):
            value = 1 + normal(tensor.shape, 0.25)
        elif name.endswith(("q_norm.weight", "k_norm.weight")):
            # With both of size sqrt(2) d^-0.25 a score has a spread of 2: the softmax has a choice to make.
            value = (1 + normal(tensor.shape, 0.1)) * 2**0.5 * tensor.shape[-1] ** -0.25 * scores
        elif name.endswith(("language_model.norm.weight", "model.norm.weight")):
            # Logits large enough for the softcap to bend them.
            value = (1 + normal(tensor.shape, 0.1)) * (5 / case.embedding)
        elif tensor.ndim == 1:
            value = 1 + normal(tensor.shape, 0.25)
        elif "embed_tokens_per_layer" in name:
            value = normal(tensor.shape, PLE["hidden_size_per_layer_input"] ** -0.5)
        else:
            value = normal(tensor.shape, tensor.shape[-1] ** -0.5)
            value *= case.embedding if name.endswith(("embed_tokens.weight", "lm_head.weight")) else 1.0
        tensor.copy_((value - offset).to(torch.bfloat16).to(tensor.dtype))


@torch.no_grad()
def greedy(model: torch.nn.Module, prompt: list[int]) -> tuple[np.ndarray, np.ndarray] | None:
    """(tokens [prompt + 64], logits [prompt + 64, V]) without a cache: each token is the argmax before it.

    None if agreement with them would mean little: a choice is a near tie, or the text goes in circles.
    """
    tokens = torch.tensor([prompt])
    for _ in range(CONTINUATION):
        best = model(input_ids=tokens, use_cache=False).logits[0, -1].topk(2)
        if best.values[0] - best.values[1] < MIN_GAP:
            return None
        tokens = torch.cat([tokens, best.indices[:1, None]], dim=1)
    if len(set(tokens[0, len(prompt) :].tolist())) < MIN_DISTINCT:
        return None
    logits = model(input_ids=tokens, use_cache=False).logits[0]
    return tokens[0].numpy().astype(np.int32), logits.float().numpy()


def greedy_runs(case: Case, model: torch.nn.Module, seed: int) -> list[tuple[np.ndarray, np.ndarray]]:
    """The greedy runs of all prompts under one seed's weights, or none if one of them would mean little."""
    randomise(case, model, seed)
    rng = np.random.default_rng(seed)
    runs = []
    for length in PROMPTS:
        run = greedy(model, [2, *rng.integers(107, 256, length - 1).tolist()])
        if run is None:
            return []
        runs.append(run)
    return runs


def make(name: str, case: Case) -> None:
    """Write one case's folder, from the first seed that gives runs worth agreeing with."""
    raw, theirs = configs(case)
    theirs._attn_implementation = "eager"
    model = case.wrapper[2](theirs).eval().to(torch.float32)
    seed, runs = next((seed, runs) for seed in itertools.count() if (runs := greedy_runs(case, model, seed)))
    folder = HERE / name
    shutil.rmtree(folder, ignore_errors=True)
    model.to(torch.bfloat16).save_pretrained(folder, max_shard_size=case.shard_bytes)
    (folder / "generation_config.json").unlink(missing_ok=True)
    if case.published:
        (folder / "config.json").write_text(json.dumps(raw, indent=2) + "\n")
    arrays = {f"tokens_{i}": tokens for i, (tokens, _) in enumerate(runs)}
    arrays |= {f"logits_{i}": logits for i, (_, logits) in enumerate(runs)}
    np.savez_compressed(folder / "golden.npz", prompt_lengths=np.array(PROMPTS), **arrays)
    print(
        f"{name}: seed {seed}, transformers {transformers.__version__}, torch {torch.__version__}", flush=True
    )


if __name__ == "__main__":
    torch.set_num_threads(2)
    for case_name in sys.argv[1:] or CASES:
        make(case_name, CASES[case_name])
