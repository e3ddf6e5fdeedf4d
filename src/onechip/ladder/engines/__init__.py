"""The engines that a ladder can run, by name. One file an engine; engine.py says what it must give."""

from __future__ import annotations

from onechip.ladder.engines import (
    litert_lm,
    llama_cpp,
    mistral_rs,
    onechip,
    openai,
    pytorch,
    rust_pjrt,
    sglang,
    sglang_jax,
    tpu_inference,
    transformers,
    vllm,
)
from onechip.ladder.engines.engine import Engine

ENGINES: dict[str, Engine] = {
    engine.name: engine
    for engine in (
        onechip.ENGINE,
        llama_cpp.ENGINE,
        vllm.ENGINE,
        mistral_rs.ENGINE,
        transformers.ENGINE,
        pytorch.ENGINE,
        litert_lm.ENGINE,
        sglang.ENGINE,
        sglang_jax.ENGINE,
        tpu_inference.JAX,
        tpu_inference.TORCH,
        rust_pjrt.ENGINE,
        openai.ENGINE,
    )
}
