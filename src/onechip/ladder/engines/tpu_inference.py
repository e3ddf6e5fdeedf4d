"""vLLM on TPUs, in its two builds: tpu-inference (JAX) and TorchTPU. Launches are data, untested here."""

from __future__ import annotations

from collections.abc import Callable

from onechip.ladder.checkpoint import model_facts
from onechip.ladder.engines import recipe, vllm
from onechip.ladder.engines.engine import Engine, Launch, Start, Variant
from onechip.ladder.engines.recipe import Recipe
from onechip.ladder.host import Host

JAX_NAME, TORCH_NAME = "vllm-tpu", "vllm-torchtpu"
MEMORY_SHARE = "0.8"
"""Of the chip, as published on a TPU v5e."""


def _launcher(name: str) -> Callable[[Start], Launch]:
    def launch(start: Start) -> Launch:
        serve = [str(recipe.python(name)), "-m", "vllm.entrypoints.openai.api_server"]
        served = vllm.options(start, model_facts(start.checkpoint), start.requests)
        command = [*serve, *served, "--gpu-memory-utilization", MEMORY_SHARE, *start.arm.flags]
        kept = {"VLLM_XLA_CACHE_PATH": str(start.cache), "JAX_COMPILATION_CACHE_DIR": str(start.cache)}
        return Launch(command, kept | {"VLLM_NO_USAGE_STATS": "1", "HF_HUB_OFFLINE": "1"})

    return launch


def _obstacle(host: Host) -> str | None:
    return None if host.chip == "tpu" else "It needs a TPU VM (libtpu and a TPU chip)."


def _recipe(name: str, check: str, python: tuple[str, ...]) -> Recipe:
    return Recipe(
        lock=name,
        python=python,
        download_bytes=2_500_000_000,
        disk_bytes=6_000_000_000,
        check=("-c", check),
        elsewhere="It is installed on a TPU VM only.",
    )


JAX = Engine(
    name=JAX_NAME,
    summary="vLLM on a TPU through JAX (tpu-inference 0.32; untested here)",
    variants={"bf16": Variant("bf16", ("--dtype", "bfloat16")), "w4a16": Variant("w4a16")},
    version=lambda: recipe.installed(JAX_NAME, "vllm-tpu"),
    launch=_launcher(JAX_NAME),
    recipe=_recipe(JAX_NAME, "import vllm, tpu_inference", ("3.12",)),
    obstacle=_obstacle,
    formats="safetensors: bf16, W4A16",
    drafter="--arm 'NAME = vllm-tpu --speculative-config {...}'",
    tools="--enable-auto-tool-choice --tool-call-parser gemma4 (set for Gemma 4)",
    needs="patches for int4 tables of embeddings, as published on v5e (a pinned image, 2,055 s to start)",
)

TORCH = Engine(
    name=TORCH_NAME,
    summary="vLLM on a TPU through PyTorch (vllm-torchtpu 0.29, torch-tpu 0.2.0; untested here)",
    variants={"bf16": Variant("bf16", ("--dtype", "bfloat16"))},
    version=lambda: recipe.installed(TORCH_NAME, "vllm-torchtpu"),
    launch=_launcher(TORCH_NAME),
    recipe=_recipe(TORCH_NAME, "import vllm, torch_tpu", ("3.12",)),
    obstacle=_obstacle,
    formats="safetensors: bf16",
    drafter="none published",
    tools="--enable-auto-tool-choice --tool-call-parser gemma4 (set for Gemma 4)",
    needs="libtpu 0.0.50 or newer, torch 2.13.0, jax 0.11.2, Python 3.12",
)
