"""Memory of a process and its children: a process id in, bytes out.

Linux counts a process's resident pages by kind (/proc/PID/status): anonymous, shared, in huge pages, and
pages of mapped files. The first three are the process's own. Pages of mapped files, a checkpoint that is
served from where it lies among them, are the system's: it can drop them and read them again. Reading these
counters costs microseconds and holds no lock, unlike proportional shares (PSS), so they can be read while an
engine works. A page that two processes of a tree share counts in both.
"""

from __future__ import annotations

import contextlib
import re
import time
from pathlib import Path
from typing import NamedTuple

import psutil

FIND_S = 1.0
"""How often to look for new children, which means to read the parent of every process of the machine."""
_FIELD = re.compile(r"^(VmHWM|RssAnon|RssFile|RssShmem|HugetlbPages):\s+(\d+) kB", re.MULTILINE)


class Resident(NamedTuple):
    """Bytes: `own` are not backed by a file, `mapped` are; `peak` is the most that both together were."""

    own: int = 0
    mapped: int = 0
    peak: int = 0

    @property
    def total(self) -> int:
        return self.own + self.mapped

    def plus(self, other: Resident) -> Resident:
        return Resident(self.own + other.own, self.mapped + other.mapped, self.peak + other.peak)


def read_status(text: str) -> Resident:
    """From /proc/PID/status; 0 where it has no such line, as that of a process that has ended."""
    kib = {name: int(number) for name, number in _FIELD.findall(text)}
    huge = kib.get("HugetlbPages", 0)  # in none of the Rss lines, nor in VmHWM
    own = kib.get("RssAnon", 0) + kib.get("RssShmem", 0) + huge
    return Resident(own << 10, kib.get("RssFile", 0) << 10, (kib.get("VmHWM", 0) + huge) << 10)


def proportional_bytes(pid: int) -> int | None:
    """Memory of a process and its children now: pages by proportional share where Linux has it, else RSS.

    Walks all page tables under the processes' locks: tens of milliseconds for some GiB, and an engine that
    works would feel it.
    """
    total = 0
    try:
        root = psutil.Process(pid)
        for process in (root, *root.children(recursive=True)):
            with contextlib.suppress(psutil.NoSuchProcess):
                total += _share(process)
    except psutil.Error:
        return None
    return total


def _share(process: psutil.Process) -> int:
    try:
        return int(process.memory_full_info().pss)
    except (AttributeError, psutil.AccessDenied):
        return int(process.memory_info().rss)


class Tree:
    """A process and its children, read again and again.

    Attributes:
        peak: bytes, the most that was resident in each process ever seen, each at its own worst: no less than
            what was resident at once in those that were there together.
    """

    def __init__(self, pid: int) -> None:
        self._root = pid
        self._pids = [pid]
        self._found_s = -FIND_S
        self._peaks: dict[int, int] = {}

    @property
    def peak(self) -> int:
        return sum(self._peaks.values())

    def resident(self, *, find: bool = False) -> Resident | None:
        """What is resident now in all processes together; None where the system does not say.

        Args:
            find: look for new children now, however short ago that was done.
        """
        now = time.monotonic()
        if find or now - self._found_s >= FIND_S:
            self._found_s = now
            with contextlib.suppress(psutil.Error):
                root = psutil.Process(self._root)
                self._pids = [self._root, *(child.pid for child in root.children(recursive=True))]
        total = Resident()
        for pid in self._pids:
            found = self._status(pid)
            self._peaks[pid] = max(self._peaks.get(pid, 0), found.peak)
            total = total.plus(found)
        return total if total.total else None

    def _status(self, pid: int) -> Resident:
        try:
            return read_status(Path(f"/proc/{pid}/status").read_text())
        except OSError:
            return Resident()
