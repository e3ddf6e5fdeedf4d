"""Hugging Face transformers' own server: the reference for what a model says, one request at a time."""

from __future__ import annotations

from onechip.ladder.engines import recipe
from onechip.ladder.engines.engine import Engine, Launch, Start, Variant
from onechip.ladder.engines.recipe import Recipe

NAME = "transformers"


def _launch(start: Start) -> Launch:
    """The model is given at the start, so it is loaded at once and stays: without it the first request loads
    it, and five idle minutes unload it."""
    serve = [str(recipe.python(NAME)), "-I", "-m", "transformers.cli.transformers", "serve"]
    where = ["--host", "127.0.0.1", "--port", str(start.port)]
    command = [*serve, str(start.checkpoint), *where, *start.arm.flags]
    return Launch(command, {"HF_HOME": str(start.cache), "HF_HUB_OFFLINE": "1"})


ENGINE = Engine(
    name=NAME,
    summary="transformers serve, PyTorch without an engine around it",
    variants={
        "bf16": Variant("bf16", ("--dtype", "bfloat16")),
        "f32": Variant("", ("--dtype", "float32")),
    },
    version=lambda: recipe.installed(NAME, "transformers"),
    launch=_launch,
    recipe=Recipe(
        lock=NAME,
        python=("3.11", "3.12", "3.13"),
        download_bytes=330_000_000,
        disk_bytes=1_300_000_000,
        check=("-c", "import torch, transformers, uvicorn"),
        elsewhere="On a GPU: pip install 'transformers[serving]' in an environment of its own, then"
        " --engines openai=URL.",
    ),
    formats="safetensors: bf16, f32",
    drafter="none in its server",
    tools="yes, by the model's template",
    needs="ignore_eos is refused; fixed lengths go in by generation_config, which the probe finds out",
)
