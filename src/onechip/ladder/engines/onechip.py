"""Our own engine, run like anybody's: a child process that is spoken to over HTTP only."""

from __future__ import annotations

import sys
from pathlib import Path

import onechip
from onechip.errors import UsageError
from onechip.ladder.engines.engine import Engine, Launch
from onechip.ladder.records import Arm

DTYPES = ("bf16", "w4a16")


def _variant(word: str) -> tuple[str, ...]:
    if word not in DTYPES:
        raise UsageError(
            f"--engines onechip:{word}: the word is the weights' type, one of {', '.join(DTYPES)}."
        )
    return ("--dtype", word)


def _launch(arm: Arm, port: int, cache: Path) -> Launch:
    command = [
        sys.executable,
        "-m",
        "onechip.cli",
        "serve",
        arm.model,
        "--host",
        "127.0.0.1",
        "--port",
        str(port),
    ]
    return Launch([*command, *arm.flags], {"ONECHIP_CACHE_DIR": str(cache)})


ENGINE = Engine(
    name="onechip",
    summary="this package's engine (onechip:bf16, onechip:w4a16)",
    version=lambda: onechip.__version__,
    install="It is part of this package.",
    variant=_variant,
    launch=_launch,
)
