"""The machine and the software that a ladder runs on: nothing in, facts for its manifest out."""

from __future__ import annotations

import os
import platform
import subprocess
from collections.abc import Sequence
from pathlib import Path

import psutil

import onechip
from onechip.ladder import pin
from onechip.ladder.meters import tpu
from onechip.ladder.meters.nvml import gpus
from onechip.ladder.meters.rapl import Packages
from onechip.ladder.scheduling import scheduling

UNKNOWN = "not available"
ENGINE_PREFIXES = (
    "CUDA_",
    "GLIBC_",
    "HF_",
    "JAX_",
    "KMP_",
    "LD_PRELOAD",
    "LIBTPU_",
    "MALLOC_",
    "MKL_",
    "NCCL_",
    "OMP_",
    "ONECHIP_",
    "OPENBLAS_",
    "TPU_",
    "VLLM_",
    "XLA_",
)
"""Variables that change what an engine does."""
SECRETS = ("KEY", "TOKEN", "SECRET", "PASSWORD")
BUSY_SHARE = 0.2
"""Of all cores in use before the ladder begins, beyond which its report says so."""


def ourselves() -> dict[str, str]:
    """Version of this package, and its commit ("-dirty" with changes) where it runs from its own git tree."""
    where = str(Path(__file__).parent)
    tracked = _said(["git", "-C", where, "ls-files", "--error-unmatch", __file__])
    describe = ["git", "-C", where, "describe", "--always", "--dirty", "--abbrev=40", "--exclude=*"]
    commit = _said(describe) if tracked != UNKNOWN else UNKNOWN
    return {"version": onechip.__version__, "commit": commit, "python": platform.python_version()}


def machine(engine_cores: Sequence[int] = ()) -> dict[str, str]:
    """Chip, driver, memory, kernel, and how the client is scheduled on it.

    Args:
        engine_cores: that engines are bound to; empty: client and engines share all.
    """
    shared = pin.listed(pin.allowed())
    return {
        "host": platform.node(),
        "system": f"{platform.system()} {platform.release()}",
        "cpu": _cpu_name(),
        "cores": str(psutil.cpu_count()),
        "memory_gib": f"{psutil.virtual_memory().total / 2**30:.1f}",
        "gpu": _nvidia("name"),
        "gpu_driver": _nvidia("driver_version"),
        "gpu_energy": _gpu_energy(),
        "tpu": ", ".join(tpu.names()) or UNKNOWN,
        "cpu_energy": f"{packages} packages through powercap" if (packages := len(Packages())) else UNKNOWN,
        "client_scheduling": scheduling(),
        "engine_cores": pin.listed(engine_cores) if engine_cores else shared,
        "client_cores": pin.listed(pin.rest(engine_cores)) if engine_cores else shared,
    }


def busy_note(share: float) -> str | None:
    """One sentence if other programs are at work, which take this share of all cores."""
    if share <= BUSY_SHARE:
        return None
    return f"Other programs used {share:.0%} of the processor before the ladder began; expect wide intervals."


def engine_variables() -> dict[str, str]:
    """The environment's variables that bear on an engine, secrets left out."""
    return {
        name: value
        for name, value in sorted(os.environ.items())
        if name.startswith(ENGINE_PREFIXES) and not any(word in name for word in SECRETS)
    }


def _cpu_name() -> str:
    try:
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    except OSError:
        pass
    return platform.processor() or UNKNOWN


def _gpu_energy() -> str:
    """What counts the GPUs' energy."""
    found = gpus()
    return UNKNOWN if found is None or found.energy_j() is None else "counters of the boards through NVML"


def _nvidia(field: str) -> str:
    """One field of `nvidia-smi`, cards separated by commas."""
    said = _said(["nvidia-smi", f"--query-gpu={field}", "--format=csv,noheader"])
    return ", ".join(said.splitlines())


def _said(command: list[str]) -> str:
    """What a program prints, UNKNOWN if it is not there or fails."""
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=20)
    except (OSError, subprocess.SubprocessError):
        return UNKNOWN
    return done.stdout.strip() or UNKNOWN
