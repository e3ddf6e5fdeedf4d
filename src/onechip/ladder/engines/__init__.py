"""The engines that a ladder can run, by name. One file an engine; engine.py says what it must give."""

from __future__ import annotations

from onechip.ladder.engines import llama_cpp, mistral_rs, onechip, openai, transformers, vllm
from onechip.ladder.engines.engine import Engine

ENGINES: dict[str, Engine] = {
    engine.name: engine
    for engine in (
        onechip.ENGINE,
        llama_cpp.ENGINE,
        vllm.ENGINE,
        mistral_rs.ENGINE,
        transformers.ENGINE,
        openai.ENGINE,
    )
}
