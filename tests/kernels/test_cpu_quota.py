"""The time that control groups give a process, from files as Docker and systemd leave them."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from onechip.kernels.cpu import library
from onechip.kernels.cpu.quota import cpu_quota

V1 = {"cpu,cpuacct/cpu.cfs_period_us": "100000\n"}


@pytest.mark.parametrize(
    ("membership", "files", "expected"),
    [
        ("0::/\n", {"cpu.max": "200000 100000\n"}, 2),
        ("0::/\n", {"cpu.max": "150000 100000\n"}, 2),
        ("0::/\n", {"cpu.max": "10000 100000\n"}, 1),
        ("0::/\n", {"cpu.max": "max 100000\n"}, None),
        ("0::/a/b\n", {"a/cpu.max": "300000 100000\n", "a/b/cpu.max": "max 100000\n"}, 3),
        ("0::/a/b\n", {"a/cpu.max": "300000 100000\n", "a/b/cpu.max": "700000 100000\n"}, 3),
        ("0::/a/b\n", {"c/cpu.max": "300000 100000\n"}, None),
        ("5:cpu,cpuacct:/docker/1f\n", V1 | {"cpu,cpuacct/cpu.cfs_quota_us": "250000\n"}, 3),
        ("5:cpu,cpuacct:/docker/1f\n", V1 | {"cpu,cpuacct/cpu.cfs_quota_us": "-1\n"}, None),
        ("4:cpuset:/\n", {"cpu.max": "200000 100000\n"}, None),
        ("0::/\n", {"cpu.max": "not\n"}, None),
        ("", {}, None),
    ],
)
def test_the_tightest_quota_rounded_up(
    tmp_path: Path, membership: str, files: dict[str, str], expected: int | None
) -> None:
    for name, text in files.items():
        (tmp_path / "cgroup" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "cgroup" / name).write_text(text)
    (tmp_path / "self").write_text(membership)
    assert cpu_quota(tmp_path / "cgroup", tmp_path / "self") == expected
    assert cpu_quota(tmp_path / "cgroup", tmp_path / "none") is None


@pytest.mark.skipif(library.available() is not None, reason="the kernels cannot be used here")
@pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="one core is one thread anyway")
@pytest.mark.parametrize(("most", "wish", "expected"), [(1, 0, 1), (1, 3, 3), (1 << 20, 0, None)])
def test_no_more_threads_than_that_unless_asked_for(most: int, wish: int, expected: int | None) -> None:
    """None: as many as without a quota, whatever quota the tests themselves run under."""
    assert threads(most, wish) == (threads(None, wish) if expected is None else expected)


def threads(quota: int | None, wish: int) -> int:
    """How many threads work in a process with this quota that asks for `wish` of them, or for none."""
    program = "from onechip.kernels.cpu import library, quota\n"
    program += f"quota.cpu_quota = lambda: {quota}\n"
    program += f"library.set_threads({wish})\n" if wish else ""
    program += "print(library.threads())"
    said = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout
    return int(said)
