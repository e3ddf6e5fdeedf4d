"""Pins for each engine and platform, one file each: STEM-SYSTEM-ARCH-CHIP.txt.

Lines are pip requirements (`name==version`). A line `#index URL` names an index that pins may need
besides the user's own (torch's builds for processors); it is used where it can be reached.
"""

from __future__ import annotations

import hashlib
import re
import urllib.error
import urllib.request
from dataclasses import dataclass
from importlib import resources

REACH_S = 8
_INDEX = "#index "


@dataclass(frozen=True, slots=True)
class Lock:
    """Attributes: name of the file; pins, as "name==version"; indexes; sha256 of the file."""

    name: str
    pins: tuple[str, ...]
    indexes: tuple[str, ...]
    sha256: str


def read(stem: str, platform: str) -> Lock | None:
    """The lock of a platform (Host.platform); None if it has none."""
    name = f"{stem}-{platform}.txt"
    file = resources.files(__package__) / name
    if not file.is_file():
        return None
    raw = file.read_bytes()
    lines = [line.strip() for line in raw.decode().splitlines()]
    pins = tuple(line for line in lines if line and not line.startswith("#"))
    indexes = tuple(line.removeprefix(_INDEX).strip() for line in lines if line.startswith(_INDEX))
    return Lock(name, pins, indexes, hashlib.sha256(raw).hexdigest())


def platforms(stem: str) -> list[str]:
    """The platforms that an engine has a lock for."""
    found = (entry.name for entry in resources.files(__package__).iterdir())
    pattern = re.compile(rf"{re.escape(stem)}-(\w+-\w+-\w+)\.txt")
    return sorted(match[1] for name in found if (match := pattern.fullmatch(name)))


def reachable(index: str) -> bool:
    """Whether an index answers at all; a refusal of this page is an answer, pip asks for others."""
    try:
        with urllib.request.urlopen(urllib.request.Request(index, method="HEAD"), timeout=REACH_S):
            return True
    except urllib.error.HTTPError:
        return True
    except (OSError, ValueError):
        return False


def normal(name: str) -> str:
    """A distribution's name as file names of wheels spell it."""
    return re.sub(r"[-_.]+", "_", name).lower()
