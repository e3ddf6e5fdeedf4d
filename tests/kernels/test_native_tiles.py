"""The arithmetic of the CPU's kernels, tested in C++ (native/test_tiles*.cc): here it is compiled and run.

With sanitizers (`make sanitize`), from the root of the repository:

    N=src/onechip/kernels/cpu/native
    g++ -std=c++20 -O1 -g -fsanitize=address,undefined -fno-sanitize-recover=all -ffp-contract=off \
        -fno-math-errno -I $N tests/kernels/native/test_tiles*.cc $N/tiles*.cc -o /tmp/test_tiles
    /tmp/test_tiles
"""

from __future__ import annotations

import platform
import shutil
import subprocess
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

HERE = Path(__file__).parent / "native"
NATIVE = Path(__file__).parents[2] / "src/onechip/kernels/cpu/native"
FLAGS = ["-O1", "-std=c++20", "-ffp-contract=off", "-fno-math-errno", "-Wall", "-Wextra", "-Werror"]


def compile_one(source: Path, folder: Path) -> Path:
    target = folder / f"{source.stem}.o"
    subprocess.run(["g++", *FLAGS, f"-I{NATIVE}", "-c", str(source), "-o", str(target)], check=True)
    return target


@pytest.mark.skipif(shutil.which("g++") is None, reason="there is no g++ to compile the test with")
@pytest.mark.skipif(platform.machine() != "x86_64", reason="the kernels are for x86-64")
def test_every_function_of_every_instruction_set_here(tmp_path: Path):
    sources = [*HERE.glob("test_tiles*.cc"), *NATIVE.glob("tiles*.cc")]
    with ThreadPoolExecutor(2) as pool:
        objects = list(pool.map(lambda source: compile_one(source, tmp_path), sources))
    program = tmp_path / "test_tiles"
    subprocess.run(["g++", *map(str, objects), "-o", str(program)], check=True)
    result = subprocess.run([str(program)], capture_output=True, text=True)
    assert result.returncode == 0, result.stdout + result.stderr
    assert "avx2: 0 failures" in result.stdout or "no AVX2" in result.stdout, result.stdout
