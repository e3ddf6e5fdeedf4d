"""The Rust model over PJRT of the published comparison: a binary that the user builds and links in place."""

from __future__ import annotations

from pathlib import Path

from onechip.ladder.engines import recipe
from onechip.ladder.engines.engine import Engine, Launch, Start
from onechip.ladder.host import Host

NAME = "rust-pjrt"


def _binary() -> Path:
    return recipe.program(NAME, NAME)


def _launch(start: Start) -> Launch:
    given = ["--model", str(start.checkpoint), "--host", "127.0.0.1", "--port", str(start.port)]
    return Launch([str(_binary()), *given, *start.arm.flags])


def _obstacle(host: Host) -> str | None:
    return None if host.chip == "tpu" else "It was published on a TPU v5e and needs libtpu's PJRT plugin."


ENGINE = Engine(
    name=NAME,
    summary="a Rust model over PJRT, built by you: no package of it exists (untested here)",
    variants={},
    version=lambda: "a binary of yours" if _binary().is_file() else None,
    launch=_launch,
    install=f"No package of it exists. Build it with nightly Rust and link the binary to {_binary()}; it is"
    " given --model, --host and --port, and must speak the OpenAI API.",
    obstacle=_obstacle,
    formats="what the binary reads",
    needs="nightly Rust and libtpu; published: 22 s to start on a TPU v5e",
)
