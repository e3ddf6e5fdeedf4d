"""Meters of memory and energy, on real processes and on stand-ins for what this machine lacks."""

from __future__ import annotations

import os
import resource
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace

import pytest

from onechip.ladder.engines import memory
from onechip.ladder.meters import Meter, metered, nvml, tpu
from onechip.ladder.meters.nvml import Gpus
from onechip.ladder.meters.rapl import Packages
from onechip.ladder.meters.sampler import Sampler
from onechip.ladder.meters.tree import Resident, Tree, read_status

MIB = 1 << 20
HOG = """
import subprocess, sys
for line in sys.stdin:
    word, _, number = line.strip().partition(" ")
    if word == "take":
        held = bytearray(int(number) << 20)
    elif word == "drop":
        held = None
    elif word == "child":
        child = subprocess.Popen([sys.executable, "-c", sys.argv[1], sys.argv[1]], stdin=-1, stdout=-1)
        child.stdin.write(f"take {number}\\n".encode())
        child.stdin.flush()
        child.stdout.readline()
    print("done", flush=True)
"""
"""Takes and drops memory as it is told, by itself or in a child."""

TPU_INFO = """TPU HBM Usage
┏━━━━━━━━┳━━━━━━━━━━━━━━━━━━━━━━━┓
┃ Chip   ┃ HBM Usage (GiB)       ┃
┡━━━━━━━━╇━━━━━━━━━━━━━━━━━━━━━━━┩
│ 0      │ 14.50 GiB / 15.75 GiB │
│ 1      │ 1.25 GiB / 15.75 GiB  │
└────────┴───────────────────────┘
"""


@contextmanager
def hog() -> Iterator[tuple[int, object]]:
    """A process that can be told to take memory: its id, and the way to tell it."""
    process = subprocess.Popen(
        [sys.executable, "-c", HOG, HOG], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )

    def tell(line: str) -> None:
        process.stdin.write(f"{line}\n".encode())
        process.stdin.flush()
        assert process.stdout.readline() == b"done\n"

    try:
        yield process.pid, tell
    finally:
        process.stdin.close()  # a child of it ends by the end of its input
        process.wait(300)
        process.stdout.close()


@pytest.fixture(autouse=True)
def patience(monkeypatch: pytest.MonkeyPatch) -> None:
    """A sampler, whose priority is the lowest, may take long to answer on a machine that is full of tests."""
    monkeypatch.setattr("onechip.ladder.meters.meter.ANSWER_S", 300.0)


class Nvml:
    """Two GPUs with the functions of pynvml that are used."""

    class NVMLError(Exception):
        pass

    def __init__(self) -> None:
        self.used = [1 << 30, 3 << 30]
        self.millijoules: list[int] | None = [5_000, 7_500]

    def nvmlInit(self) -> None:
        pass

    def nvmlDeviceGetCount(self) -> int:
        return 2

    def nvmlDeviceGetHandleByIndex(self, index: int) -> int:
        return index

    def nvmlDeviceGetMemoryInfo(self, handle: int) -> SimpleNamespace:
        return SimpleNamespace(total=24 << 30, free=0, used=self.used[handle])

    def nvmlDeviceGetTotalEnergyConsumption(self, handle: int) -> int:
        if self.millijoules is None:
            raise self.NVMLError("Not Supported")
        return self.millijoules[handle]


@pytest.fixture
def powercap(tmp_path: Path) -> Path:
    """Two packages, one of them counted twice, a part of a package, and the platform."""
    zones = {
        "intel-rapl:0": ("package-0", 900),
        "intel-rapl:0:0": ("core", 500),
        "intel-rapl:1": ("package-1", 100),
        "intel-rapl:2": ("psys", 5_000),
        "intel-rapl-mmio:0": ("package-0", 900),
    }
    for zone, (name, microjoules) in zones.items():
        (tmp_path / zone).mkdir()
        (tmp_path / zone / "name").write_text(f"{name}\n")
        (tmp_path / zone / "energy_uj").write_text(f"{microjoules}\n")
        (tmp_path / zone / "max_energy_range_uj").write_text("999\n")
    return tmp_path


def test_own_pages_are_told_from_those_of_mapped_files() -> None:
    text = (
        "Name:\tx\nVmHWM:\t    2048 kB\nVmRSS:\t 1000 kB\nRssAnon:\t   512 kB\nRssFile:\t 256 kB\n"
        "RssShmem:\t  8 kB\nHugetlbPages:\t 2048 kB\n"
    )
    found = read_status(text)
    assert found == Resident(own=(512 + 8 + 2048) << 10, mapped=256 << 10, peak=4096 << 10)
    assert found.total == (512 + 8 + 2048 + 256) << 10
    assert read_status("") == Resident()


def test_a_tree_is_all_its_processes_and_remembers_those_that_went() -> None:
    with hog() as (pid, tell):
        tree = Tree(pid)
        alone = tree.resident()
        assert alone is not None
        tell("child 64")
        both = tree.resident(find=True)
        assert both is not None
        assert both.own - alone.own >= 64 * MIB
        assert tree.peak >= both.total
    tree.resident(find=True)
    assert tree.peak >= both.total


def test_gpus_are_summed_and_energy_is_none_where_a_board_has_no_counter() -> None:
    library = Nvml()
    found = Gpus(library)
    assert found.used_bytes() == 4 << 30
    assert found.energy_j() == 12.5
    library.millijoules = None
    assert found.energy_j() is None


def test_without_a_driver_there_are_no_gpus(monkeypatch: pytest.MonkeyPatch) -> None:
    class Absent(Nvml):
        def nvmlInit(self) -> None:
            raise self.NVMLError("Driver Not Loaded")

    for module, expected in ((Absent(), None), (Nvml(), 4 << 30), (None, None)):
        monkeypatch.setitem(sys.modules, "pynvml", module)  # None: not installed
        nvml.gpus.cache_clear()
        assert memory.device_bytes() == expected
    nvml.gpus.cache_clear()


def test_free_pages_in_the_processors_own_lists_are_no_loss(tmp_path: Path) -> None:
    """As /proc/zoneinfo of Linux 6.18 has them: two zones, two processors."""
    lists = "  pagesets\n    cpu: {}\n              count:    {}\n              high:     87041\n"
    zone = "Node 0, zone {}\n  pages free     64\n  per-node stats\n      nr_inactive_anon 7\n"
    text = zone.format("DMA32") + lists.format(0, 0) + lists.format(1, 731)
    text += zone.format("Normal") + lists.format(0, 79381) + lists.format(1, 18269)
    (tmp_path / "zoneinfo").write_text(text)
    assert memory.listed_bytes(tmp_path / "zoneinfo") == (731 + 79381 + 18269) * resource.getpagesize()
    assert memory.listed_bytes(tmp_path / "none") == 0


def test_packages_are_counted_once_and_round_the_end_of_their_range(powercap: Path) -> None:
    found = Packages(powercap)
    assert len(found) == 2
    assert found.energy_j() == 0.0
    (powercap / "intel-rapl:0" / "energy_uj").write_text("100\n")  # 999 is the last before 0
    (powercap / "intel-rapl:1" / "energy_uj").write_text("150\n")
    assert found.energy_j() == pytest.approx((200 + 50) / 1e6)
    (powercap / "intel-rapl:1" / "energy_uj").unlink()
    assert found.energy_j() is None


def test_without_a_readable_counter_there_is_no_energy(tmp_path: Path) -> None:
    assert Packages(tmp_path / "absent").energy_j() is None
    (tmp_path / "intel-rapl:0").mkdir()
    (tmp_path / "intel-rapl:0" / "name").write_text("package-0\n")
    (tmp_path / "intel-rapl:0" / "max_energy_range_uj").write_text("999\n")
    assert Packages(tmp_path).energy_j() is None


def test_tpu_memory_is_what_tpu_info_says(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert tpu.read_usage(TPU_INFO) == round(15.75 * 2**30)
    assert tpu.read_usage("│ 0    │ N/A             │ N/A        │") is None
    program = tmp_path / "tpu-info"
    # As an older version, which knows no --metric.
    program.write_text(f'#!/bin/sh\n[ -z "$1" ] || exit 2\ncat <<END\n{TPU_INFO}END\n')
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}{os.environ['PATH']}")
    assert tpu.used_bytes() == round(15.75 * 2**30)
    program.write_text("#!/bin/sh\nexit 1\n")
    assert tpu.used_bytes() is None
    monkeypatch.setenv("PATH", str(tmp_path / "empty"))
    assert tpu.used_bytes() is None


def test_tpus_are_named_by_their_generation(tmp_path: Path) -> None:
    for number, (vendor, device) in enumerate(
        (("0x1ae0", "0x0063"), ("0x8086", "0x0063"), ("0x1ae0", "0xffff"))
    ):
        (tmp_path / str(number)).mkdir()
        (tmp_path / str(number) / "vendor").write_text(f"{vendor}\n")
        (tmp_path / str(number) / "device").write_text(f"{device}\n")
    assert tpu.names(tmp_path) == ["TPU v5e", "TPU"]
    assert tpu.names(tmp_path / "absent") == []


def test_a_stretch_is_the_most_memory_and_the_energy_between(powercap: Path) -> None:
    library = Nvml()
    with hog() as (pid, tell):
        sampler = Sampler(Tree(pid), Gpus(library), Packages(powercap))
        tell("take 64")
        library.used = [2 << 30, 3 << 30]
        sampler.read()
        tell("drop")
        library.used, library.millijoules = [1 << 30, 3 << 30], [6_000, 8_000]
        (powercap / "intel-rapl:1" / "energy_uj").write_text("350\n")
        first = sampler.end()
        sampler.begin()
        second = sampler.end()
    assert first["device_peak_bytes"] == 5 << 30
    assert first["gpu_j"] == pytest.approx(1.5)
    assert first["cpu_j"] == pytest.approx(250e-6)
    assert first["resident_peak_bytes"] > first["own_peak_bytes"] > 64 * MIB
    assert first["hwm_bytes"] == second["hwm_bytes"] >= first["resident_peak_bytes"]
    assert second["own_peak_bytes"] < first["own_peak_bytes"] - 48 * MIB
    assert second["gpu_j"] == second["cpu_j"] == 0.0


def test_what_the_machine_does_not_say_is_left_out(tmp_path: Path) -> None:
    with hog() as (pid, _):
        found = Sampler(Tree(pid), None, Packages(tmp_path)).end()
    assert set(found) == {"metered_s", "resident_peak_bytes", "own_peak_bytes", "hwm_bytes"}


def test_a_meter_reads_beside_the_work() -> None:
    with hog() as (pid, tell):
        meter = Meter(pid, None)
        try:
            _, took = metered(meter, lambda: tell("take 64"))
            assert took["own_peak_bytes"] > 64 * MIB
            assert took["metered_s"] > 0
            tell("drop")
            _, took = metered(meter, lambda: tell("child 32"))
            assert 32 * MIB < took["own_peak_bytes"] < 80 * MIB
            assert took["hwm_bytes"] > 64 * MIB
        finally:
            meter.close()
    assert metered(None, lambda: "done") == ("done", {})


def test_device_memory_is_counted_from_before_the_engine() -> None:
    meter = Meter(os.getpid(), 3 << 30)
    try:
        meter._ask = lambda line: {"device_peak_bytes": 5.0 * 2**30} if line == b"end\n" else {}
        assert meter.end() == {"device_peak_bytes": 2.0 * 2**30}
        meter.device_before = None
        assert meter.end() == {}
    finally:
        meter.close()


def test_a_sampler_that_is_gone_costs_its_figures_alone() -> None:
    meter = Meter(os.getpid(), None)
    assert meter._process is not None
    os.kill(meter._process.pid, signal.SIGKILL)
    meter._process.wait()
    assert metered(meter, lambda: "done") == ("done", {})
    assert meter._process is None
    meter.close()
