"""Our own engine, run like anybody's: a child process that is spoken to over HTTP only."""

from __future__ import annotations

import sys

import onechip
from onechip.ladder.engines.engine import Engine, Launch, Start, Variant

INT8 = "int8 activations on a processor"
"""Of arms that leave the precision of activations to the engine."""


def _launch(start: Start) -> Launch:
    # Prompts are unique: nothing could be reused, and keeping it for later costs a little.
    serve = [sys.executable, "-m", "onechip.cli", "serve", str(start.checkpoint), "--no-prefix-reuse"]
    command = [*serve, "--host", "127.0.0.1", "--port", str(start.port), *start.arm.flags]
    return Launch(command, {"ONECHIP_CACHE_DIR": str(start.cache)})


ENGINE = Engine(
    name="onechip",
    summary="this package's engine",
    variants={
        "auto": Variant(),
        "bf16": Variant("bf16", ("--dtype", "bf16")),
        "f32": Variant(flags=("--dtype", "f32")),
        "int4": Variant("w4a16", remark=INT8),
        "int4-emb4": Variant("w4a16-emb4", remark=INT8),
        "w4a16": Variant("w4a16", ("--dtype", "w4a16")),
        "w4a16-emb4": Variant("w4a16-emb4", ("--dtype", "w4a16")),
        "q4_0": Variant("gguf-q4_0", remark=INT8),
        "q8_0": Variant("gguf-q8_0", remark=INT8),
    },
    version=lambda: onechip.__version__,
    launch=_launch,
    install="It is part of this package.",
    formats="safetensors: bf16, W4A16; GGUF",
    tools="yes, always",
)
