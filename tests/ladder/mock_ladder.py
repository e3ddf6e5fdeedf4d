"""The `onechip` command with one more engine: `--arm "NAME = mock BEHAVIOUR"`, the behaviour as JSON.

Its canary sits still, busy.NOISE is overlooked, and engines may take longer to die: the machine that tests is
busy.
"""

from __future__ import annotations

import sys

from onechip import cli
from onechip.ladder import arm_run, run
from onechip.ladder.engines import ENGINES
from onechip.ladder.engines.engine import Engine, Launch, Start, Variant
from tests.ladder import busy, mock_engine
from tests.ladder.canaries import Scripted


def _launch(start: Start) -> Launch:
    (start.cache / "compiled").touch()
    return Launch([sys.executable, mock_engine.__file__, str(start.port), *start.arm.flags])


MOCK = Engine("mock", "scripted", {"plain": Variant()}, lambda: "1", _launch)

if __name__ == "__main__":
    ENGINES["mock"] = MOCK
    busy.overlook(setattr)
    arm_run.DEATH_S = 5.0
    run.Canary = lambda cores: Scripted()  # type: ignore[assignment,misc]
    cli.main()
