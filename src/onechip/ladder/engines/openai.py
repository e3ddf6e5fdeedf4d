"""Any server that speaks the OpenAI API and is already running: started and stopped by somebody else."""

from __future__ import annotations

from onechip.ladder.engines.engine import Engine

ENGINE = Engine(
    name="openai",
    summary="a server that is already running (openai=http://127.0.0.1:8000/v1); job start is left out",
    variants={},
    version=lambda: "whatever runs at the URL",
    launch=None,
    install="Nothing to install.",
    formats="what it was started with",
    drafter="as it was started",
    tools="as it was started",
)
