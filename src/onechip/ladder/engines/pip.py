"""pip of an engine's environment: pins in, wheels on the disk and then packages out, with what is going on.

Wheels are fetched in small batches into a folder of their own, so that a kill costs one batch at the most.
pip reads the user's configuration (indexes, proxies, certificates); nothing of our own environment gets in.
"""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path

from onechip.errors import InstallError
from onechip.ladder.engines.child import child
from onechip.ladder.engines.locks import normal

BATCH = 12
SAYS_BYTES = (24, 1)
"""The first pip that says its progress in a form that programs can read."""
ELSEWHERE = (
    "PIP_PREFIX",
    "PIP_ROOT",
    "PIP_TARGET",
    "PIP_USER",
    "PYTHONHOME",
    "PYTHONPATH",
    "VIRTUAL_ENV",
)
"""Variables that would put packages elsewhere, or ours before the engine's."""
_PROGRESS = re.compile(r"Progress (\d+) of (\d+)")
_UNREACHABLE = re.compile(r"connection broken by '(.*)': /")
"""pip's warning when it cannot get to an index: the exception that it met."""
_REASON = re.compile(r"(?:\[Errno -?\d+\] |')([A-Z][\w .,:=()-]+)")
"""The words in an exception; the last are the system's."""
_COLLECTING = re.compile(r"Collecting ([\w.-]+)")
Say = Callable[[str], None]


def clean(environment: Mapping[str, str] = os.environ) -> dict[str, str]:
    """The environment for an engine's interpreter and pip."""
    return {name: value for name, value in environment.items() if name not in ELSEWHERE}


class Pip:
    """Attributes: python of the environment; log: all that pip says is appended there."""

    def __init__(self, python: Path, log: Path) -> None:
        self.python = python
        self.log = log

    def fetch(self, pins: Sequence[str], wheels: Path, indexes: Iterable[str], doing: Say) -> None:
        """Downloads what `wheels` lacks.

        Raises:
            InstallError: something cannot be had; what was fetched stays.
        """
        missing = [pin for pin in pins if not has_wheel(wheels, pin)]
        part = wheels / "part"
        bar = "raw" if self._says_bytes() else "off"
        extra = [word for index in indexes for word in ("--extra-index-url", index)]
        for start in range(0, len(missing), BATCH):
            batch = missing[start : start + BATCH]
            part.mkdir(parents=True, exist_ok=True)
            screen = _Fetching(len(pins) - len(missing) + start, len(pins), doing)
            self.run(
                ["download", "--no-deps", "--progress-bar", bar, "--dest", str(part), *extra, *batch],
                screen.line,
            )
            for file in part.iterdir():
                file.replace(wheels / file.name)

    def install(self, pins: Sequence[str], wheels: Path, doing: Say) -> None:
        """Installs fetched wheels, and nothing else."""
        doing(f"unpacking {len(pins)} packages")
        self.run(
            ["install", "--no-deps", "--no-index", "--find-links", str(wheels), *pins], lambda line: None
        )

    def upgrade(self) -> None:
        """Brings a pip that does not say how far it is to one that does, where the index has one."""
        if not self._says_bytes():
            with contextlib.suppress(InstallError):
                self.run(
                    ["install", "--upgrade", f"pip>={'.'.join(map(str, SAYS_BYTES))}"], lambda line: None
                )

    def _says_bytes(self) -> bool:
        """By the version of the environment's pip."""
        for found in self.python.parent.parent.glob("lib/python*/site-packages/pip-*.dist-info"):
            numbers = found.name.removeprefix("pip-").split(".")[:2]
            return all(map(str.isdigit, numbers)) and tuple(map(int, numbers)) >= SAYS_BYTES
        return False

    def run(self, words: Sequence[str], line: Say) -> None:
        """Runs one pip command; every line that it says goes into the log and to `line`.

        Raises:
            InstallError: it failed; with pip's own reason.
        """
        command = [str(self.python), "-I", "-m", "pip", "--disable-pip-version-check", "--no-input", *words]
        reasons: list[str] = []
        unreachable = ""
        with self.log.open("a") as log:
            log.write(f"--- {' '.join(command)}\n")
            log.flush()
            with child(command, clean()) as process:
                assert process.stdout is not None
                for said in process.stdout:
                    if not _PROGRESS.match(said):
                        log.write(said)
                    if said.startswith("ERROR:"):
                        reasons.append(said.removeprefix("ERROR:").strip())
                    elif found := _UNREACHABLE.search(said):
                        unreachable = (_REASON.findall(found[1]) or ["no connection"])[-1]
                    line(said.strip())
        if process.returncode != 0:
            why = reasons[-1] if reasons else f"pip ended with code {process.returncode}"
            if unreachable and why.startswith("No matching distribution"):
                # All that pip says in the end is that it has found nothing.
                why = (
                    f"the package index cannot be reached ({unreachable}): check the network, PIP_INDEX_URL"
                    " and proxies, then run the same command again"
                )
            raise InstallError(f"{why[:300]} (all that pip said: {self.log}).")


class _Fetching:
    """Condenses what `pip download` says to one line: package N of M, its name, bytes."""

    def __init__(self, done: int, total: int, doing: Say) -> None:
        self.done = done
        self.total = total
        self.doing = doing
        self.name = ""

    def line(self, said: str) -> None:
        collecting, progress = _COLLECTING.match(said), _PROGRESS.match(said)
        if collecting:
            self.name = collecting[1]
            self.done += 1
            self.doing(f"fetching {self.done} of {self.total}: {self.name}")
        elif progress:
            now, whole = int(progress[1]) / 1e6, int(progress[2]) / 1e6
            self.doing(f"fetching {self.done} of {self.total}: {self.name}, {now:.0f} of {whole:.0f} MB")


def has_wheel(wheels: Path, pin: str) -> bool:
    """Whether the wheel (or source archive) of a pin "name==version" was fetched already."""
    name, _, version = pin.partition("==")
    for file in wheels.glob("*"):
        found = re.match(r"([^-]+(?:-[^-]+)*?)-(\d[^-]*?)(?:-.*\.whl|\.tar\.gz|\.zip)$", file.name)
        if found and normal(found[1]) == normal(name) and found[2] == version:
            return True
    return False
