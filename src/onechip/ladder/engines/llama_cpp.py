"""llama.cpp's server, built here for this very processor: a GGUF file in, OpenAI's API out."""

from __future__ import annotations

from onechip.errors import EngineError
from onechip.ladder.engines import llama_build, recipe
from onechip.ladder.engines.engine import Engine, Launch, Start, Variant
from onechip.ladder.engines.recipe import Recipe

NAME = "llama.cpp"
PAGE_TOKENS = 256
"""llama.cpp rounds a request's share of the cache up to whole pages."""


def _version() -> str | None:
    home = recipe.home(NAME)
    server = llama_build.binary(home) if recipe.stamp(NAME) else None
    return None if server is None else server.parent.name.removeprefix("llama.cpp-")


def _launch(start: Start) -> Launch:
    """Each request has a share of the cache of its own (the default), so one never reads another's rows.

    Flags that are not the defaults, with their reasons:
        --load-mode none: the weights lie in memory that may have huge pages; a mapped file's may not.
        --no-cache-prompt --cache-ram 0 --ctx-checkpoints 0: prompts are unique, so copies of past states that
            could be found again would be work for nothing, and a hit would make a cell invalid.
        --reasoning off: as Gemma 4's template has it; a request may still ask for thoughts.
        --no-webui, --offline: nothing that is not measured.
    """
    server = llama_build.binary(recipe.home(NAME))
    if server is None:
        raise EngineError("llama.cpp is not installed: run onechip ladder install llama.cpp")
    pages = -(-start.context // PAGE_TOKENS)
    slots = ["-np", str(start.requests), "-c", str(start.requests * pages * PAGE_TOKENS)]
    threads = ["-t", str(start.host.threads), "-tb", str(start.host.threads)]
    command = [str(server), "-m", str(start.checkpoint), "--alias", start.arm.model]
    command += ["--host", "127.0.0.1", "--port", str(start.port)]
    unique = ["--no-cache-prompt", "--cache-ram", "0", "--ctx-checkpoints", "0"]
    plain = ["--load-mode", "none", "--reasoning", "off", "--no-webui", "--offline"]
    # glibc backs its memory with huge pages only when told to: on E2B's shape 9.1 -> 13.1 tok/s.
    environment = {"GLIBC_TUNABLES": "glibc.malloc.hugetlb=1"} if start.host.system == "linux" else {}
    return Launch([*command, *slots, *threads, *unique, *plain, *start.arm.flags], environment)


INT8 = "cache in float16; on a processor Q4_0 is multiplied with activations in int8, groups of 32"
EXACT = ("-ctk", "f32", "-ctv", "f32")
ENGINE = Engine(
    name=NAME,
    summary="llama.cpp's server on GGUF",
    variants={
        "q4_0": Variant("gguf-q4_0", remark=INT8),
        "q4_0-q6_k": Variant("gguf-q4_0-q6_k", remark=f"{INT8}; tables in Q6_K, which rounds them again"),
        "q4_0-emb4": Variant("gguf-q4_0-emb4", remark=INT8),
        "q8_0": Variant("gguf-q8_0", remark=INT8.replace("Q4_0", "Q8_0")),
        "bf16": Variant("gguf-bf16", remark="cache in float16"),
        "f16": Variant("gguf-f16", remark="cache in float16"),
        "f32": Variant("gguf-f32", flags=EXACT),
    },
    version=_version,
    launch=_launch,
    recipe=Recipe(
        lock="llama_cpp",
        python=("3.11", "3.12", "3.13"),
        download_bytes=80 << 20,
        disk_bytes=150 << 20,
        check=(
            "-c",
            "import glob, subprocess, sys;"
            f" subprocess.run([*glob.glob(sys.prefix + '/llama.cpp-*/{llama_build.SERVER}'), '--version'],"
            " check=True)",
        ),
        build=llama_build.BUILD,
        elsewhere="Build it as its own README says and put it on the ladder with openai=http://HOST:PORT/v1.",
    ),
    formats="GGUF: F32, BF16, F16, Q8_0, Q4_0 (tables Q4_0 or Q6_K)",
    drafter="--spec-type draft-mtp --model-draft FILE.gguf",
    tools="yes, always",
    needs="a C++ compiler; gcc with AMX: two flags for one file, set by the recipe; CUDA: nvcc (untried)",
)
