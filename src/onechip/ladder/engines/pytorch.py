"""A plain PyTorch loop of our own (fronts/pytorch.py): a baseline, not a product.

The published comparison's PyTorch engine was its authors' own; this one is ours, and only says what PyTorch
without an engine around it does. It runs in the environment of the engine `transformers`.
"""

from __future__ import annotations

from pathlib import Path

from onechip.ladder.checkpoint import model_facts
from onechip.ladder.engines import recipe, transformers
from onechip.ladder.engines.engine import Engine, Launch, Start, Variant
from onechip.ladder.host import Host

NAME = "pytorch"
FRONT = Path(__file__).parent / "fronts" / "pytorch.py"


def _launch(start: Start) -> Launch:
    facts = model_facts(start.checkpoint)
    context = facts.clipped(start.context)
    run = [str(recipe.python(transformers.NAME)), "-I", str(FRONT), str(start.checkpoint)]
    size = ["--rows", str(start.requests), "--context", str(context), "--threads", str(start.host.threads)]
    command = [*run, "--name", start.arm.model, "--port", str(start.port), *size, *start.arm.flags]
    return Launch(command, {"HF_HUB_OFFLINE": "1"})


def _obstacle(host: Host) -> str | None:
    if host.chip == "tpu":
        return "The plain loop knows processors and NVIDIA cards; PyTorch on a TPU needs torch-tpu."
    return None


ENGINE = Engine(
    name=NAME,
    summary="our own plain PyTorch loop around a transformers model: a baseline, not a product",
    variants={
        "bf16": Variant("bf16", ("--dtype", "bfloat16"), "our own plain loop, no engine"),
        "f32": Variant("bf16", ("--dtype", "float32"), "our own plain loop, no engine"),
    },
    version=lambda: recipe.installed(transformers.NAME, "torch"),
    launch=_launch,
    recipe=transformers.ENGINE.recipe,
    home=transformers.NAME,
    obstacle=_obstacle,
    formats="safetensors: bf16, f32",
    drafter="none",
    tools="no",
    needs="nothing; greedy only",
)
