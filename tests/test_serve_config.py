"""Flags and environment of `onechip serve`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from onechip.config import ServeConfig
from onechip.errors import UsageError


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"port": 70000}, "--port 70000"),
        ({"port": -1}, "--port -1"),
        ({"dtype": "int3"}, "--dtype 'int3' is unknown: give auto, bf16, f32, w8a16, w8a8, w4a16"),
        ({"api_key": ""}, "--api-key is empty"),
    ],
)
def test_wrong_flags_are_named(fields: dict[str, Any], words: str) -> None:
    with pytest.raises(UsageError, match=words):
        ServeConfig(**fields)


def test_what_the_environment_adds() -> None:
    config = ServeConfig().with_environment({"ONECHIP_API_KEY": "secret", "XDG_CACHE_HOME": "/x"})
    assert (config.api_key, config.cache_dir) == ("secret", Path("/x/onechip"))
    config = ServeConfig(api_key="flag").with_environment(
        {"ONECHIP_API_KEY": "secret", "ONECHIP_CACHE_DIR": "/c"}
    )
    assert (config.api_key, config.cache_dir) == ("flag", Path("/c"))
    config = ServeConfig().with_environment({"ONECHIP_API_KEY": ""})
    assert (config.api_key, config.cache_dir) == (None, Path.home() / ".cache" / "onechip")


def test_the_key_is_not_printed() -> None:
    line = ServeConfig(api_key="secret", context=512).describe()
    assert "secret" not in line
    assert "API key required" in line
    assert "context 512" in line


def test_what_the_model_is_called(tmp_path: Path) -> None:
    assert ServeConfig().model_id == "acorn"
    assert ServeConfig(model="google/gemma-4-E2B-it").model_id == "google/gemma-4-E2B-it"
    folder = tmp_path / "e2b"
    folder.mkdir()
    assert ServeConfig(model=f"{folder}/").model_id == "e2b"


def test_the_engines_part(tmp_path: Path) -> None:
    engine = ServeConfig(context=512, max_requests=8, dtype="w4a16", cache_dir=tmp_path).engine(
        tmp_path / "m"
    )
    assert (engine.model, engine.context, engine.max_requests) == (tmp_path / "m", 512, 8)
    assert (engine.dtype, engine.cache_dir) == ("w4a16", tmp_path)
