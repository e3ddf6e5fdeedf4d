"""SGLang, for NVIDIA cards. Its launch follows published runs and is untested here: no card was at hand."""

from __future__ import annotations

from onechip.ladder.checkpoint import model_facts
from onechip.ladder.engines import recipe
from onechip.ladder.engines.engine import Engine, Launch, Start, Variant
from onechip.ladder.engines.recipe import Recipe
from onechip.ladder.host import Host

NAME = "sglang"
PARSERS = {"gemma4": "gemma4"}
"""model_type up to its first underscore -> SGLang's parsers of tool calls and thoughts."""
OLDEST = (7, 5)
"""Compute capability of the oldest cards that it was published on (T4)."""


def _launch(start: Start) -> Launch:
    facts = model_facts(start.checkpoint)
    serve = [str(recipe.python(NAME)), "-m", "sglang.launch_server"]
    model = ["--model-path", str(start.checkpoint), "--served-model-name", start.arm.model]
    where = ["--host", "127.0.0.1", "--port", str(start.port)]
    context = facts.clipped(start.context)
    size = ["--context-length", str(context), "--max-running-requests", str(start.requests)]
    parser = PARSERS.get(facts.model_type.split("_")[0])
    parsing = ["--tool-call-parser", parser, "--reasoning-parser", parser] if parser else []
    # Usage of every answer then says how much of the prompt came from the prefix cache.
    command = [*serve, *model, *where, *size, *parsing, "--enable-cache-report", *start.arm.flags]
    kept = {
        "TRITON_CACHE_DIR": str(start.cache / "triton"),
        "TORCHINDUCTOR_CACHE_DIR": str(start.cache / "inductor"),
        "FLASHINFER_WORKSPACE_BASE": str(start.cache),
    }
    return Launch(command, kept | {"HF_HUB_OFFLINE": "1"})


def _obstacle(host: Host) -> str | None:
    if host.chip != "cuda":
        return "SGLang's kernels for processors have no wheel, and its others need an NVIDIA card."
    if host.capability is not None and host.capability < OLDEST:
        major, minor = host.capability
        return f"{host.gpu} has compute capability {major}.{minor}; SGLang was published on 7.5 and newer."
    return None


ENGINE = Engine(
    name=NAME,
    summary="SGLang 0.5.23, NVIDIA only (its launch is untested here)",
    variants={
        "bf16": Variant("bf16", ("--dtype", "bfloat16")),
        "w4a16": Variant("w4a16"),
    },
    version=lambda: recipe.installed(NAME, "sglang"),
    launch=_launch,
    recipe=Recipe(
        lock=NAME,
        python=("3.12", "3.11"),
        download_bytes=6_000_000_000,
        disk_bytes=14_000_000_000,
        check=("-c", "import sglang.launch_server"),
        elsewhere="pip install sglang in an environment of its own (docs.sglang.ai), then use openai=URL.",
    ),
    obstacle=_obstacle,
    formats="safetensors: bf16, W4A16",
    drafter="--arm 'NAME = sglang --speculative-algorithm FROZEN_KV_MTP --speculative-draft-model-path DIR"
    " --speculative-num-draft-tokens N'",
    tools="--tool-call-parser gemma4 --reasoning-parser gemma4 (set for Gemma 4)",
    needs="patches of its source for Gemma 4 E2B, as published: two on compute capability 8.6 and 8.9"
    " (RTX 3050, L4), four on 7.5 (T4), where its int4 product (Marlin) is taken from vLLM",
)
