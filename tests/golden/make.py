"""Shrunken random Gemma 4 models in; out come their checkpoints and what transformers computes with them.

Run by `make golden` in .venv-oracle (torch and transformers, of which the tests need neither). For each case
it writes a folder beside this file: config.json, the weights in bf16, and golden.npz with, for every prompt,
the tokens (prompt and 64 greedy ones) and the float32 logits of all their positions.
"""

from __future__ import annotations

import itertools
import json
import shutil
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
import transformers
from transformers import (
    Gemma4Config,
    Gemma4ForCausalLM,
    Gemma4ForConditionalGeneration,
    Gemma4TextConfig,
    Gemma4UnifiedConfig,
    Gemma4UnifiedForConditionalGeneration,
    Gemma4UnifiedTextConfig,
)

HERE = Path(__file__).parent
CONTINUATION = 64
PROMPTS = (41, 23)  # tokens; both longer than any case's window
MIN_GAP = 5e-3  # between the best and the next logit in a continuation: over twice the tolerance, 1e-4 of 20
MIN_DISTINCT = 20  # of the 64 tokens

COMMON: dict[str, Any] = {
    "vocab_size": 256,
    "hidden_size": 64,
    "head_dim": 16,
    "global_head_dim": 32,
    "intermediate_size": 64,
    "max_position_embeddings": 512,
    "rms_norm_eps": 1e-6,
    "rope_parameters": {
        "full_attention": {"rope_type": "proportional", "rope_theta": 1e6, "partial_rotary_factor": 0.25},
        "sliding_attention": {"rope_type": "default", "rope_theta": 1e4},
    },
    "eos_token_id": 1,
}
PLE = {"hidden_size_per_layer_input": 32, "vocab_size_per_layer_input": 256}


@dataclass(frozen=True)
class Case:
    """One shrunken model.

    Attributes:
        layers: "s" or "f" a layer.
        text: what its text config has besides COMMON, in the published layout.
        wrapper: (top-level config, text config, model), the classes that own this kind of checkpoint.
        published: write config.json as Google publishes it (`global_head_dim`), not as transformers saves it.
        shard_bytes: the largest file of weights.
    """

    layers: str
    text: dict[str, Any]
    wrapper: tuple[Any, Any, Any] = (None, Gemma4TextConfig, Gemma4ForCausalLM)
    published: bool = True
    shard_bytes: int = 1 << 30
    top: dict[str, Any] = field(default_factory=dict)


CASES = {
    # Own and shared layers of both kinds, the shared ones twice as wide; one KV head; nested like E2B.
    "e2b": Case(
        "sfsfssff",
        PLE
        | {
            "num_attention_heads": 4,
            "num_key_value_heads": 1,
            "num_kv_shared_layers": 4,
            "use_double_wide_mlp": True,
            "sliding_window": 8,
            "final_logit_softcapping": 30.0,
        },
        (Gemma4Config, Gemma4TextConfig, Gemma4ForConditionalGeneration),
        top={"vision_config": None, "audio_config": None},
    ),
    # Two KV heads, no double width; flat, saved by transformers (`per_layer_config`) and sharded.
    "e4b": Case(
        "ssfssf",
        PLE
        | {
            "num_attention_heads": 4,
            "num_key_value_heads": 2,
            "num_kv_shared_layers": 3,
            "sliding_window": 16,
            "final_logit_softcapping": 30.0,
        },
        published=False,
        shard_bytes=200_000,
    ),
    # K is V on full layers, fewer KV heads there, no per-layer embeddings; the unified classes of the 12B.
    "12b": Case(
        "ssfssf",
        {
            "num_attention_heads": 4,
            "num_key_value_heads": 2,
            "num_global_key_value_heads": 1,
            "attention_k_eq_v": True,
            "sliding_window": 16,
            "final_logit_softcapping": 30.0,
        },
        (Gemma4UnifiedConfig, Gemma4UnifiedTextConfig, Gemma4UnifiedForConditionalGeneration),
        published=False,
        top={"vision_config": None, "audio_config": None},
    ),
    # As the 31B, but with a head of its own and no softcap: no published model says so, a config may.
    "31b": Case(
        "sfsf",
        {
            "num_attention_heads": 8,
            "num_key_value_heads": 4,
            "num_global_key_value_heads": 2,
            "attention_k_eq_v": True,
            "hidden_size_per_layer_input": 0,
            "sliding_window": 8,
            "final_logit_softcapping": None,
            "tie_word_embeddings": False,
        },
    ),
}


def configs(case: Case) -> tuple[dict[str, Any], Any]:
    """(config.json in the published layout, transformers' config)."""
    kinds = {"s": "sliding_attention", "f": "full_attention"}
    top_class, text_class, model_class = case.wrapper
    text = {
        "model_type": text_class.model_type,
        **COMMON,
        **case.text,
        "layer_types": [kinds[kind] for kind in case.layers],
        "num_hidden_layers": len(case.layers),
    }
    names = {"architectures": [model_class.__name__], "dtype": "bfloat16"}
    theirs = text_class(**{key: value for key, value in text.items() if key != "model_type"})
    if top_class is None:
        return names | text, theirs
    raw = names | {
        "model_type": top_class.model_type,
        "eos_token_id": [1, 106],
        **case.top,
        "text_config": text,
    }
    return raw | {"tie_word_embeddings": True}, top_class(text_config=theirs, **case.top)


@torch.no_grad()
def randomise(model: torch.nn.Module, seed: int) -> None:
    """Weights under which every part of the model shows in the logits; all are exact in bf16."""
    generator = torch.Generator().manual_seed(seed)

    def normal(shape: torch.Size, std: float) -> torch.Tensor:
        return torch.randn(shape, generator=generator) * std

    for name, tensor in model.state_dict().items():
        if name.endswith(("layer_scalar", "per_layer_projection_norm.weight")):
            value = 1 + normal(tensor.shape, 0.25)
        elif name.endswith(("q_norm.weight", "k_norm.weight")):
            # With both of size sqrt(2) d^-0.25 a score has a spread of 2: the softmax has a choice to make.
            value = (1 + normal(tensor.shape, 0.1)) * 2**0.5 * tensor.shape[-1] ** -0.25
        elif name.endswith(("language_model.norm.weight", "model.norm.weight")):
            value = (1 + normal(tensor.shape, 0.1)) * 5  # logits large enough for the softcap to bend them
        elif tensor.ndim == 1:
            value = 1 + normal(tensor.shape, 0.25)
        elif "embed_tokens_per_layer" in name:
            value = normal(tensor.shape, PLE["hidden_size_per_layer_input"] ** -0.5)
        else:
            value = normal(tensor.shape, tensor.shape[-1] ** -0.5)
        tensor.copy_(value.to(torch.bfloat16).to(tensor.dtype))


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


def greedy_runs(model: torch.nn.Module, seed: int) -> list[tuple[np.ndarray, np.ndarray]]:
    """The greedy runs of all prompts under one seed's weights, or none if one of them would mean little."""
    randomise(model, seed)
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
    seed, runs = next((seed, runs) for seed in itertools.count() if (runs := greedy_runs(model, seed)))
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
    for case_name, case_ in CASES.items():
        make(case_name, case_)
