"""Conversions to Q8_0: dense weights rounded as the gguf package rounds, quantised ones to the bit."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from gguf import GGMLQuantizationType, quants

from onechip.convert.convert import convert, form_of
from onechip.convert.source import Source
from onechip.errors import UsageError
from onechip.kernels.api import Int8
from onechip.models.layout import expected_tensors
from onechip.models.leaf import expand
from tests.convert.made import FAMILIES, GEMMA4, make


@pytest.fixture(autouse=True)
def own_cache(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path_factory.mktemp("cache")))


def values(path: Path) -> dict[str, np.ndarray]:
    """Name -> values in float32."""
    source = Source(path)
    specs = expected_tensors(source.config)
    return {spec.name: expand(source.tensor(spec).rows(slice(None)), np.float32) for spec in specs}


@pytest.mark.parametrize("family", ["gemma4", "llama"])
def test_dense_weights_are_rounded_as_the_package_does(tmp_path: Path, family: str) -> None:
    first = make(tmp_path / "first", FAMILIES[family], int4="no")
    summary = convert(first, tmp_path / "q8.gguf", "q8_0")
    assert "Rounded to Q8_0: " in summary.lines()[1]
    assert form_of(tmp_path / "q8.gguf") == "gguf-q8_0"
    kind, ours, changed = GGMLQuantizationType.Q8_0, values(tmp_path / "q8.gguf"), 0
    for name, dense in values(first).items():
        wanted = quants.dequantize(quants.quantize(dense, kind), kind) if dense.ndim == 2 else dense
        np.testing.assert_array_equal(ours[name], wanted)
        changed += int((wanted != dense).sum())
    assert summary.notes.rounded["INT8"] == changed > 0


def test_int4_values_are_kept_and_so_is_q8_0(tmp_path: Path) -> None:
    first = make(tmp_path / "first", GEMMA4, int4="tables")
    assert not convert(first, tmp_path / "q8.gguf", "q8_0").notes.rounded
    source = Source(tmp_path / "q8.gguf")
    spec = next(spec for spec in expected_tensors(source.config) if spec.linear)
    assert isinstance(source.tensor(spec).rows(slice(0, 1)), Int8)
    assert not convert(tmp_path / "q8.gguf", tmp_path / "f32.gguf", "gguf-f32").notes.rounded
    for path in (tmp_path / "q8.gguf", tmp_path / "f32.gguf"):
        for name, array in values(path).items():
            np.testing.assert_array_equal(array, values(first)[name])
    with pytest.raises(UsageError, match="is gguf-q8_0 already"):
        convert(tmp_path / "q8.gguf", tmp_path / "again.gguf", "q8_0")
