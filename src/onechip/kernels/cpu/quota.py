"""How many processors the control groups that this process is in give it time for; files of Linux in."""

from __future__ import annotations

import math
from collections.abc import Iterator
from pathlib import Path, PurePosixPath

CGROUPS = Path("/sys/fs/cgroup")
MEMBERSHIP = Path("/proc/self/cgroup")


def cpu_quota(cgroups: Path = CGROUPS, membership: Path = MEMBERSHIP) -> int | None:
    """Processors, rounded up, by the tightest quota of a group and those above it; None without one.

    `docker --cpus=2` is such a quota: the process still sees all processors, but with a thread on each it has
    used up its time early in each period, and then all of them stand still until the next.

    Args:
        cgroups: where the groups are mounted, of version 2 (cpu.max) or 1 (cpu/cpu.cfs_quota_us).
        membership: lines "number:controllers:path"; version 2 has the number 0 and no controllers.
    """
    try:
        lines = membership.read_text().splitlines()
    except OSError:
        return None
    shares = [share for line in lines for share in _shares(cgroups, line)]
    return max(1, math.ceil(min(shares))) if shares else None


def _shares(cgroups: Path, line: str) -> Iterator[float]:
    """Processors that each group above a process gives it, where it says."""
    number, _, rest = line.partition(":")
    controllers, _, path = rest.partition(":")
    if number == "0" and not controllers:
        mounts = [cgroups, cgroups / "unified"]
    elif "cpu" in controllers.split(","):
        mounts = [cgroups / "cpu", cgroups / controllers]
    else:
        return
    # In a container the path may be the host's, and its own group the mount itself: what is not there says
    # nothing.
    inside = PurePosixPath(path.lstrip("/"))
    for mount in mounts:
        for group in (inside, *inside.parents):
            share = _share(mount / group)
            if share is not None:
                yield share


def _share(group: Path) -> float | None:
    """Version 2 has "quota period", or "max period"; 1 has both in files of their own, quota -1 for none."""
    try:
        if (group / "cpu.max").exists():
            quota, period = (group / "cpu.max").read_text().split()
        else:
            quota = (group / "cpu.cfs_quota_us").read_text().strip()
            period = (group / "cpu.cfs_period_us").read_text().strip()
        share = float(quota) / float(period)
    except (OSError, ValueError, ZeroDivisionError):  # "max" is no number
        return None
    return share if share > 0 else None
