"""acorn as a GGUF file, served: the same programs, and the same greedy text as from safetensors."""

from __future__ import annotations

from pathlib import Path

import pytest

from onechip.convert.convert import convert
from onechip.engine.core import Engine
from onechip.engine.plan import tree_bytes
from onechip.engine.types import Dtype, EngineConfig, Request, SamplingParams
from onechip.kernels.api import Panels
from onechip.kernels.choice import choose
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


@pytest.mark.parametrize(("dtype", "activations"), [("auto", "int8"), ("w8a16", "bfloat16")])
def test_q8_0_is_served_in_8_bits(
    dtype: Dtype,
    activations: str,
    engine_cache: Path,
    client: Client,
    tokenizer: Tokenizer,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Every product and table, in the bytes that were planned; what acorn knows it still says."""
    if (why_not := choose("cpu")[1]) is not None:
        pytest.skip(why_not)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    convert(ACORN, tmp_path / "acorn.gguf", "q8_0")
    folder = resolve_model(str(tmp_path / "acorn.gguf"))
    config = EngineConfig(folder, context=1024, dtype=dtype, max_requests=8, cache_dir=engine_cache)
    engine = Engine.load(config, lambda stage, share: None)
    try:
        loaded = engine._loaded
        assert f"int8 weights and tables, {activations} activations" in engine.description
        assert tree_bytes(loaded.params) == loaded.plan.weight_bytes
        products = [loaded.params["embed"], *loaded.params["layers"][0].values()]
        panels = [leaf for leaf in products if isinstance(leaf, Panels)]
        assert len(panels) > 4
        assert {(leaf.kind, leaf.exact) for leaf in panels} == {("int8", activations != "int8")}
        other = Client(engine)
        engine.start(other.deliver)
        known = requests(tokenizer, dtype)[:2]
        assert other.run(*known) == client.run(*known)
    finally:
        engine.stop()
