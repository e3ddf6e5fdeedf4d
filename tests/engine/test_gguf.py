"""acorn as a GGUF file, served: the same programs, and the same greedy text as from safetensors."""

from __future__ import annotations

from pathlib import Path

import pytest

from onechip.convert.convert import convert
from onechip.engine.core import Engine
from onechip.engine.types import EngineConfig, Request, SamplingParams
from onechip.models.source import resolve_model
from onechip.models.tokenizer import Tokenizer
from tests.engine.conftest import ACORN, Client

PROMPTS = ("There are 5 boxes with 7 cards each.", "Tom has 12 apples and gives 5 to Anna. How many", "a")


def requests(tokenizer: Tokenizer, prefix: str) -> list[Request]:
    sampling = SamplingParams(max_tokens=32, temperature=0.0)
    return [
        Request(f"{prefix}-{number}", tuple(tokenizer.encode(text, add_bos=True)), sampling)
        for number, text in enumerate(PROMPTS)
    ]


def test_greedy_text_of_a_gguf_file_is_that_of_safetensors(
    client: Client,
    engine_cache: Path,
    tokenizer: Tokenizer,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    convert(ACORN, tmp_path / "acorn.gguf", "gguf-bf16")
    folder = resolve_model(str(tmp_path / "acorn.gguf"))
    engine = Engine.load(
        EngineConfig(folder, context=1024, cache_dir=engine_cache), lambda stage, share: None
    )
    try:
        assert engine._loaded.compiles.total == 0  # config, plan and shapes are the same
        other = Client(engine)
        engine.start(other.deliver)
        assert other.run(*requests(tokenizer, "gguf")) == client.run(*requests(tokenizer, "safetensors"))
    finally:
        engine.stop()
