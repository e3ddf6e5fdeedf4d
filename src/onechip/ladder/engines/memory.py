"""What is free on the machine and taken on its GPUs, and whether an engine that has stopped gave it back."""

from __future__ import annotations

import re
import resource
import time
from dataclasses import dataclass
from pathlib import Path

import psutil

from onechip.ladder.meters.nvml import gpus

WAIT_S = 10.0
"""How long memory may take to come back after an engine has stopped."""
SLACK_BYTES = 512 << 20
ZONES = Path("/proc/zoneinfo")
_LISTED = re.compile(r"^ +count: +(\d+)$", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Taken:
    """What is in use: `available` is what the machine has left, `device` what is taken of all its GPUs, None
    where there is none."""

    available: int
    device: int | None


def taken() -> Taken:
    """As it is now."""
    return Taken(psutil.virtual_memory().available + listed_bytes(), device_bytes())


def listed_bytes(zones: Path = ZONES) -> int:
    """Free pages in the processors' own lists, which Linux counts neither as free nor as available.

    Since 6.7 it lets these lists grow to an eighth of the memory while pages come and go, and empties them
    slowly: what an engine gave back seems to be gone. 0 where the kernel does not say.
    """
    try:
        said = zones.read_text()
    except OSError:
        return 0
    return sum(map(int, _LISTED.findall(said))) * resource.getpagesize()


def device_bytes() -> int | None:
    """In use on all NVIDIA GPUs together, by whomever; None without any, or if the driver does not say."""
    found = gpus()
    return None if found is None else found.used_bytes()


def missing(before: Taken, held: int) -> str | None:
    """Waits until what an engine held has come back; one sentence if it has not.

    Args:
        before: in use before the engine started.
        held: bytes that it held on the machine; more is missing only because others took it.
    """
    end = time.monotonic() + WAIT_S
    while True:
        now = taken()
        gone = min(held, before.available - now.available)
        on_device = 0 if before.device is None or now.device is None else now.device - before.device
        if max(gone, on_device) <= SLACK_BYTES:
            return None
        if time.monotonic() >= end:
            where = "GPU memory" if on_device > SLACK_BYTES else "memory"
            size = on_device if on_device > SLACK_BYTES else gone
            return f"{size / 2**30:.1f} GiB of {where} had not come back {WAIT_S:.0f} s after it stopped."
        time.sleep(0.1)
