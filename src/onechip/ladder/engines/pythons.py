"""Which Python an engine's environment is made with: versions in, an interpreter on this machine out."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

from onechip.errors import InstallError

WORKS = "import ensurepip, sys, venv; print('%d.%d' % sys.version_info[:2])"
"""Debian's interpreters come without ensurepip, and pyenv's shims fail for versions that are not chosen."""
ASK_S = 30


def find_python(versions: tuple[str, ...]) -> Path:
    """An interpreter of the first of these versions that is here and can make environments.

    Raises:
        InstallError: there is none.
    """
    for version in versions:
        for candidate in _candidates(version):
            if _works(candidate, version):
                return candidate
    first = versions[0]
    raise InstallError(
        f"Python {' or '.join(versions)} with its venv module is needed and was not found on the PATH, in"
        f" pyenv or in uv. Get it with: apt install python{first}-venv (Debian, Ubuntu), pyenv install"
        f" {first}, or uv python install {first}."
    )


def _candidates(version: str) -> Iterator[Path]:
    """Interpreters that may have this version: ours, the PATH's, pyenv's, uv's."""
    if sys.version_info[:2] == tuple(map(int, version.split("."))):
        yield Path(sys.base_prefix) / "bin" / f"python{version}"
    on_path = shutil.which(f"python{version}")
    if on_path is not None:
        yield Path(on_path)
    pyenv = Path(os.environ.get("PYENV_ROOT") or "~/.pyenv").expanduser()
    uv = Path(os.environ.get("XDG_DATA_HOME") or "~/.local/share").expanduser() / "uv" / "python"
    for folder in (*pyenv.glob(f"versions/{version}*"), *uv.glob(f"cpython-{version}.*")):
        yield folder / "bin" / f"python{version}"


def _works(candidate: Path, version: str) -> bool:
    try:
        said = subprocess.run(
            [str(candidate), "-I", "-c", WORKS], capture_output=True, text=True, timeout=ASK_S
        )
    except (OSError, subprocess.SubprocessError):
        return False
    return said.returncode == 0 and said.stdout.strip() == version
