"""Memory that engines hold, on the machine and on its GPUs: process ids in, bytes out."""

from __future__ import annotations

import contextlib
import shutil
import subprocess
import time
from dataclasses import dataclass

import psutil

WAIT_S = 10.0
"""How long memory may take to come back after an engine has stopped."""
SLACK_BYTES = 512 << 20
QUERY = ("nvidia-smi", "--query-gpu=memory.used", "--format=csv,noheader,nounits")
QUERY_S = 20.0


@dataclass(frozen=True, slots=True)
class Taken:
    """What is in use: `available` is what the machine has left, `device` what is taken of all its GPUs, None
    where there is none."""

    available: int
    device: int | None


def taken() -> Taken:
    """As it is now."""
    return Taken(psutil.virtual_memory().available, device_bytes())


def device_bytes() -> int | None:
    """In use on all NVIDIA GPUs together, by whomever; None without any, or if the driver does not say."""
    if shutil.which(QUERY[0]) is None:
        return None
    with contextlib.suppress(OSError, subprocess.SubprocessError, ValueError):
        said = subprocess.run(QUERY, capture_output=True, text=True, timeout=QUERY_S, check=True).stdout
        return sum(int(line) << 20 for line in said.split("\n") if line.strip())
    return None


def resident_bytes(pid: int) -> int | None:
    """Memory of a process and its children: pages by proportional share where Linux has it, else RSS."""
    total = 0
    try:
        root = psutil.Process(pid)
        for process in (root, *root.children(recursive=True)):
            with contextlib.suppress(psutil.NoSuchProcess):
                total += _of(process)
    except psutil.Error:
        return None
    return total


def _of(process: psutil.Process) -> int:
    try:
        return int(process.memory_full_info().pss)
    except (AttributeError, psutil.AccessDenied):
        return int(process.memory_info().rss)


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
