"""The one chip that this process runs on: what it is, and how much memory is free."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import jax
import psutil

GB = 10**9

BANDWIDTH_GB_S = {
    "H200": 4800,
    "H100": 3350,
    "A100": 1555,
    "L40": 864,
    "L4": 300,
    "T4": 320,
    "A10": 600,
    "RTX 3050": 224,
    "v5 lite": 819,
    "v5e": 819,
    "v6": 1640,
}
"""Published memory bandwidth by a part of the device's name; only the length of a decode window hangs on it.
"""

UNKNOWN_GB_S = {"cpu": 15, "gpu": 400, "tpu": 800}


@dataclass(frozen=True, slots=True)
class Chip:
    """A device of JAX.

    Attributes:
        platform: "cpu", "gpu" or "tpu".
        kind: the device's own name.
        free_bytes: memory that can be allocated now.
        bandwidth_bytes_s: memory bandwidth, published or assumed.
    """

    platform: str
    kind: str
    free_bytes: int
    bandwidth_bytes_s: int

    @classmethod
    def detect(cls) -> Chip:
        """The first device that JAX sees."""
        device = jax.devices()[0]
        kind = _cpu_name() if device.platform == "cpu" else device.device_kind
        known = next((rate for name, rate in BANDWIDTH_GB_S.items() if name in kind), None)
        rate = known or UNKNOWN_GB_S[device.platform]
        return cls(device.platform, kind, _free_bytes(device), rate * GB)


def _free_bytes(device: jax.Device) -> int:
    stats = device.memory_stats()
    if stats and "bytes_limit" in stats:
        return int(stats["bytes_limit"]) - int(stats.get("bytes_in_use", 0))
    return min(psutil.virtual_memory().available, _cgroup_free_bytes())


def _cgroup_free_bytes() -> int:
    """What a container's limit leaves: the kernel gives no more, whatever the machine has."""
    root = Path("/sys/fs/cgroup")
    try:
        limit = (root / "memory.max").read_text().strip()
        used = int((root / "memory.current").read_text())
    except (OSError, ValueError):
        return 1 << 62
    return (1 << 62) if limit == "max" else max(int(limit) - used, 0)


def _cpu_name() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return "cpu"
    return next((line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")), "cpu")
