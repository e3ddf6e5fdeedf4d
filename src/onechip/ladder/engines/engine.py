"""What a ladder must know of an engine: what its short words mean, how it gets here, how it is launched."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

import msgspec

from onechip.ladder.engines.recipe import Recipe, busy, stamp
from onechip.ladder.host import Host
from onechip.ladder.records import Arm
from onechip.ladder.weights import Weights

VARIABLE = re.compile(r"[A-Z][A-Z0-9_]*=")
"""Begins a word of an arm's flags that is an environment variable, as in a shell."""


@dataclass(frozen=True, slots=True)
class Variant:
    """What the word behind the colon of `--engines NAME:WORD` means.

    Attributes:
        form: of the checkpoint that the engine is given, one of weights.FORMS; "" is MODEL as it is.
        flags: for the engine's command line, before those of `--arm`; NAME=VALUE is set in its environment.
        remark: what a reader must know of its numbers ("int8 activations"), shown in the report.
    """

    form: str = ""
    flags: tuple[str, ...] = ()
    remark: str = ""


@dataclass(frozen=True, slots=True)
class Start:
    """One start of an arm, as its engine is told of it.

    Attributes:
        arm: its flags are the variant's and the user's, and go last on the command line.
        checkpoint: folder or .gguf file in the arm's form.
        port: to listen on, at 127.0.0.1.
        cache: folder for compiled programs: empty for the cold start and kept for the warm one. An engine
            that keeps compiled programs must be told to keep them there and nowhere else.
        host: the machine; use all its threads.
        requests: the most that the ladder will have in flight at once.
        context: tokens, prompt and output together, that its longest request may need.
    """

    arm: Arm
    checkpoint: Path
    port: int
    cache: Path
    host: Host
    requests: int
    context: int


@dataclass(frozen=True, slots=True)
class Launch:
    """How to start an engine.

    Attributes:
        command: what is run; it must stay in the foreground.
        environment: set on top of the ladder's own.
        health: path that answers 200 when the server is up; its first real token is waited for in any case.
    """

    command: list[str]
    environment: dict[str, str] = field(default_factory=dict)
    health: str = "/health"


@dataclass(frozen=True, slots=True)
class Engine:
    """One engine.

    Attributes:
        name: in `--engines` and in Arm.engine.
        summary: one line.
        variants: word -> what it means; the first is meant where no word is given. Empty: takes no words.
        version: what is installed here, None if nothing is. Quick: it reads metadata and starts no engine.
        launch: how to start it; may raise EngineError. None for an engine that somebody else runs.
        recipe: how `ladder install` gets it here; None where it does not.
        install: what to do where there is no recipe, one sentence.
        home: the engine whose environment it runs in, "" for its own.
        own: makes the engine's own file of an arm's weights (arm, weights, say), where it reads no form of
            weights.FORMS; once, into the cache (weights.derive). Raises EngineError.
        obstacle: why it does not run on a machine, one sentence; None if it does.
        formats: of checkpoints that it takes. drafter: how it is given one, or "none". tools: whether it
            reads tool calls and by which flag. needs: patches and flags that it needs, by chip. A short
            phrase each, for `ladder list`.
    """

    name: str
    summary: str
    variants: Mapping[str, Variant]
    version: Callable[[], str | None]
    launch: Callable[[Start], Launch] | None
    recipe: Recipe | None = None
    install: str = ""
    home: str = ""
    own: Callable[[Arm, Weights, Callable[[str], None]], Weights] | None = None
    obstacle: Callable[[Host], str | None] = lambda host: None
    formats: str = ""
    drafter: str = "none"
    tools: str = "no"
    needs: str = "nothing"

    @property
    def state(self) -> str:
        """One of "installed", "being installed", "broken" (installed once, and not whole any more), "not
        installed"."""
        owner = self.home or self.name
        if self.version() is not None:
            return "installed"
        if busy(owner):
            return "being installed"
        return "broken" if stamp(owner) else "not installed"

    def hindrance(self, host: Host) -> str | None:
        """Why it cannot be started here and now, one sentence; None if it can."""
        if (obstacle := self.obstacle(host)) is not None:
            return f"{self.name} does not run here: {obstacle}"
        state = self.state
        if state == "installed":
            return None
        if state == "being installed":
            return f"{self.name} is being installed by another process: wait for it."
        if state == "broken":
            again = f"onechip ladder install --force {self.home or self.name}"
            return f"{self.name} is broken: files of its package are gone. Run: {again}"
        mend = self.install if self.recipe is None else f"Run: onechip ladder install {self.name}"
        return f"{self.name} is not installed. {mend}"


def launch(engine: Engine, start: Start) -> Launch:
    """How to start an engine; words like NAME=VALUE among the arm's flags go into its environment.

    Raises:
        EngineError: the engine cannot be started like that.
    """
    assert engine.launch is not None
    variables = dict(word.split("=", 1) for word in start.arm.flags if VARIABLE.match(word))
    flags = tuple(word for word in start.arm.flags if not VARIABLE.match(word))
    arm = msgspec.structs.replace(start.arm, flags=flags)
    found = engine.launch(replace(start, arm=arm))
    return replace(found, environment=found.environment | variables)
