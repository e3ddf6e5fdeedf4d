"""Google's TPUs: their name from the PCI bus, and the memory in use as the program `tpu-info` says it."""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import subprocess
from pathlib import Path

GOOGLE = "0x1ae0"
"""PCI vendor."""
NAMES = {"0x005e": "TPU v4", "0x0062": "TPU v5p", "0x0063": "TPU v5e", "0x006f": "TPU v6e", "0x0076": "TPU7x"}
"""By PCI device, as in google/cloud-accelerator-diagnostics, tpu_info/device.py."""
PCI = Path("/sys/bus/pci/devices")
COMMAND = ("tpu-info", "--metric", "hbm_usage")
OLDER = ("tpu-info",)
"""Versions before 0.5 have no choice of metrics and show them all."""
LIMIT_S = 30.0
_USAGE = re.compile(r"(\d+(?:\.\d+)?) GiB\s*/\s*\d+(?:\.\d+)? GiB")


def names(root: Path = PCI) -> list[str]:
    """Every TPU chip of this machine by its generation; chips that this version does not know are "TPU"."""
    found = []
    for device in sorted(root.glob("*")):
        with contextlib.suppress(OSError):
            if (device / "vendor").read_text().strip() == GOOGLE:
                found.append(NAMES.get((device / "device").read_text().strip(), "TPU"))
    return found


def read_usage(said: str) -> int | None:
    """Bytes in use on all chips together, from the text of tpu-info; None where it shows none.

    It shows N/A where no program that uses libtpu runs.
    """
    used = [float(gib) for gib in _USAGE.findall(said)]
    return round(sum(used) * 2**30) if used else None


def used_bytes() -> int | None:
    """Memory in use on this machine's TPUs, to 0.01 GiB a chip; None where tpu-info does not say it.

    It is a program of its own that takes a second or two of a core, so nothing must be timed meanwhile.
    """
    if shutil.which(COMMAND[0]) is None:
        return None
    for command in (COMMAND, OLDER):
        with contextlib.suppress(OSError, subprocess.SubprocessError):
            wide = os.environ | {"COLUMNS": "200"}
            said = subprocess.run(
                command, env=wide, capture_output=True, text=True, timeout=LIMIT_S, check=True
            ).stdout
            return read_usage(said)
    return None
