"""What LiteRT-LM's export needs mended, over modules that stand in for the exporter."""

from __future__ import annotations

import importlib
import importlib.util
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

import onechip.ladder.engines

FRONT = Path(onechip.ladder.engines.__file__).parent / "fronts" / "litert_export.py"
EXPORTER = "litert_torch.generative.export_hf"
MENDED = ("tensorflow", "tensorflow.lite", "tensorflow.lite.python")


class TextModel:
    """The exporter's own Gemma 4."""


def put(monkeypatch: pytest.MonkeyPatch, name: str, **inside: Any) -> ModuleType:
    """A module and the packages above it."""
    above = name.split(".")
    for depth in range(1, len(above)):
        monkeypatch.setitem(sys.modules, ".".join(above[:depth]), ModuleType(above[depth - 1]))
    module = ModuleType(name)
    vars(module).update(inside)
    monkeypatch.setitem(sys.modules, name, module)
    return module


@pytest.fixture
def front(monkeypatch: pytest.MonkeyPatch) -> Any:
    schema = ModuleType("schema")
    put(monkeypatch, "ai_edge_litert", schema_py_generated=schema)
    for name in (*MENDED, f"{MENDED[-1]}.schema_py_generated"):
        # So that they are taken away again after the test.
        monkeypatch.setitem(sys.modules, name, ModuleType(name))
    spec = importlib.util.spec_from_file_location("front_litert_export", FRONT)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def exporter(monkeypatch: pytest.MonkeyPatch, files: int) -> list[dict[str, Any]]:
    """An exporter that writes so many files and keeps what it was asked."""
    asked: list[dict[str, Any]] = []

    def export(output_dir: str, **options: Any) -> None:
        # What the real one does first; it fails where nothing stands in for TensorFlow.
        schema = importlib.import_module("tensorflow.lite.python.schema_py_generated")
        assert importlib.import_module("tensorflow.lite.python").schema_py_generated is schema
        assert importlib.util.find_spec("tensorflow") is not None
        asked.append(options)
        for number in range(files):
            (Path(output_dir) / f"{number}.litertlm").write_text("exported")

    put(monkeypatch, f"{EXPORTER}.export", export=export)
    patch = ModuleType("patch")
    vars(patch).update(LiteRTGemma4TextModel=TextModel)
    put(monkeypatch, f"{EXPORTER}.model_ext.gemma4", patch=patch)
    return asked


def call(front: Any, monkeypatch: pytest.MonkeyPatch, *words: str) -> None:
    monkeypatch.setattr(sys, "argv", ["litert_export.py", *words])
    front.main()


def test_the_one_file_is_put_where_it_was_asked_for(
    front: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = exporter(monkeypatch, files=1)
    target = tmp_path / "model.litertlm"
    call(front, monkeypatch, "/x/acorn", str(target), "--context", "2048", "--prefill", "32,128")
    assert target.read_text() == "exported"
    assert list(tmp_path.iterdir()) == [target]
    assert asked == [
        {
            "model": "/x/acorn",
            "prefill_lengths": [32, 128],
            "cache_length": 2048,
            "quantization_recipe": "none",
        }
    ]
    assert vars(TextModel)["_can_set_experts_implementation_cached_value"] is True


def test_a_recipe_is_passed_on(front: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = exporter(monkeypatch, files=1)
    call(front, monkeypatch, "/x/acorn", str(tmp_path / "m"), "--recipe", "dynamic_wi8_afp32")
    assert asked[0]["quantization_recipe"] == "dynamic_wi8_afp32"


def test_an_export_without_a_file_fails(front: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    exporter(monkeypatch, files=0)
    with pytest.raises(SystemExit, match="made 0"):
        call(front, monkeypatch, "/x/acorn", str(tmp_path / "m"))
