"""`ladder install`: an engine's recipe in, a finished environment of its own in the cache out.

Three stages, each of which goes on where a kill left it: the environment, the wheels, the compiler step where
there is one. The stamp is written last, so what has a stamp works. An engine that is installed anew stands
aside until the new one is complete. An environment knows its own path, so it is made where it will stand.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import shutil
import time
from collections.abc import Iterator
from pathlib import Path

from onechip.errors import InstallError, UsageError
from onechip.ladder.engines import locks
from onechip.ladder.engines.child import child
from onechip.ladder.engines.engine import Engine
from onechip.ladder.engines.pip import Pip, Say, clean
from onechip.ladder.engines.pythons import find_python
from onechip.ladder.engines.recipe import STAMP, Recipe, home, mutex, python, stamp
from onechip.ladder.host import Host, this_host

READY = "packages.done"
"""In an environment whose wheels are all in: only the compiler step and the check are left."""


def install(engine: Engine, say: Say, doing: Say, *, force: bool = False) -> bool:
    """Installs an engine; False if it was here already, with the pins of today.

    Args:
        say: shows a line that stays. doing: shows a line that the next one replaces.

    Raises:
        UsageError: there is nothing to install.
        InstallError: it cannot be installed here, or a step failed; the same command goes on.
    """
    recipe = engine.recipe
    if recipe is None:
        raise UsageError(f"{engine.name} is not installed by onechip. {engine.install}")
    lock = _lock(engine, recipe, this_host())
    folder = home(engine.name)
    folder.parent.mkdir(parents=True, exist_ok=True)
    with _alone(engine.name):
        if not force and _there(engine, lock):
            return False
        began = time.monotonic()
        interpreter = find_python(recipe.python)
        _say_first(engine.name, recipe, interpreter, say)
        _check_room(recipe, folder.parent)
        _check_tools(engine.name, recipe)
        if force or stamp(engine.name):
            _set_aside(engine, say)
        with _kept(engine.name):
            _packages(engine.name, interpreter, lock, doing)
            if recipe.build is not None:
                say(f"{engine.name}: {recipe.build.what}")
                recipe.build.run(folder, doing)
            doing("trying it")
            _prove(engine.name, recipe)
            _write_stamp(engine.name, lock, interpreter, time.monotonic() - began)
        shutil.rmtree(_wheels(engine.name), ignore_errors=True)
    return True


def _there(engine: Engine, lock: locks.Lock) -> bool:
    """Whether the engine is here, whole and with these pins; one that a killed installation left aside is put
    back first."""
    if not stamp(engine.name) and _aside(engine.name).exists():
        _put_back(engine.name)
    return stamp(engine.name).get("lock_sha256") == lock.sha256 and engine.version() is not None


def _set_aside(engine: Engine, say: Say) -> None:
    """Moves an engine that works out of the way of the new one, and removes one that does not."""
    if engine.version() is None:
        shutil.rmtree(home(engine.name), ignore_errors=True)
        return
    say(f"{engine.name}: the one that is here is kept until the new one is complete")
    shutil.rmtree(_aside(engine.name), ignore_errors=True)
    home(engine.name).rename(_aside(engine.name))


@contextlib.contextmanager
def _kept(name: str) -> Iterator[None]:
    """Around the making of an environment: the one that stands aside comes back if that fails."""
    try:
        yield
    except BaseException:
        if _aside(name).exists():
            _put_back(name)
        raise
    shutil.rmtree(_aside(name), ignore_errors=True)


def _put_back(name: str) -> None:
    shutil.rmtree(home(name), ignore_errors=True)
    _aside(name).rename(home(name))


def uninstall(name: str) -> bool:
    """Removes an engine's environment, what was fetched for it and its log; False if nothing was there.

    Raises:
        InstallError: it is being installed.
    """
    everything = (home(name), _aside(name), _wheels(name), _log(name))
    if not any(path.exists() for path in (*everything, mutex(name))):
        return False
    with _alone(name):
        found = [path for path in everything if path.exists()]
        for path in found:
            if path.is_dir():
                shutil.rmtree(path)
            else:
                path.unlink()
        mutex(name).unlink(missing_ok=True)
    return bool(found)


def _lock(engine: Engine, recipe: Recipe, host: Host) -> locks.Lock:
    obstacle = engine.obstacle(host)
    if obstacle is not None:
        raise InstallError(f"{engine.name} does not run here: {obstacle}")
    lock = locks.read(recipe.lock, host.platform)
    if lock is None:
        known = ", ".join(locks.platforms(recipe.lock)) or "none yet"
        raise InstallError(
            f"{engine.name} has no lock for {host.platform} (there are: {known}). {recipe.elsewhere}".strip()
        )
    return lock


def _say_first(name: str, recipe: Recipe, interpreter: Path, say: Say) -> None:
    fetched, taken = recipe.download_bytes / 1e6, recipe.disk_bytes / 1e9
    say(f"{name}: about {fetched:.0f} MB to fetch and {taken:.1f} GB of disk, made with {interpreter}")
    say(f"{name}: into {home(name)}")
    if recipe.build is not None:
        say(f"{name}: {recipe.build.what}, about {recipe.build.minutes} minutes on two cores.")


def _check_room(recipe: Recipe, folder: Path) -> None:
    build = 0 if recipe.build is None else recipe.build.disk_bytes
    needed = recipe.download_bytes + recipe.disk_bytes + build
    free = shutil.disk_usage(folder).free
    if free < needed:
        raise InstallError(
            f"{folder} has {free / 1e9:.1f} GB free and {needed / 1e9:.1f} GB are needed for a while: free"
            " some, or set XDG_CACHE_HOME to a folder on a larger disk."
        )


def _check_tools(name: str, recipe: Recipe) -> None:
    tools = () if recipe.build is None else recipe.build.tools
    missing = [tool for tool in tools if shutil.which(tool) is None]
    if missing:
        raise InstallError(
            f"{name} is compiled here and {', '.join(missing)} cannot be found: install it with your system's"
            f" packages (Debian, Ubuntu: apt install {' '.join(missing)}), then run the same command again."
        )


def _packages(name: str, interpreter: Path, lock: locks.Lock, doing: Say) -> None:
    """The environment with all wheels in it; what is half done from before is begun anew, wheels are kept."""
    folder, wheels = home(name), _wheels(name)
    ready = folder / READY
    if ready.is_file() and ready.read_text() == lock.sha256:
        return
    shutil.rmtree(folder, ignore_errors=True)
    doing("making the environment")
    _run([str(interpreter), "-I", "-m", "venv", str(folder)], f"{name}: the environment cannot be made")
    pip = Pip(python(name), _log(name))
    pip.upgrade()
    wheels.mkdir(parents=True, exist_ok=True)
    indexes = [index for index in lock.indexes if locks.reachable(index)]
    pip.fetch(lock.pins, wheels, indexes, doing)
    pip.install(lock.pins, wheels, doing)
    ready.write_text(lock.sha256)


def _prove(name: str, recipe: Recipe) -> None:
    _run([str(python(name)), "-I", *recipe.check], f"{name} was installed and does not work")


def _run(command: list[str], failure: str) -> None:
    try:
        with child(command, clean()) as process:
            said = process.communicate()[0]
    except OSError as error:
        raise InstallError(f"{failure}: {error}.") from None
    if process.returncode != 0:
        lines = said.strip().splitlines() or ["it said nothing"]
        raise InstallError(f"{failure}: {lines[-1].strip()[:300]}")


def _write_stamp(name: str, lock: locks.Lock, interpreter: Path, seconds: float) -> None:
    facts = {
        "lock": lock.name,
        "lock_sha256": lock.sha256,
        "python": str(interpreter),
        "seconds": f"{seconds:.0f}",
    }
    fresh = home(name) / f"{STAMP}.new"
    fresh.write_text(json.dumps(facts, indent=2) + "\n")
    fresh.replace(home(name) / STAMP)


@contextlib.contextmanager
def _alone(name: str) -> Iterator[None]:
    """One process at a time installs or removes an engine; the system lets go of the lock however it ends."""
    with mutex(name).open("w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            held = os.path.samestat(os.fstat(file.fileno()), mutex(name).stat())
        except OSError:
            held = False  # or removed with the engine between the two calls
        if not held:
            raise InstallError(f"{name} is being installed by another process: wait for it.")
        yield


def _aside(name: str) -> Path:
    """Where an engine stands while it is installed anew."""
    return home(name).with_name(f"{name}.before")


def _wheels(name: str) -> Path:
    return home(name).with_name(f"{name}.wheels")


def _log(name: str) -> Path:
    return home(name).with_name(f"{name}.log")
