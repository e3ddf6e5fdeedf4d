"""LiteRT-LM: its own server, over a .litertlm file that is exported once into the cache of weights.

The server takes chat only, one request at a time, and loads the model with the first request. It counts
tokens in its usage; its finish_reason is always "stop".
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path

from onechip.errors import EngineError
from onechip.ladder.checkpoint import model_facts
from onechip.ladder.engines import recipe
from onechip.ladder.engines.engine import Engine, Launch, Start, Variant
from onechip.ladder.engines.recipe import Recipe
from onechip.ladder.host import Host
from onechip.ladder.own_weights import Making, derive
from onechip.ladder.records import Arm
from onechip.ladder.weights import Weights

NAME = "litert-lm"
FRONT = Path(__file__).parent / "fronts" / "litert_export.py"
RECIPE = "--recipe"
"""Of the export, among an arm's flags; the server has no flag for it."""
LONGEST = 4096
"""Tokens that an exported cache holds at most: attention reads all of it at every step."""
PREFILL = "32,128"


def _recipe_of(arm: Arm) -> str:
    """The quantisation of an arm, "" for none; raises EngineError."""
    flags = list(arm.flags)
    if not flags:
        return ""
    if len(flags) != 2 or flags[0] != RECIPE:
        raise EngineError(f"litert-lm takes {RECIPE} RECIPE (dynamic_wi8_afp32) and no other flag: {flags}.")
    return flags[1]


def _own(arm: Arm, weights: Weights, doing: Callable[[str], None]) -> Weights:
    """The .litertlm file of an arm's weights."""
    source = Path(weights.path)
    if source.suffix == ".litertlm":
        return weights
    context = min(LONGEST, model_facts(source).context or LONGEST)
    quantised = _recipe_of(arm)
    options = [RECIPE, quantised, "--context", str(context), "--prefill", PREFILL]

    def command(target: Path) -> list[str]:
        return [str(recipe.python(NAME)), "-I", str(FRONT), str(source), str(target), *options]

    version = recipe.installed(NAME, "litert-torch") or ""
    making = Making(
        form=f"litertlm {quantised or 'float32'}",
        name="model.litertlm",
        command=command,
        maker=(version, FRONT.read_text(), *options),
        environment={"HF_HUB_OFFLINE": "1", "CUDA_VISIBLE_DEVICES": ""},
    )
    return derive(weights, making, doing)


def _launch(start: Start) -> Launch:
    """Its folder of models and its settings are made in the cache of the start, with a link to the file."""
    _recipe_of(start.arm)
    name = start.arm.model.replace("/", "--").replace(",", "-")
    models = start.cache / "models" / name
    models.mkdir(parents=True, exist_ok=True)
    link = models / "model.litertlm"
    link.unlink(missing_ok=True)
    os.symlink(start.checkpoint.absolute(), link)
    settings = {"backend": "gpu" if start.host.chip == "cuda" else "cpu"}
    on_cpu = {} if start.host.chip == "cuda" else {"cpu_thread_count": start.host.threads}
    (start.cache / "config.json").write_text(json.dumps({"default": settings | on_cpu}))
    command = [
        str(recipe.program(NAME, "litert-lm")),
        "serve",
        "--host",
        "127.0.0.1",
        "--port",
        str(start.port),
    ]
    return Launch(command, {"LITERT_LM_DIR": str(start.cache)}, health="/v1/models")


def _obstacle(host: Host) -> str | None:
    if host.chip == "tpu":
        return "LiteRT-LM is for processors and graphics cards, not for TPUs."
    return None


ENGINE = Engine(
    name=NAME,
    summary="LiteRT-LM 0.18.1, its own server: chat only, one request at a time",
    variants={
        "f32": Variant("bf16", (), "float32 of the bf16 weights"),
        "int8": Variant("bf16", (RECIPE, "dynamic_wi8_afp32"), "int8 weights, rounded by its exporter"),
    },
    version=lambda: recipe.installed(NAME, "litert-lm"),
    launch=_launch,
    own=_own,
    recipe=Recipe(
        lock="litert_lm",
        python=("3.11",),
        download_bytes=830_000_000,
        disk_bytes=2_400_000_000,
        check=("-c", "import litert_lm, litert_torch.backend"),
        elsewhere="pip install litert-lm litert-torch in an environment of its own, then use openai=URL.",
    ),
    obstacle=_obstacle,
    formats="safetensors (exported once to .litertlm, minutes), .litertlm",
    drafter="inside a .litertlm file that was published with one",
    tools="yes, in its chat",
    needs="on an NVIDIA card its Vulkan backend, as published; fixed lengths are kept only where the model"
    " does not stop",
)
