"""The `onechip` command with one more engine: `--arm "NAME = mock BEHAVIOUR"`, the behaviour as JSON."""

from __future__ import annotations

import sys
from pathlib import Path

from onechip import cli
from onechip.ladder.engines import ENGINES
from onechip.ladder.engines.engine import Engine, Launch
from onechip.ladder.records import Arm
from tests.ladder import mock_engine


def _launch(arm: Arm, port: int, cache: Path) -> Launch:
    (cache / "compiled").touch()
    return Launch([sys.executable, mock_engine.__file__, str(port), *arm.flags])


MOCK = Engine("mock", "scripted", lambda: "1", "", lambda word: (word,), _launch)

if __name__ == "__main__":
    ENGINES["mock"] = MOCK
    cli.main()
