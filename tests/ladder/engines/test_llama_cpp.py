"""llama.cpp's command line, and which version is found."""

from __future__ import annotations

from pathlib import Path

import pytest

from onechip.errors import EngineError
from onechip.ladder.engines import recipe
from onechip.ladder.engines.engine import Start
from onechip.ladder.engines.llama_build import SERVER, VERSION
from onechip.ladder.engines.llama_cpp import ENGINE
from onechip.ladder.host import Host
from onechip.ladder.records import Arm

LINUX = Host("linux", "x86_64", "cpu", 6, 16 << 30)
MAC = Host("darwin", "aarch64", "cpu", 8, 16 << 30)


@pytest.fixture
def installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An environment with a finished server."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    server = recipe.home("llama.cpp") / f"llama.cpp-{VERSION}" / SERVER
    server.parent.mkdir(parents=True)
    server.touch()
    (recipe.home("llama.cpp") / recipe.STAMP).write_text('{"lock": "x"}')
    return server


def start(host: Host, *flags: str, requests: int = 4, context: int = 300) -> Start:
    arm = Arm("llama.cpp", "llama.cpp", "acorn", flags)
    return Start(arm, Path("/x/acorn.gguf"), 1234, Path("/cache"), host, requests, context)


def after(command: list[str], flag: str) -> str:
    return command[command.index(flag) + 1]


def test_each_request_has_whole_pages_of_cache(installed: Path) -> None:
    assert ENGINE.launch is not None
    command = ENGINE.launch(start(LINUX)).command
    assert command[0] == str(installed)
    assert after(command, "-m") == "/x/acorn.gguf"
    assert after(command, "--port") == "1234"
    assert after(command, "-np") == "4"
    assert after(command, "-c") == str(4 * 512)
    assert after(command, "-t") == after(command, "-tb") == "6"
    assert ENGINE.launch(start(LINUX, context=512)).command == command


def test_the_users_flags_come_last(installed: Path) -> None:
    assert ENGINE.launch is not None
    assert ENGINE.launch(start(LINUX, "-t", "1")).command[-2:] == ["-t", "1"]


def test_huge_pages_are_asked_for_where_glibc_is(installed: Path) -> None:
    assert ENGINE.launch is not None
    assert ENGINE.launch(start(LINUX)).environment == {"GLIBC_TUNABLES": "glibc.malloc.hugetlb=1"}
    assert ENGINE.launch(start(MAC)).environment == {}


def test_the_version_is_that_of_a_finished_installation(installed: Path) -> None:
    assert ENGINE.version() == VERSION
    (recipe.home("llama.cpp") / recipe.STAMP).unlink()
    assert ENGINE.version() is None


def test_what_is_not_installed_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert ENGINE.launch is not None
    with pytest.raises(EngineError, match=r"onechip ladder install llama\.cpp"):
        ENGINE.launch(start(LINUX))
