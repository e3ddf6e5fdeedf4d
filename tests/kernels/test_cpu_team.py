"""The team of threads: its native tests, and that a process with one can fork, wait and end."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from onechip.kernels.cpu import library

NATIVE = Path(__file__).parents[2] / "src/onechip/kernels/cpu/native"
TESTS = Path(__file__).parent / "native"

usable = pytest.mark.skipif(library.available() is not None, reason="the kernels cannot be used here")


def run(*command: str | Path) -> str:
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def python(text: str) -> str:
    return run(sys.executable, "-c", text)


@pytest.mark.skipif(shutil.which("g++") is None, reason="no compiler here")
def test_native(tmp_path: Path) -> None:
    program = tmp_path / "test_team"
    flags = ["-std=c++20", "-O2", "-pthread", f"-I{NATIVE}"]
    run("g++", *flags, TESTS / "test_team.cc", NATIVE / "team.cc", "-o", program)
    assert run(program) == "test_team: ok\n"


PACK = """
import numpy, ml_dtypes
from onechip.kernels.cpu import library, weights
def pack():
    weight = numpy.random.default_rng(0).standard_normal((800, 64)).astype(ml_dtypes.bfloat16)
    assert (weights.unpack(weights.pack(weight)) == weight.astype("float32")).all()
"""


@usable
def test_the_number_of_threads_is_set_before_they_start() -> None:
    told = python(
        PACK
        + """
library.set_threads(3)
pack()
print(library.threads())
try:
    library.set_threads(2)
except RuntimeError as error:
    print(error)
"""
    )
    assert told == "3\nthe number of threads is set before they start; 3 are running\n"


@usable
def test_a_child_of_a_fork_works_and_ends() -> None:
    told = python(
        PACK
        + """
import os, sys, warnings
warnings.simplefilter("ignore")
library.set_threads(4)
pack()
child = os.fork()
if child == 0:
    pack()
    sys.exit(7)
pack()
print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""
    )
    assert told == "7\n"


@usable
@pytest.mark.parametrize("pause", [0, 0.1])
def test_a_process_ends_while_helpers_spin_or_sleep(pause: float) -> None:
    python(PACK + f"import time; library.set_threads(4); pack(); time.sleep({pause})")
