"""`onechip ladder list | install | uninstall`: what engines there are, and how they get here and go."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console
from rich.live import Live
from rich.text import Text

from onechip.errors import UsageError

if TYPE_CHECKING:
    from onechip.ladder.engines.engine import Engine

_Names = Annotated[list[str], typer.Argument(metavar="ENGINE...", help="Engines by name, see list.")]
PIPE_S = 15.0
"""How often progress is printed where there is no terminal."""


def install(
    names: _Names,
    force: Annotated[bool, typer.Option("--force", help="Install anew what is installed.")] = False,
) -> None:
    """Install engines, each into an environment of its own; the same command goes on after a kill."""
    from onechip.ladder.engines.install import install as install_one

    for engine in [_owner(_engine(name)) for name in names]:
        progress = Progress(Console())
        with progress:
            fresh = install_one(engine, progress.say, progress.doing, force=force)
        version = engine.version()
        if fresh:
            progress.say(f"{engine.name} {version} is installed ({progress.seconds:.0f} s).")
        else:
            progress.say(f"{engine.name} {version} is installed already; --force installs it anew.")


def uninstall(names: _Names) -> None:
    """Remove engines that `install` brought, and everything that was fetched for them."""
    from onechip.ladder.engines.install import uninstall as uninstall_one

    for engine in [_engine(name) for name in names]:
        if engine.home:
            raise UsageError(f"{engine.name} runs in the environment of {engine.home}: uninstall that.")
        if engine.recipe is None:
            raise UsageError(f"{engine.name} is not installed by onechip.")
        found = uninstall_one(engine.name)
        print(f"{engine.name} {'is removed.' if found else 'was not installed.'}")


def list_(
    as_json: Annotated[bool, typer.Option("--json", help="As JSON.")] = False,
) -> None:
    """Say which jobs there are, and of each engine whether it is installed, runs here, and what it takes."""
    from onechip.ladder.listing import show, show_json

    if as_json:
        show_json()
    else:
        show(Console())


def _engine(name: str) -> Engine:
    from onechip.ladder.engines import ENGINES

    if name not in ENGINES:
        raise UsageError(f"There is no engine {name!r}; there are {', '.join(ENGINES)}.")
    return ENGINES[name]


def _owner(engine: Engine) -> Engine:
    """The engine whose environment it runs in: mostly its own."""
    return _engine(engine.home) if engine.home else engine


class Progress:
    """Lines that stay, and one that changes; where there is no terminal, that one is printed now and then.

    Attributes:
        seconds: since it was made.
    """

    def __init__(self, console: Console) -> None:
        self.console = console
        self._live = Live(console=console, transient=True, refresh_per_second=4)
        self._began = self._printed = time.monotonic()

    def __enter__(self) -> Progress:
        if self.console.is_terminal:
            self._live.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._live.stop()

    @property
    def seconds(self) -> float:
        return time.monotonic() - self._began

    def say(self, text: str) -> None:
        self.console.print(text, highlight=False, markup=False, soft_wrap=True)

    def doing(self, text: str) -> None:
        if self.console.is_terminal:
            self._live.update(Text(f"... {text}  {self.seconds:.0f} s", style="dim", overflow="ellipsis"))
        elif time.monotonic() - self._printed >= PIPE_S:
            self._printed = time.monotonic()
            self.say(f"... {text}  {self.seconds:.0f} s")
