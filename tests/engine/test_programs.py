"""Prefill and decode against transformers' golden texts and against our own forward, in every way a prompt
can be cut.

All in float32 on the shrunken models of tests/golden, whose prompts and texts are longer than their windows.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from onechip.engine import programs
from onechip.engine.attention import Chunk
from onechip.engine.cache import Cache
from onechip.engine.plan import Plan
from onechip.engine.programs import State, joins_of
from onechip.engine.steering import Steering
from onechip.engine.types import Request, SamplingParams
from onechip.kernels import xla
from onechip.kernels.xla import PlainKernels
from onechip.models import decoder
from onechip.models.config import ModelConfig, read_config
from onechip.models.layout import Params
from onechip.models.weights import load_weights
from tests.engine.conftest import Only

GOLDEN = Path(__file__).parents[1] / "golden"
CASES = ("e2b", "e4b", "12b", "31b", "gemma3", "llama3", "mistral")
CONTEXT = 768
SLOTS = 8


@dataclass(frozen=True)
class Text:
    """A prompt, transformers' 64 greedy tokens after it, and its logits at every position."""

    prompt: np.ndarray
    continuation: np.ndarray
    logits: np.ndarray


@cache
def model(case: str) -> tuple[ModelConfig, Params]:
    config = read_config(GOLDEN / case)
    params = jax.tree.map(lambda leaf: jnp.asarray(leaf, jnp.float32), load_weights(GOLDEN / case, config))
    return config, decoder.fuse(params)


@cache
def texts(case: str) -> list[Text]:
    with np.load(GOLDEN / case / "golden.npz") as stored:
        lengths = stored["prompt_lengths"]
        rows = [(stored[f"tokens_{i}"], stored[f"logits_{i}"]) for i in range(len(lengths))]
    cut = zip(rows, lengths, strict=True)
    return [Text(tokens[:length], tokens[length:], logits) for (tokens, logits), length in cut]


def plan() -> Plan:
    return Plan(CONTEXT, SLOTS, jnp.float32, (2, SLOTS), (16, 64), False, 4, 0, 0, 0, 0)


@cache
def compiled(case: str, name: str) -> Any:
    """prefill, decode or decode_step of a case, compiled as the engine does it (once for each shape)."""
    config, _ = model(case)
    computation = programs.Computation(config, PlainKernels(), jnp.float32)

    def decode_logits(params: Params, kept: Cache, *rows: jax.Array) -> tuple[Cache, jax.Array]:
        kept, hidden = programs.decode_step(computation, params, kept, *rows)
        return kept, decoder.logits(config, computation.kernels, params, hidden)

    functions = {
        "prefill": partial(programs.prefill, computation),
        "join": programs.join,
        "decode": partial(programs.decode, computation, plan().window),
        "decode_step": decode_logits,
        "whole": partial(decoder.forward, config, dtype=jnp.float32),
        "forward": partial(programs.forward, computation),
        "choose": partial(programs.choose, computation),
    }
    return jax.jit(functions[name], compiler_options=xla.compiler_options(jax.default_backend()))


class Device:
    """The engine's device state, driven by hand."""

    def __init__(self, case: str) -> None:
        self.case = case
        self.config, self.params = model(case)
        self.state: State = programs.listing(self.config, plan(), PlainKernels(), self.params)[0].function()

    def prefill(self, slot: int, prompt: np.ndarray, size: int, bucket: int) -> None:
        """Run a prompt in chunks of `size` tokens, each padded to `bucket`; its last token joins."""
        for start in range(0, len(prompt) - 1, size):
            piece = prompt[start : min(start + size, len(prompt) - 1)]
            rows = np.arange(bucket, dtype=np.int32)
            chunk = Chunk(
                tokens=np.pad(piece, (0, bucket - len(piece)), constant_values=3).astype(np.int32),
                slots=0 * rows + np.int32(slot),
                positions=rows + np.int32(start),
                valid=np.int32(len(piece)),
            )
            self.state, _ = compiled(self.case, "prefill")(self.params, self.state, chunk)
        whole = Request("", tuple(prompt.tolist()), SamplingParams(max_tokens=CONTEXT))
        self.state = compiled(self.case, "join")(self.state, joins_of(((slot, whole),), SLOTS))

    def decode(self, *slots: int) -> np.ndarray:
        """One window for these slots -> tokens [steps, SLOTS]."""
        active = np.isin(np.arange(SLOTS), slots)
        self.state, tokens = compiled(self.case, "decode")(self.params, self.state, active)
        return np.asarray(tokens)

    def continuation(self, slot: int) -> list[int]:
        tokens: list[int] = []
        while len(tokens) < 64:
            tokens += self.decode(slot)[:, slot].tolist()
        return tokens[:64]


@pytest.mark.parametrize(
    ("case", "size", "bucket"),
    [*((case, size, 64) for case in CASES for size in (64, 5)), ("e2b", 16, 16), ("12b", 7, 7)],
)
def test_greedy_text_is_transformers(case: str, size: int, bucket: int) -> None:
    """Whole prompts and chunked ones, in one program for each case: each bucket costs a compilation."""
    for text in texts(case):
        device = Device(case)
        device.prefill(3, text.prompt, size, bucket)
        np.testing.assert_array_equal(device.continuation(3), text.continuation)


@pytest.mark.parametrize("case", CASES)
def test_logits_of_decode_are_transformers(case: str) -> None:
    text = texts(case)[0]
    device = Device(case)
    device.prefill(0, text.prompt, 64, 64)
    cache_, active = device.state.cache, np.array([True, False])
    whole = np.concatenate([text.prompt, text.continuation])
    last = len(text.prompt) - 1
    for position in range(last, last + 40):
        tokens = np.array([whole[position], 5], np.int32)
        cache_, logits = compiled(case, "decode_step")(
            device.params, cache_, tokens, np.array([position, 0], np.int32), active
        )
        truth = text.logits[position]
        np.testing.assert_allclose(logits[0], truth, rtol=1e-4, atol=1e-4 * np.abs(truth).max())


@pytest.mark.parametrize("case", ["e2b", "mistral"])
@pytest.mark.parametrize("temperature", [0.0, 2.5])
def test_log_probabilities_are_transformers(case: str, temperature: float) -> None:
    """With a softcap and without: log_softmax of transformers' logits over the temperature."""
    text = texts(case)[0]
    whole = np.concatenate([text.prompt, text.continuation])
    last = len(text.prompt) - 1
    device = Device(case)
    given = [Only([token]) for token in text.continuation.tolist()]
    device.prefill(0, text.prompt, 64, 64)
    drawn = SamplingParams(temperature=temperature, logprobs=20, max_tokens=CONTEXT)
    device.state = compiled(case, "join")(
        device.state, joins_of(((0, Request("", tuple(text.prompt.tolist()), drawn)),), SLOTS)
    )
    active = np.arange(SLOTS) == 0
    for position in range(last, last + 20):
        steering = Steering(SLOTS, device.config.vocab, CONTEXT)
        steering.add(Request("r", (2,), drawn, (given[position - last],)))
        steer = steering.steer([(0, "r")]).steer
        device.state, scores = compiled(case, "forward")(device.params, device.state, active)
        device.state, chosen = compiled(case, "choose")(device.state, scores, steer, active)
        scaled = text.logits[position].astype(np.float64) / (temperature or 1)
        truth = scaled - np.logaddexp.reduce(scaled)
        token = whole[position + 1]
        assert chosen.tokens[0] == token
        np.testing.assert_allclose(chosen.logprobs[0], truth[token], atol=1e-3)
        np.testing.assert_allclose(chosen.top_logprobs[0], np.sort(truth)[::-1][:20], atol=1e-3)
        np.testing.assert_allclose(truth[np.asarray(chosen.top[0])], chosen.top_logprobs[0], atol=1e-3)


@pytest.mark.parametrize("case", ["e2b", "31b", "gemma3", "llama3", "mistral"])
def test_joining_and_leaving_does_not_disturb_the_others(case: str) -> None:
    """Two texts in eight slots, joined at different times, chunks between windows, slots used again."""
    long, short = texts(case)
    device = Device(case)
    out: dict[int, list[int]] = {}

    def begin(slot: int, text: Text, size: int, bucket: int) -> None:
        device.prefill(slot, text.prompt, size, bucket)
        out[slot] = []

    def window(*slots: int) -> None:
        tokens = device.decode(*slots)
        for slot in slots:
            out[slot] += tokens[:, slot].tolist()

    begin(5, long, 64, 64)
    window(5)
    begin(0, short, 16, 64)
    window(0, 5)
    begin(7, long, 16, 64)
    window(0, 5, 7)
    window(5, 7)  # slot 0 is idle for a window
    begin(0, long, 7, 64)  # and then somebody else's
    for _ in range(12):
        window(0, 5, 7)
    for slot in (0, 5, 7):
        np.testing.assert_array_equal(out[slot][:48], long.continuation[:48])


@pytest.mark.parametrize("length", [255, 256, 257, 600])
def test_prompts_longer_than_a_block_of_keys(length: int) -> None:
    """Against forward, which runs all layers for all rows and knows no cache, no chunks and no blocks."""
    config = model("e2b")[0]
    prompt = np.random.default_rng(length).integers(10, config.vocab, length).astype(np.int32)
    device = Device("e2b")
    device.prefill(1, prompt, 64, 64)
    produced = device.decode(1)[:, 1].tolist()
    whole = np.concatenate([prompt, produced])[None]
    padded = np.pad(whole, ((0, 0), (0, 640 - whole.shape[1])))
    unfused = jax.tree.map(lambda leaf: jnp.asarray(leaf, jnp.float32), load_weights(GOLDEN / "e2b", config))
    logits = np.asarray(compiled("e2b", "whole")(unfused, padded, np.arange(640, dtype=np.int32)[None]))
    np.testing.assert_array_equal(logits[0, length - 1 : length + 3].argmax(-1), produced)


def test_idle_and_padded_rows_write_nothing() -> None:
    text = texts("e2b")[1]
    device = Device("e2b")
    device.prefill(2, text.prompt, 64, 64)
    before = jax.tree.map(np.asarray, device.state.cache)
    device.decode(6)
    for index, kept in device.state.cache.items():
        for new, old in ((kept.k, before[index].k), (kept.v, before[index].v)):
            others = [slot for slot in range(SLOTS) if slot != 6]
            np.testing.assert_array_equal(np.asarray(new)[others], old[others])
    for layer in device.config.own_layers:
        if layer.kind == "sliding":
            continue
        assert not before[layer.index].k[[0, 1, 3, 4, 5, 6, 7]].any()


def test_the_listing_has_every_program_of_a_plan() -> None:
    config, params = model("e2b")
    names = [program.name for program in programs.listing(config, plan(), PlainKernels(), params)]
    sizes = ["prefill[16]", "prefill[64]", "decode[2]", "decode[8]"]
    assert names == ["init", "join", *sizes, "forward", "choose"]
