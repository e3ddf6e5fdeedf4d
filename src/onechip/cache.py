"""Where onechip keeps what it can make or fetch again: the environment in, the user's cache folder out."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path


def cache_root(environment: Mapping[str, str] = os.environ) -> Path:
    """`onechip` below XDG_CACHE_HOME, else below ~/.cache; an empty variable counts as none, as the XDG
    specification has it."""
    return Path(environment.get("XDG_CACHE_HOME") or "~/.cache").expanduser() / "onechip"
