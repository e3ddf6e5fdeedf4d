"""Weights in an engine's own format: an arm's weights and a program of the engine in, its file out.

For engines that read none of weights.FORMS. Made once into the cache, in a process of its own.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import subprocess
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from onechip.cache import cache_root
from onechip.errors import EngineError
from onechip.ladder import weights
from onechip.ladder.checkpoint import file_hashes
from onechip.ladder.weights import Weights

POLL_S = 0.5


@dataclass(frozen=True, slots=True)
class Making:
    """How an engine's file is made.

    Attributes:
        form: what the result is called in the manifest.
        name: of the file or folder that is made.
        command: given where to make it -> what is run.
        maker: all that decides what comes out besides the weights themselves: versions and options.
        environment: set on top of the ladder's own.
    """

    form: str
    name: str
    command: Callable[[Path], list[str]]
    maker: tuple[str, ...]
    environment: Mapping[str, str] = field(default_factory=dict)


def derive(parent: Weights, making: Making, doing: Callable[[str], None]) -> Weights:
    """The engine's file, made if the cache has none; `doing` shows a line that the next one replaces.

    Raises:
        EngineError: it cannot be made; with the last lines that the program said.
    """
    facts = [sorted(parent.hashes.items()), making.form, making.name, *making.maker]
    folder = cache_root() / "weights" / hashlib.sha256(json.dumps(facts).encode()).hexdigest()[:24]
    kept = weights.read(folder)
    if kept is not None:
        return kept
    fresh = folder.with_name(f"{folder.name}.{os.getpid()}")
    weights.clear(folder)
    try:
        fresh.mkdir(parents=True)
        command = making.command(fresh / making.name)
        _run(command, making, fresh, doing)
        hashes = file_hashes(fresh / making.name)
        fresh.rename(folder)
    except OSError as error:
        raise EngineError(f"{making.form} cannot be kept in {folder.parent}: {error}.") from None
    finally:
        shutil.rmtree(fresh, ignore_errors=True)
    made = making.command(folder / making.name)
    return weights.keep(folder, Weights(str(folder / making.name), making.form, made, hashes))


def _run(command: list[str], making: Making, folder: Path, doing: Callable[[str], None]) -> None:
    """Runs the program, whose words go into a file, since they may be too many for a pipe."""
    began = time.monotonic()
    log = folder / "log.txt"
    with log.open("wb") as said:
        process = subprocess.Popen(
            command, stdout=said, stderr=said, stdin=subprocess.DEVNULL, env=os.environ | making.environment
        )
        try:
            while process.poll() is None:
                doing(f"making {making.form}: {time.monotonic() - began:.0f} s")
                time.sleep(POLL_S)
        except BaseException:
            process.kill()
            process.wait()
            raise
    lines = [line.strip() for line in log.read_text("utf-8", "replace").splitlines() if line.strip()]
    log.unlink()
    if process.returncode != 0 or not (folder / making.name).exists():
        words = lines[-1][:300] if lines else "it said nothing"
        raise EngineError(f"{making.form} cannot be made: {words}", log=tuple(lines[-12:]))
