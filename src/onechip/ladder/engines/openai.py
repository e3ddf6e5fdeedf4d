"""Any server that speaks the OpenAI API and is already running: started and stopped by somebody else."""

from __future__ import annotations

from onechip.errors import UsageError
from onechip.ladder.engines.engine import Engine


def _variant(word: str) -> tuple[str, ...]:
    raise UsageError(
        f"--engines openai:{word}: give the URL behind an equals sign, openai=http://HOST:PORT/v1."
    )


ENGINE = Engine(
    name="openai",
    summary="a server that is already running (openai=http://127.0.0.1:8000/v1); job start is left out",
    version=lambda: "whatever runs at the URL",
    install="Nothing to install.",
    variant=_variant,
    launch=None,
)
