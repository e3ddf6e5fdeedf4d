"""What several files' tests of the ladder begin with; some have others of these names."""

from __future__ import annotations

from pathlib import Path

import pytest

from onechip.ladder.report import write_report
from onechip.ladder.summary import Summary
from tests.ladder.made_ladder import slow_and_fast


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A checkpoint folder for engines that read none."""
    folder = tmp_path_factory.mktemp("model")
    (folder / "config.json").write_text("{}")
    return folder


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A made ladder of a slow arm and a fast one."""
    return slow_and_fast(tmp_path_factory.mktemp("ladder"))


@pytest.fixture(scope="module")
def summary(folder: Path) -> Summary:
    """Of `folder`, whose report is written."""
    return write_report(folder)
