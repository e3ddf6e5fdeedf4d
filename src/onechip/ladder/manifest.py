"""What ran, on what, from what: the options of a ladder and the facts of its machine in, manifest.json out.

With the journal it is all that a report is made from. It is written atomically.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import msgspec

import onechip
from onechip.errors import LadderError
from onechip.ladder.disk import writing
from onechip.ladder.plan import Plan
from onechip.ladder.records import TIMING_VERSION

NAME = "manifest.json"
RETIRED = ("one_repeats",)
"""Options of earlier versions that nothing reads any more; ladders that were run with them still report."""


class Failure(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One thing that went wrong with an arm.

    Attributes:
        during: what it was doing ("start cold", "sweep 128/512 at 64, repeat 3").
        what: one sentence.
        log: the last lines that the engine had written, empty where the ladder did not start it.
    """

    during: str
    what: str
    log: tuple[str, ...] = ()


class Visit(msgspec.Struct, forbid_unknown_fields=True):
    """One start of an arm, or, of an arm by URL, one time that it was asked.

    Attributes:
        block: Cell.block of what was measured.
        started_at: wall clock, ISO 8601 UTC.
        waited_s: cool-down before it. rested: whether the machine was as idle and as cool as before the
            ladder when it ended; None where nothing was waited for.
        state: of the machine just before (state.look).
        finished: everything of this block was measured.
    """

    block: int
    started_at: str
    waited_s: float = 0.0
    rested: bool | None = None
    state: dict[str, float] = {}
    finished: bool = False


class ArmManifest(msgspec.Struct, forbid_unknown_fields=True):
    """One arm as it was run.

    Attributes:
        version: what the engine says of itself.
        command, environment: exact command line of the newest start, and the variables that bear on an
            engine (machine.engine_variables) with those that the ladder set.
        checkpoint: file name -> SHA-256, of the files that it serves.
        weights: how these were made from MODEL (weights.Weights without the hashes); empty before its start.
        probe: what the engine can do (probe.Features as a dict).
        notes: what a reader must know of it, one sentence each (a job left out, memory that is not back).
        failures: what went wrong, in order.
        visits: its starts, in order.
        finished: all its cells are in the journal.
    """

    name: str
    version: str = "not available"
    command: list[str] = []
    environment: dict[str, str] = {}
    checkpoint: dict[str, str] = {}
    weights: dict[str, Any] = {}
    probe: dict[str, Any] = {}
    notes: list[str] = []
    failures: list[Failure] = []
    visits: list[Visit] = []
    finished: bool = False


class Manifest(msgspec.Struct, forbid_unknown_fields=True):
    """The whole ladder.

    Attributes:
        started_at: wall clock, ISO 8601 UTC. resumed_at: the same for each resume. finished_at: None while it
            is not.
        shapes: the sweep's shapes as run, decided by the first arm that started; empty before that.
        requests: in a cell of the sweep, by shape and level, decided with the shapes.
        design: order, repeats and the rule by which they are added, as said before the ladder began.
        rest: the machine before it began (state.Rest as a dict), to which it cools down between two starts.
        source: file name -> SHA-256 of MODEL's files; empty where every arm is a running server.
        prompts: prompt set -> SHA-256 over all its prompts, in order.
        data: question set -> {"sha256", "questions", "source"}.
        scorers: scorer -> version.
        notes: what a reader must know (--quick, scaled shapes), one sentence each.
    """

    plan: Plan
    started_at: str
    onechip: dict[str, str] = {}
    machine: dict[str, str] = {}
    timing_version: int = TIMING_VERSION
    resumed_at: list[str] = []
    finished_at: str | None = None
    arms: list[ArmManifest] = []
    shapes: list[tuple[int, int]] = []
    requests: dict[str, int] = {}
    design: list[str] = []
    rest: dict[str, float] = {}
    source: dict[str, str] = {}
    prompts: dict[str, str] = {}
    data: dict[str, dict[str, Any]] = {}
    scorers: dict[str, int] = {}
    notes: list[str] = []

    def arm(self, name: str) -> ArmManifest:
        """The entry of an arm; made on first use."""
        for entry in self.arms:
            if entry.name == name:
                return entry
        self.arms.append(ArmManifest(name))
        return self.arms[-1]


def save(manifest: Manifest, folder: Path) -> None:
    """Writes manifest.json so that a kill leaves either the old or the new one.

    Raises:
        LadderError: the disk is full.
    """
    target = folder / NAME
    fresh = target.with_suffix(".json.new")
    with writing(target, folder), fresh.open("wb") as file:
        file.write(msgspec.json.format(msgspec.json.encode(manifest), indent=2) + b"\n")
        file.flush()
        os.fsync(file.fileno())
    fresh.replace(target)


def load(folder: Path) -> Manifest:
    """Reads manifest.json.

    Raises:
        LadderError: there is none, or it was not written by this version.
    """
    path = folder / NAME
    try:
        found = msgspec.json.decode(path.read_bytes(), type=dict[str, Any])
        if isinstance(plan := found.get("plan"), dict):
            found["plan"] = {name: value for name, value in plan.items() if name not in RETIRED}
        return msgspec.convert(found, Manifest)
    except (FileNotFoundError, NotADirectoryError):
        raise LadderError(f"{folder} is not a results folder: it holds no {NAME}.") from None
    except msgspec.DecodeError as error:
        raise LadderError(f"{path} cannot be read by onechip {onechip.__version__}: {error}.") from None
