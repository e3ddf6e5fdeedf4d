"""The results folder: what is moved aside, and what is not gone on with."""

from __future__ import annotations

from pathlib import Path

import pytest

from onechip.errors import LadderError
from onechip.ladder import folder as folders
from onechip.ladder import manifest as manifests
from onechip.ladder.plan import Plan
from onechip.ladder.records import Arm


def test_a_finished_ladder_is_moved_aside_and_an_unfinished_one_is_not(tmp_path: Path) -> None:
    out = tmp_path / "out"
    plan = Plan("none", (Arm("a", "openai", "none", url="http://127.0.0.1:1/v1"),))
    manifest = folders.create(out, plan)
    with pytest.raises(LadderError, match=r"holds an unfinished ladder\. Go on with: onechip ladder resume"):
        folders.make_room(out)
    manifest.finished_at = manifest.started_at
    manifests.save(manifest, out)
    aside = folders.make_room(out)
    assert aside is not None
    assert manifests.load(aside) == manifest
    assert not out.exists()
    (tmp_path / "thesis.tex").touch()
    with pytest.raises(LadderError, match="is not empty and holds no ladder"):
        folders.make_room(tmp_path)


def test_a_changed_checkpoint_is_refused(tmp_path: Path) -> None:
    model = tmp_path / "model"
    model.mkdir()
    (model / "config.json").write_text("{}")
    plan = Plan(str(model), (Arm("a", "onechip", str(model)),), jobs=("one",))
    folders.create(tmp_path / "out", plan)
    assert folders.reopen(tmp_path / "out").arms[0].checkpoint.keys() == {"config.json"}
    (model / "config.json").write_text("{ }")
    with pytest.raises(LadderError, match=r"has changed since the ladder in .* began \(config.json\)"):
        folders.reopen(tmp_path / "out")
