"""SGLang-JAX, for TPUs and, slowly, processors. It is installed by hand: its package is older than Gemma 4.

The release on the package index (sglang-jax 0.0.2, October 2025) knows Llama and Qwen only, so the engine is
taken from its repository, into the folder where `ladder install` would put it.
"""

from __future__ import annotations

import json
from pathlib import Path

from onechip.errors import EngineError
from onechip.ladder.engines import recipe
from onechip.ladder.engines.engine import Engine, Launch, Start, Variant
from onechip.ladder.host import Host

NAME = "sglang-jax"
COMMIT = "b3e3e16b2"
"""Of the published runs on a TPU v5e."""
PAGE = 128
WATCHDOG_S = 7200
"""A cold compile on a TPU outlasts the watchdog that it has by default."""


def _version() -> str | None:
    """Installed by hand, so there is no stamp: the metadata decide."""
    for found in recipe.home(NAME).glob("lib/python*/site-packages/sglang_jax-*.dist-info"):
        return found.name.removesuffix(".dist-info").partition("-")[2]
    return None


def needs_patch(checkpoint: Path) -> bool:
    """Whether a checkpoint has what its Gemma 4 lacks: per-layer embeddings or shared keys and values."""
    try:
        config = json.loads((checkpoint / "config.json").read_bytes())
    except (OSError, ValueError):
        return False
    text = config.get("text_config") or config
    return bool(text.get("hidden_size_per_layer_input") or text.get("num_kv_shared_layers"))


def _launch(start: Start) -> Launch:
    on_cpu = start.host.chip == "cpu"
    if on_cpu and needs_patch(start.checkpoint):
        raise EngineError(
            "SGLang-JAX runs Gemma 4 only without per-layer embeddings and shared keys and values (12B, 31B);"
            f" {start.arm.model} has them, and without a patch it dies at start or at the first request."
        )
    serve = [str(recipe.python(NAME)), "-m", "sgl_jax.launch_server"]
    model = ["--model-path", str(start.checkpoint), "--served-model-name", start.arm.model]
    where = ["--host", "127.0.0.1", "--port", str(start.port)]
    size = ["--context-length", str(start.context), "--max-running-requests", str(start.requests)]
    # Without the last of these its first request dies on a processor.
    cpu = ["--device", "cpu", "--attention-backend", "native", "--disable-hybrid-swa-memory"]
    tpu = ["--page-size", str(PAGE), "--watchdog-timeout", str(WATCHDOG_S)]
    command = [*serve, *model, *where, *size, *(cpu if on_cpu else tpu), *start.arm.flags]
    kept = {"JAX_COMPILATION_CACHE_DIR": str(start.cache), "HF_HUB_OFFLINE": "1"}
    return Launch(command, kept | ({"JAX_PLATFORMS": "cpu"} if on_cpu else {}))


def _obstacle(host: Host) -> str | None:
    if host.chip == "cuda":
        return "SGLang-JAX is for TPUs and processors; on an NVIDIA card use sglang."
    return None if host.system == "linux" else "SGLang-JAX runs on Linux."


ENGINE = Engine(
    name=NAME,
    summary="SGLang-JAX, from its repository (untested here; published on a TPU v5e)",
    variants={"bf16": Variant("bf16", ("--dtype", "bfloat16")), "f32": Variant("", ("--dtype", "float32"))},
    version=_version,
    launch=_launch,
    install="Its package is older than Gemma 4. By hand, with Python 3.12 or 3.13: python3.12 -m venv"
    f" {recipe.home(NAME)}, then with its pip: pip install"
    f" 'git+https://github.com/sgl-project/sglang-jax@{COMMIT}#subdirectory=python' and jax[tpu] on a TPU.",
    obstacle=_obstacle,
    formats="safetensors: bf16, f32",
    drafter="none for Gemma 4",
    tools="no parser for Gemma 4",
    needs="E2B and E4B: a patch of about 190 lines (per-layer embeddings, shared keys and values, the wider"
    f" MLP); on a TPU --page-size {PAGE} --watchdog-timeout {WATCHDOG_S}, set here",
)
