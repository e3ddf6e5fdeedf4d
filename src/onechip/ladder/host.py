"""The machine as an engine sees it: system, processor, chip and memory."""

from __future__ import annotations

import functools
import platform
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import psutil

from onechip.ladder import pin

Chip = Literal["cpu", "cuda", "tpu"]
ARCHES = {"amd64": "x86_64", "arm64": "aarch64"}
"""Names that systems give to the same architecture."""


@dataclass(frozen=True, slots=True)
class Host:
    """The machine.

    Attributes:
        system: "linux", "darwin" or "windows". arch: "x86_64" or "aarch64".
        chip: what engines run on here: the accelerator if there is one.
        threads: processor cores that this process may use.
        memory_bytes: of the whole machine.
        gpu: its name, "" where there is none. capability: CUDA compute capability, None where unknown.
        flags: of the processor ("avx512f", "amx_tile"), as Linux names them; empty elsewhere.
    """

    system: str
    arch: str
    chip: Chip
    threads: int
    memory_bytes: int
    gpu: str = ""
    capability: tuple[int, int] | None = None
    flags: frozenset[str] = frozenset()

    @property
    def platform(self) -> str:
        """Names the lock files that serve here, "linux-x86_64-cpu"."""
        return f"{self.system}-{self.arch}-{self.chip}"


@functools.cache
def this_host() -> Host:
    """The machine that this runs on; asked once."""
    gpu, capability = _gpu()
    arch = platform.machine().lower()
    return Host(
        system=platform.system().lower(),
        arch=ARCHES.get(arch, arch),
        chip="cuda" if gpu else "tpu" if _has_tpu() else "cpu",
        threads=len(pin.allowed()),
        memory_bytes=psutil.virtual_memory().total,
        gpu=gpu,
        capability=capability,
        flags=_flags(),
    )


def _gpu() -> tuple[str, tuple[int, int] | None]:
    """Name and compute capability of the first card that nvidia-smi lists."""
    ask = ["nvidia-smi", "--query-gpu=name,compute_cap", "--format=csv,noheader"]
    try:
        said = subprocess.run(ask, capture_output=True, text=True, check=True, timeout=20).stdout
        name, _, capability = said.splitlines()[0].rpartition(", ")
    except (OSError, subprocess.SubprocessError, IndexError):
        return "", None
    major, _, minor = capability.partition(".")
    return name, (int(major), int(minor)) if major.isdigit() and minor.isdigit() else None


def _has_tpu() -> bool:
    """TPU VMs show chips as /dev/accel0... (v4 and before) or behind VFIO with Google's PCI vendor id."""
    if Path("/dev/accel0").exists():
        return True
    vendors = Path("/sys/bus/pci/devices").glob("*/vendor")
    return Path("/dev/vfio").exists() and any(v.read_text().strip() == "0x1ae0" for v in vendors)


def _flags() -> frozenset[str]:
    try:
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith(("flags", "Features")):
                return frozenset(line.partition(":")[2].split())
    except OSError:
        pass
    return frozenset()
