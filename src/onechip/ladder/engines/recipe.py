"""How `ladder install` gets an engine here, and where it puts it: an environment of its own in the cache."""

from __future__ import annotations

import csv
import fcntl
import json
import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from onechip.cache import cache_root

STAMP = "installed.json"
"""Written last: an environment without it is not finished."""


@dataclass(frozen=True, slots=True)
class Build:
    """A compiler step, after the wheels are in.

    Attributes:
        what: said before anything begins ("compiles llama.cpp from source").
        minutes: it takes on two cores. disk_bytes: it needs besides what stays.
        tools: programs that must be on the PATH ("cmake", "g++").
        run: (environment folder, say) -> None. Can be started again after a kill; what it makes stays below
            the environment folder. `say` shows one line of progress. Raises InstallError.
    """

    what: str
    minutes: int
    tools: tuple[str, ...]
    run: Callable[[Path, Callable[[str], None]], None]
    disk_bytes: int = 0


@dataclass(frozen=True, slots=True)
class Recipe:
    """What goes into an engine's environment.

    Attributes:
        lock: stem of locks/STEM-PLATFORM.txt: one pin a line, for `pip install --no-deps -r`. PLATFORM is
            Host.platform; a platform without a lock cannot be installed.
        python: versions that the locks are for, best first ("3.11",).
        download_bytes, disk_bytes: about what it fetches and what it takes once installed; said first.
        build: a compiler step, or None where wheels serve.
        check: behind the environment's python, proves that it works ("-c", "import vllm").
        elsewhere: what to do on a platform without a lock, one sentence with the engine's own command.
    """

    lock: str
    python: tuple[str, ...]
    download_bytes: int
    disk_bytes: int
    check: tuple[str, ...]
    build: Build | None = None
    elsewhere: str = ""


def home(name: str) -> Path:
    """An engine's environment, there or not."""
    return cache_root() / "engines" / name


def python(name: str) -> Path:
    """The interpreter of an engine's environment."""
    return program(name, "python")


def program(name: str, called: str) -> Path:
    """A program of an engine's environment."""
    return home(name) / ("Scripts" if os.name == "nt" else "bin") / called


def mutex(name: str) -> Path:
    """Locked by whoever installs or removes an engine."""
    return home(name).with_name(f"{name}.lock")


def stamp(name: str) -> dict[str, str]:
    """What was written when an engine's installation ended; empty if it has not."""
    try:
        found = json.loads((home(name) / STAMP).read_bytes())
    except (OSError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}


def busy(name: str) -> bool:
    """Whether a process installs or removes an engine at this moment."""
    try:
        with mutex(name).open() as file:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:
        return False
    return False


def installed(name: str, distribution: str) -> str | None:
    """The version of a distribution in an engine's environment; None if that is not finished, or broken."""
    if not stamp(name):
        return None
    wanted = distribution.lower().replace("-", "_")
    for found in home(name).glob("lib/python*/site-packages/*.dist-info"):
        project, _, version = found.name.removesuffix(".dist-info").partition("-")
        if project.lower().replace("-", "_").replace(".", "_") == wanted:
            return version if _whole(found) else None
    return None


def _whole(info: Path) -> bool:
    """Whether each file and folder that a distribution brought into site-packages is there, by its RECORD."""
    try:
        lines = (info / "RECORD").read_text(encoding="utf-8").splitlines()
    except OSError:
        return True  # not by pip
    tops = {Path(row[0]).parts[0] for row in csv.reader(lines) if row and row[0]}
    return all((info.parent / top).exists() for top in tops - {"..", "__pycache__"})
