"""`ladder install`: from nothing and once, on after a failure, and what is refused before it begins."""

from __future__ import annotations

import fcntl
import json
import os
import socket
import subprocess
import sys
import threading
import time
import zipfile
from collections import namedtuple
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import psutil
import pytest

from onechip.errors import InstallError, UsageError
from onechip.ladder import listing
from onechip.ladder.engines import ENGINES, install, locks, pythons, recipe
from onechip.ladder.engines.engine import Engine
from onechip.ladder.engines.locks import Lock
from onechip.ladder.engines.pip import Pip, clean, has_wheel
from onechip.ladder.engines.recipe import Build, Recipe
from onechip.ladder.host import this_host

PINS = tuple(f"part-{n}=={n}.0" for n in range(30))
STUB = f"""#!{sys.executable}
# Stands for an environment's python whose pip downloads: it fails at the pin that the file `broken` names.
import pathlib, re, sys
here, words = pathlib.Path(__file__).parent, sys.argv
folder = pathlib.Path(words[words.index("--dest") + 1])
for pin in [word for word in words if "==" in word]:
    name, version = pin.split("==")
    print(f"Collecting {{pin}}")
    if (here / "broken").exists() and (here / "broken").read_text() == pin:
        print(f"ERROR: No matching distribution found for {{pin}}")
        sys.exit(1)
    print("Progress 1000000 of 2000000")
    (folder / f"{{name.replace('-', '_')}}-{{version}}-py3-none-any.whl").write_bytes(b"")
with open(here / "asked", "a") as asked:
    asked.write(" ".join(word for word in words if "==" in word) + "\\n")
"""


def quiet(line: str) -> None:
    """Shows nothing."""


def peer(
    build: Build | None = None, check: tuple[str, ...] = ("-c", "import peer_core"), **more: object
) -> Engine:
    made = Recipe("peer", ("3.11", "3.12", "3.13"), 1000, 1000, check, build, "Do it by hand.")
    version: Callable[[], str | None] = lambda: recipe.installed("peer", "peer-core")  # noqa: E731
    return Engine("peer", "", {}, version, None, recipe=made, **more)  # type: ignore[arg-type]


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty cache; the lock of `peer` has one pin."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    lock = Lock("peer.txt", ("peer-core==1.5",), (), "abc")
    monkeypatch.setattr(locks, "read", lambda stem, platform: lock)
    return tmp_path / "cache" / "onechip" / "engines"


def wheel(folder: Path) -> None:
    """peer-core 1.5, one empty module."""
    info = "peer_core-1.5.dist-info"
    with zipfile.ZipFile(folder / "peer_core-1.5-py3-none-any.whl", "w") as file:
        file.writestr("peer_core.py", "")
        file.writestr(f"{info}/METADATA", "Metadata-Version: 2.1\nName: peer-core\nVersion: 1.5\n")
        file.writestr(f"{info}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        file.writestr(f"{info}/RECORD", "")


def test_from_nothing_once_and_away(cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A real environment, from a folder of wheels; our own PYTHONPATH does not get in."""
    (tmp_path / "ours").mkdir()
    (tmp_path / "ours" / "peer_core.py").write_text("raise SystemExit('ours was imported')")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path / "ours"))
    wheel(tmp_path)
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(tmp_path))
    said: list[str] = []
    engine = peer()
    assert engine.version() is None
    assert install.install(engine, said.append, said.append) is True
    assert engine.version() == "1.5"
    assert said[0].startswith("peer: about 0 MB to fetch and 0.0 GB of disk, made with ")
    assert {path.name for path in cache.iterdir()} == {"peer", "peer.lock", "peer.log"}
    assert recipe.stamp("peer")["lock_sha256"] == "abc"
    said.clear()
    assert install.install(engine, said.append, said.append) is False
    assert said == []
    assert install.uninstall("peer") is True
    assert list(cache.iterdir()) == []
    assert install.uninstall("peer") is False


@pytest.fixture
def stub(tmp_path: Path) -> Pip:
    program = tmp_path / "python"
    program.write_text(STUB)
    program.chmod(0o755)
    return Pip(program, tmp_path / "log")


def test_what_was_fetched_is_not_fetched_again(stub: Pip, tmp_path: Path) -> None:
    wheels, said = tmp_path / "wheels", list[str]()
    wheels.mkdir()
    (tmp_path / "broken").write_text("part-20==20.0")
    with pytest.raises(
        InstallError, match=r"No matching distribution found for part-20==20.0 \(all that pip"
    ):
        stub.fetch(PINS, wheels, ["https://index.example/simple"], said.append)
    assert [pin for pin in PINS if has_wheel(wheels, pin)] == list(PINS[:12])
    (tmp_path / "broken").unlink()
    stub.fetch(PINS, wheels, [], said.append)
    assert all(has_wheel(wheels, pin) for pin in PINS)
    asked = [line.split() for line in (tmp_path / "asked").read_text().splitlines()]
    assert [pin for batch in asked for pin in batch] == list(PINS)
    assert said[0] == "fetching 1 of 30: part-0"
    assert said[1] == "fetching 1 of 30: part-0, 1 of 2 MB"
    assert said[-2] == "fetching 30 of 30: part-29"


def packages() -> Path:
    return recipe.home("peer") / "lib" / "python3.11" / "site-packages"


class _Environment:
    """Stands for venv and pip: what `install` does with them, counted."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.done: list[str] = []
        monkeypatch.setattr(install, "_run", self.run)
        monkeypatch.setattr(install, "Pip", lambda python, log: self)

    def run(self, command: list[str], failure: str) -> None:
        making = "venv" in command
        self.done.append("environment" if making else "check")
        if making:
            Path(command[-1]).mkdir(parents=True)

    def upgrade(self) -> None:
        self.done.append("upgrade")

    def fetch(self, *_: object) -> None:
        self.done.append("fetch")

    def install(self, *_: object) -> None:
        self.done.append("install")
        info = packages() / "peer_core-1.5.dist-info"
        info.mkdir(parents=True)
        (info / "RECORD").write_text("peer_core/__init__.py,,\n../../../bin/peer,,\n")
        (packages() / "peer_core").mkdir()


def test_a_compiler_step_that_fails_goes_on_where_it_was(monkeypatch: pytest.MonkeyPatch) -> None:
    environment = _Environment(monkeypatch)
    fail = [True]

    def build(folder: Path, doing: Callable[[str], None]) -> None:
        assert folder == recipe.home("peer")
        if fail.pop():
            raise InstallError("no space left.")
        environment.done.append("build")

    engine = peer(Build("compiles peer", 7, (), build))
    said: list[str] = []
    with pytest.raises(InstallError, match="no space left"):
        install.install(engine, said.append, quiet)
    assert "peer: compiles peer, about 7 minutes on two cores." in said
    assert recipe.stamp("peer") == {}
    fail.append(False)
    assert install.install(engine, quiet, quiet) is True
    assert environment.done == ["environment", "upgrade", "fetch", "install", "build", "check"]
    assert install.install(engine, quiet, quiet) is False
    fail.append(False)
    assert install.install(engine, quiet, quiet, force=True) is True
    assert environment.done.count("install") == 2


@pytest.mark.parametrize("how", ["fails", "is interrupted"])
def test_an_engine_that_works_is_kept_until_the_new_one_is_complete(
    how: str, monkeypatch: pytest.MonkeyPatch, cache: Path
) -> None:
    environment = _Environment(monkeypatch)
    install.install(peer(), quiet, quiet)
    (recipe.home("peer") / "old").touch()

    def fetch(*_: object) -> None:
        assert not (recipe.home("peer") / "old").exists()
        raise InstallError("no network.") if how == "fails" else KeyboardInterrupt

    monkeypatch.setattr(environment, "fetch", fetch)
    said: list[str] = []
    with pytest.raises((InstallError, KeyboardInterrupt)):
        install.install(peer(), said.append, quiet, force=True)
    assert said[-1] == "peer: the one that is here is kept until the new one is complete"
    assert peer().version() == "1.5"
    assert (recipe.home("peer") / "old").exists()
    assert not (cache / "peer.before").exists()
    monkeypatch.setattr(environment, "fetch", lambda *_: None)
    assert install.install(peer(), quiet, quiet, force=True) is True
    assert not (recipe.home("peer") / "old").exists()
    assert not (cache / "peer.before").exists()


def test_an_engine_that_a_killed_installer_left_aside_is_put_back(
    monkeypatch: pytest.MonkeyPatch, cache: Path
) -> None:
    environment = _Environment(monkeypatch)
    install.install(peer(), quiet, quiet)
    recipe.home("peer").rename(cache / "peer.before")
    recipe.home("peer").mkdir()  # as far as the new one had come
    assert install.install(peer(), quiet, quiet) is False
    assert peer().version() == "1.5"
    assert environment.done.count("install") == 1


def test_an_engine_whose_package_is_gone_is_broken_and_installed_anew(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    _Environment(monkeypatch)
    install.install(peer(), quiet, quiet)
    assert peer().state == "installed"
    (packages() / "peer_core").rmdir()
    assert (peer().version(), peer().state) == (None, "broken")
    again = "peer is broken: files of its package are gone. Run: onechip ladder install --force peer"
    assert peer().hindrance(this_host()) == again
    assert listing.facts(peer(), this_host())["install"] == "onechip ladder install --force peer"
    assert install.install(peer(), quiet, quiet) is True
    assert peer().state == "installed"
    (recipe.home("peer") / recipe.STAMP).write_text("garbage")
    assert peer().state == "not installed"


def test_who_is_being_installed_is_not_removed_and_is_said_to_be(cache: Path) -> None:
    cache.mkdir(parents=True)
    with (cache / "peer.lock").open("w") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        assert peer().state == "being installed"
        assert "is being installed by another process: wait for it." in (peer().hindrance(this_host()) or "")
        with pytest.raises(InstallError, match="peer is being installed by another process: wait for it"):
            install.uninstall("peer")
    assert peer().state == "not installed"
    assert install.uninstall("peer") is False
    assert list(cache.iterdir()) == []


def test_an_index_that_cannot_be_reached(tmp_path: Path) -> None:
    """pip says in the end only that it has found nothing."""
    program = tmp_path / "python"
    broken = "NewConnectionError(\"HTTPConnection(host='x', port=9): [Errno 111] Connection refused\")"
    warning = f"WARNING: Retrying (Retry(total=0)) after connection broken by '{broken}': /simple/x/"
    said = f"print({warning!r})\nprint('ERROR: No matching distribution found for x==1')\nraise SystemExit(1)"
    program.write_text(f"#!{sys.executable}\n{said}\n")
    program.chmod(0o755)
    with pytest.raises(
        InstallError, match=r"the package index cannot be reached \(Connection refused\): check the network"
    ):
        Pip(program, tmp_path / "log").run(["download", "x==1"], quiet)


def test_a_killed_installer_leaves_nothing_that_runs() -> None:
    """Not even what its child started."""
    code = (
        "import os\nfrom onechip.ladder.engines.child import child\n"
        "with child(['sh', '-c', 'sleep 600 & echo $!; wait'], os.environ) as process:\n"
        "    print(process.stdout.readline(), flush=True)\n    process.stdout.readline()\n"
    )
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True) as installer:
        assert installer.stdout is not None
        sleeper = psutil.Process(int(installer.stdout.readline()))
        while sleeper.name() == "sh":  # forked, and not yet what it will be
            time.sleep(0.01)
        assert sleeper.name() == "sleep"
        installer.kill()
    sleeper.wait(20)


def test_other_pins_are_installed_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    environment = _Environment(monkeypatch)
    install.install(peer(), quiet, quiet)
    monkeypatch.setattr(locks, "read", lambda *_: Lock("peer.txt", ("peer-core==1.6",), (), "def"))
    assert install.install(peer(), quiet, quiet) is True
    assert environment.done.count("environment") == 2


def test_what_is_refused_before_anything_is_made(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(engine: Engine) -> str:
        with pytest.raises((InstallError, UsageError)) as caught:
            install.install(engine, quiet, quiet)
        assert not (cache / "peer").exists()
        return caught.value.message

    missing = Build("compiles peer", 1, ("no-such-compiler",), lambda folder, doing: None)
    assert "no-such-compiler cannot be found: install it with" in refused(peer(missing))
    assert refused(peer(obstacle=lambda host: "It wants a TPU.")) == "peer does not run here: It wants a TPU."
    plain = Engine("plain", "", {}, lambda: None, None, install="Build it yourself.")
    assert refused(plain) == "plain is not installed by onechip. Build it yourself."
    usage = namedtuple("usage", "total used free")
    monkeypatch.setattr(install.shutil, "disk_usage", lambda folder: usage(9, 9, 9))
    assert "0.0 GB free and 0.0 GB are needed for a while: free some, or set XDG_CACHE" in refused(peer())
    with (cache / "peer.lock").open("w") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        assert refused(peer()) == "peer is being installed by another process: wait for it."
    monkeypatch.setattr(locks, "read", lambda *_: None)
    assert f"peer has no lock for {this_host().platform} (there are: none yet). Do it by" in refused(peer())


def test_a_python_that_works_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """pyenv's shims are on the PATH and fail; its versions work."""
    shim, real = tmp_path / "bin" / "python3.97", tmp_path / "versions" / "3.97.1" / "bin" / "python3.97"
    for path, text in ((shim, "exit 127"), (real, "echo 3.97")):
        path.parent.mkdir(parents=True)
        path.write_text(f"#!/bin/sh\n{text}\n")
        path.chmod(0o755)
    monkeypatch.setenv("PATH", f"{shim.parent}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.setenv("PYENV_ROOT", str(tmp_path))
    assert pythons.find_python(("3.99", "3.97")) == real
    with pytest.raises(
        InstallError, match=r"Python 3\.99 or 3\.98 with its venv module is needed .* apt install"
    ):
        pythons.find_python(("3.99", "3.98"))


def test_the_environment_of_an_engine_has_nothing_of_ours() -> None:
    theirs = {"PIP_INDEX_URL": "https://mirror", "PATH": "/bin"}
    assert clean(theirs | {"PYTHONPATH": "src", "VIRTUAL_ENV": "/us", "PIP_TARGET": "/elsewhere"}) == theirs


def test_a_stamp_that_is_torn_counts_as_none(cache: Path) -> None:
    (cache / "peer").mkdir(parents=True)
    (cache / "peer" / recipe.STAMP).write_text(json.dumps({"lock": "x"})[:5])
    assert recipe.stamp("peer") == {}


def test_an_index_that_answers_is_used() -> None:
    class Refusing(BaseHTTPRequestHandler):
        def do_HEAD(self) -> None:
            self.send_error(403)

        def log_message(self, *_: object) -> None:
            pass

    with socket.socket() as mute, HTTPServer(("127.0.0.1", 0), Refusing) as server:
        mute.bind(("127.0.0.1", 0))  # so that nobody else can listen there
        thread = threading.Thread(target=server.handle_request)
        thread.start()
        assert locks.reachable(f"http://127.0.0.1:{server.server_port}/whl/cpu")
        thread.join()
        assert not locks.reachable(f"http://127.0.0.1:{mute.getsockname()[1]}/whl/cpu")
    assert not locks.reachable("no URL")


def test_locks_that_ship(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every pin is exact and stands once; an engine to install has a lock, or says what to do without."""
    monkeypatch.undo()
    for engine in ENGINES.values():
        if engine.recipe is None:
            continue
        platforms = locks.platforms(engine.recipe.lock)
        assert platforms or engine.recipe.elsewhere, engine.name
        for platform in platforms:
            lock = locks.read(engine.recipe.lock, platform)
            assert lock is not None
            names = [locks.normal(pin.partition("==")[0]) for pin in lock.pins]
            assert all(pin.count("==") == 1 for pin in lock.pins), lock.name
            assert len(set(names)) == len(names), lock.name
