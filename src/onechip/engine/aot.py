"""A program in, a loaded executable out: from the cache folder if it is there, else compiled and kept.

Executables are keyed by everything that they depend on: versions, chip, compiler flags, our own source, and
the program's shapes. A file that cannot be read is compiled again.
"""

from __future__ import annotations

import hashlib
import os
import pickle
import shutil
import tempfile
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import jax
import jaxlib.version
from jax.experimental import serialize_executable

import onechip
from onechip.engine.programs import Program
from onechip.kernels import xla

KEPT_FINGERPRINTS = 8
"""Folders of executables that stay in the cache, newest first."""

PROGRAM_SOURCES = (
    "kernels/*.py",
    "kernels/cpu/*.py",
    "models/decoder.py",
    "models/architecture.py",
    "engine/attention.py",
    "engine/programs.py",
    "engine/scoring.py",
    "engine/cache.py",
    "engine/sampling.py",
)
"""Modules whose code becomes part of a program; a change in one makes every kept executable stale."""

Executable = Callable[..., Any]


def _sources() -> Iterator[bytes]:
    """The source of every module that a program is traced through."""
    root = Path(onechip.__file__).parent
    for pattern in PROGRAM_SOURCES:
        for path in sorted(root.glob(pattern)):
            yield path.read_bytes()


def _processor() -> str:
    """What the CPU can do: an executable made for more than that would crash."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return ""
    return next((line for line in lines if line.startswith(("flags", "Features"))), "")


def fingerprint(*parts: object) -> str:
    """32 hex digits that name the surroundings of a set of programs; `parts` are what the caller adds
    (config, plan).
    """
    device = jax.devices()[0]
    digest = hashlib.sha256()
    surroundings = (
        onechip.__version__,
        jax.__version__,
        jaxlib.version.__version__,
        device.platform,
        device.device_kind,
        device.client.platform_version,
        _processor(),
        os.cpu_count(),
        os.environ.get("XLA_FLAGS", ""),
        sorted(xla.compiler_options(device.platform).items()),
        *parts,
    )
    digest.update(repr(surroundings).encode())
    for source in _sources():
        digest.update(source)
    return digest.hexdigest()[:32]


def usable(folder: Path) -> Path | None:
    """The folder, made if need be; None, with a word, if nothing can be kept there."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):
            return folder
    except OSError as error:
        reason = error.strerror or str(error)
        print(f"onechip: {folder} cannot be written ({reason}); every start compiles all programs anew")
        return None


def _load(path: Path) -> Executable | None:
    try:
        payload = pickle.loads(path.read_bytes())
        executable: Executable = serialize_executable.deserialize_and_load(*payload)
        return executable
    except FileNotFoundError:
        return None
    except Exception as error:
        print(f"onechip: {path} cannot be used ({error}); compiling it again")
        return None


def _save(path: Path, compiled: Any) -> None:
    """Write beside the target and rename, so that a reader never sees half a file. A full disk costs only the
    cache.
    """
    try:
        payload = pickle.dumps(serialize_executable.serialize(compiled))
        with tempfile.NamedTemporaryFile(dir=path.parent, delete=False) as file:
            file.write(payload)
        os.replace(file.name, path)
    except OSError as error:
        print(f"onechip: {path} cannot be kept ({error}); the next start compiles it again")


def load_or_compile(program: Program, folder: Path | None) -> Executable:
    """The executable of a program; `folder` is the cache folder of its fingerprint, None keeps nothing."""
    path = None if folder is None else folder / (program.name.replace("[", "-").rstrip("]") + ".bin")
    if path is not None and (found := _load(path)) is not None:
        return found
    donated = () if program.donated is None else (program.donated,)
    lowered = jax.jit(program.function, donate_argnums=donated).lower(*program.arguments)
    compiled = lowered.compile(compiler_options=xla.compiler_options(jax.default_backend()))
    if path is not None:
        _save(path, compiled)
    return compiled


class Deferred:
    """A program's executable, made when it is first asked for; safe from any thread."""

    def __init__(self, make: Callable[[], Executable]) -> None:
        """Nothing is made yet; `make` loads or compiles it."""
        self._make = make
        self._made: Executable | None = None
        self._lock = threading.Lock()

    def get(self) -> Executable:
        """The executable. Whoever asks while it is made waits for it."""
        with self._lock:
            if self._made is None:
                self._made = self._make()
            return self._made


def prune(folder: Path) -> None:
    """Note that `folder` was used just now, and delete those beside it that have gone unused longest."""
    os.utime(folder)
    folders = [path for path in folder.parent.iterdir() if path.is_dir()]
    for path in sorted(folders, key=lambda path: path.stat().st_mtime, reverse=True)[KEPT_FINGERPRINTS:]:
        shutil.rmtree(path, ignore_errors=True)
