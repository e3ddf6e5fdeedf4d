"""LiteRT-LM: the export's command, made once, and the folder of models that its server reads."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from onechip.errors import EngineError
from onechip.ladder.engines import recipe
from onechip.ladder.engines.engine import Start
from onechip.ladder.engines.litert_lm import ENGINE
from onechip.ladder.host import Host
from onechip.ladder.records import Arm
from onechip.ladder.weights import Weights

CPU = Host("linux", "x86_64", "cpu", 6, 16 << 30)
GPU = Host("linux", "x86_64", "cuda", 6, 16 << 30, "NVIDIA L4", (8, 9))
FAKE_PYTHON = """#!/bin/sh
echo "$@" >> "{calls}"
case "$*" in *broken*) echo "the exporter knows no such model"; exit 3;; esac
echo made > "$4"
"""


@pytest.fixture
def calls(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An environment whose interpreter writes down how it was called and makes the file."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    python, calls = recipe.python("litert-lm"), tmp_path / "calls"
    python.parent.mkdir(parents=True)
    python.write_text(FAKE_PYTHON.format(calls=calls))
    python.chmod(0o755)
    return calls


def arm(*flags: str) -> Arm:
    return Arm("litert-lm", "litert-lm", "acorn", flags)


def weights(folder: Path, context: int = 2048) -> Weights:
    folder.mkdir(exist_ok=True)
    (folder / "config.json").write_text(json.dumps({"max_position_embeddings": context}))
    return Weights(str(folder), "bf16", hashes={"model.safetensors": "ab"})


def made(arm: Arm, weights: Weights) -> Weights:
    assert ENGINE.own is not None
    return ENGINE.own(arm, weights, lambda line: None)


def test_weights_are_exported_once(calls: Path, tmp_path: Path) -> None:
    given = weights(tmp_path / "acorn")
    first, second = made(arm(), given), made(arm(), given)
    assert first == second
    assert Path(first.path).read_text() == "made\n"
    assert first.form == "litertlm float32"
    assert list(first.hashes) == ["model.litertlm"]
    assert len(calls.read_text().splitlines()) == 1
    assert "--context 2048" in calls.read_text()
    assert first.command[-1] == "32,128"
    assert first.path in first.command


def test_another_quantisation_is_another_file(calls: Path, tmp_path: Path) -> None:
    given = weights(tmp_path / "acorn", context=131072)
    plain, int8 = made(arm(), given), made(arm("--recipe", "dynamic_wi8_afp32"), given)
    assert plain.path != int8.path
    assert int8.form == "litertlm dynamic_wi8_afp32"
    assert calls.read_text().count("--context 4096") == 2


def test_a_failed_export_leaves_nothing_and_says_why(calls: Path, tmp_path: Path) -> None:
    given = weights(tmp_path / "broken")
    for _ in range(2):
        with pytest.raises(EngineError, match="knows no such model") as failure:
            made(arm(), given)
        assert failure.value.log == ("the exporter knows no such model",)
    assert len(calls.read_text().splitlines()) == 2
    assert list((tmp_path / "cache" / "onechip" / "weights").iterdir()) == []


def test_an_exported_file_is_served_as_it_is(calls: Path) -> None:
    given = Weights("/x/gemma.litertlm", hashes={"gemma.litertlm": "cd"})
    assert made(arm(), given) is given
    assert not calls.exists()


@pytest.mark.parametrize("flags", [("--threads", "2"), ("--recipe",), ("--recipe", "a", "b")])
def test_flags_that_the_server_lacks_are_refused(calls: Path, tmp_path: Path, flags: tuple[str, ...]) -> None:
    with pytest.raises(EngineError, match="takes --recipe"):
        made(arm(*flags), weights(tmp_path / "acorn"))


@pytest.mark.parametrize(
    ("host", "settings"),
    [(CPU, {"backend": "cpu", "cpu_thread_count": 6}), (GPU, {"backend": "gpu"})],
)
def test_the_server_finds_the_model_under_the_ladders_name(
    calls: Path, tmp_path: Path, host: Host, settings: dict[str, object]
) -> None:
    file = tmp_path / "model.litertlm"
    file.write_text("made")
    cache = tmp_path / "start"
    assert ENGINE.launch is not None
    how = Start(Arm("a", "litert-lm", "google/gemma"), file, 1234, cache, host, 4, 300)
    for _ in range(2):
        found = ENGINE.launch(how)
    assert found.environment == {"LITERT_LM_DIR": str(cache)}
    assert found.command[1:] == ["serve", "--host", "127.0.0.1", "--port", "1234"]
    assert (cache / "models" / "google--gemma" / "model.litertlm").read_text() == "made"
    assert json.loads((cache / "config.json").read_text()) == {"default": settings}
