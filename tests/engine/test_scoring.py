"""Prompts that are scored: transformers' golden log-probabilities, on plain JAX and on our kernels; and in
an engine, among other requests.
"""

from __future__ import annotations

import itertools
from dataclasses import replace
from functools import cache, partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from numpy.typing import NDArray

from onechip.engine import programs, scoring
from onechip.engine.attention import Chunk
from onechip.engine.core import Engine
from onechip.engine.plan import Plan
from onechip.engine.programs import Computation, State
from onechip.engine.sampling import Chosen
from onechip.engine.types import NO_TOKEN, EngineConfig, Event, Logprobs, Request, SamplingParams
from onechip.errors import RequestError
from onechip.kernels import xla
from onechip.kernels.api import Kernels
from onechip.kernels.xla import PlainKernels
from onechip.models.architecture import ModelConfig
from onechip.models.layout import Params
from tests.engine import test_cpu_programs, test_programs
from tests.engine.conftest import ACORN, Client
from tests.engine.test_cpu_programs import OURS, WHY_NOT, golden

CASES = ("e2b", "12b", "gemma3", "mistral")
"""With layers that share a cache, with values that are keys, with a ring and with spans alone."""
SLOTS = 4
BUCKET = 64
PLAN = Plan(768, SLOTS, jnp.float32, (SLOTS,), (16, BUCKET), False, 4, 0, 0, 0, 0)
KERNELS = [
    pytest.param(PlainKernels(), id="xla"),
    pytest.param(OURS, id="ours", marks=pytest.mark.skipif(WHY_NOT is not None, reason=str(WHY_NOT))),
]
_names = itertools.count()


def model(case: str, kernels: Kernels) -> tuple[ModelConfig, Params]:
    return test_programs.model(case) if isinstance(kernels, PlainKernels) else test_cpu_programs.model(case)


@cache
def compiled(case: str, kernels: Kernels, name: str) -> Any:
    computation = Computation(model(case, kernels)[0], kernels, jnp.float32)
    function = {"score": scoring.score, "prefill": programs.prefill}[name]
    return jax.jit(
        partial(function, computation), compiler_options=xla.compiler_options(jax.default_backend())
    )


def pieces(text: NDArray[np.int32], size: int) -> list[Chunk]:
    """A text but for its last token as chunks of slot 2."""
    rows = np.arange(BUCKET, dtype=np.int32)
    chunks = []
    for start in range(0, len(text) - 1, size):
        piece = text[start : min(start + size, len(text) - 1)]
        tokens = np.pad(piece, (0, BUCKET - len(piece)), constant_values=3).astype(np.int32)
        chunks.append(Chunk(tokens, 0 * rows + 2, rows + np.int32(start), np.int32(len(piece))))
    return chunks


def told(case: str, kernels: Kernels, text: NDArray[np.int32], size: int) -> tuple[State, Chosen]:
    """The device's state after `text` was scored in chunks of `size` tokens, and what it told of them."""
    config, params = model(case, kernels)
    state = programs.listing(config, PLAN, kernels, params)[0].function()
    found = []
    for chunk in pieces(text, size):
        at, count = int(chunk.positions[0]), int(chunk.valid)
        following = np.zeros(BUCKET, np.int32)
        following[:count] = text[at + 1 : at + 1 + count]
        state, chosen = compiled(case, kernels, "score")(params, state, chunk, following)
        found.append(jax.tree.map(lambda array, n=count: np.asarray(array)[:n], chosen))
    return state, jax.tree.map(lambda *arrays: np.concatenate(arrays), *found)


@pytest.mark.parametrize("kernels", KERNELS)
@pytest.mark.parametrize("case", CASES)
def test_scored_texts_are_transformers(case: str, kernels: Kernels) -> None:
    """Of texts longer than the window; and what is in the cache afterwards can be gone on with."""
    prompt, continuation, logits = golden(case)
    text = np.concatenate([prompt, continuation])
    state, chosen = told(case, kernels, text, BUCKET)
    truth = logits[: len(text) - 1].astype(np.float64)
    truth -= np.logaddexp.reduce(truth, axis=1, keepdims=True)
    own = truth[np.arange(len(text) - 1), text[1:]]
    np.testing.assert_array_equal(chosen.tokens, text[1:])
    near = 2e-4 * np.abs(logits).max()
    np.testing.assert_allclose(chosen.logprobs, own, atol=near)
    np.testing.assert_allclose(chosen.top_logprobs, -np.sort(-truth, axis=1)[:, :20], atol=near)
    above, at_least = (1 + np.sum(truth > own[:, None] + shift, axis=1) for shift in (near, -near))
    assert (above <= chosen.ranks).all()
    assert (chosen.ranks <= at_least).all()
    if case != "e2b":
        return
    config, params = model(case, kernels)
    prefilled = programs.listing(config, PLAN, kernels, params)[0].function()
    for chunk in pieces(text, BUCKET):
        prefilled, _ = compiled(case, kernels, "prefill")(params, prefilled, chunk)
    atol = 1e-5 if isinstance(kernels, PlainKernels) else 0  # plain JAX fuses other sums elsewhere
    jax.tree.map(partial(np.testing.assert_allclose, rtol=0, atol=atol), state.cache, prefilled.cache)


@pytest.mark.parametrize("kernels", KERNELS)
def test_how_a_text_is_cut_changes_nothing(kernels: Kernels) -> None:
    prompt, continuation, logits = golden("e2b")
    text = np.concatenate([prompt, continuation])
    _, whole = told("e2b", kernels, text, BUCKET)
    near = 2e-4 * np.abs(logits).max() if isinstance(kernels, PlainKernels) else 0
    for size in (7, 1):
        _, cut = told("e2b", kernels, text, size)
        np.testing.assert_allclose(cut.logprobs, whole.logprobs, rtol=0, atol=near or 1e-5)


@pytest.mark.parametrize("kernels", KERNELS)
def test_logits_that_are_no_numbers_are_told_as_such(kernels: Kernels) -> None:
    config, params = model("mistral", kernels)
    broken = params | {"norm": params["norm"] * jnp.nan}
    state = programs.listing(config, PLAN, kernels, params)[0].function()
    chunk, following = pieces(np.arange(5, 15, dtype=np.int32), BUCKET)[0], np.full(BUCKET, 7, np.int32)
    _, chosen = compiled("mistral", kernels, "score")(broken, state, chunk, following)
    assert np.asarray(chosen.tokens)[:9].tolist() == [NO_TOKEN] * 9


# In an engine.


def scored(prompt: tuple[int, ...], most: int = 2) -> Request:
    return Request(f"scored{next(_names)}", prompt, SamplingParams(logprobs=most), scored=True)


def answered(prompt: tuple[int, ...], **sampling: Any) -> Request:
    params = SamplingParams(**{"max_tokens": 12, "temperature": 1.0, "ignore_eos": True} | sampling)
    return Request(f"answered{next(_names)}", prompt, params)


def logprobs(events: list[Event]) -> list[Logprobs]:
    return [one for event in events for one in event.logprobs]


def test_an_answer_scores_as_it_was_told(client: Client, questions: list[tuple[int, ...]]) -> None:
    """Beside others, of which some are steered; in prompts of one chunk and of several."""
    client.engine.prepare_scoring()
    prompts = [questions[0], questions[1] * 4]
    asked = [answered(prompt, logprobs=3, max_tokens=40) for prompt in prompts]
    client.run(*asked)
    again = [scored((*entry.prompt, *client.tokens(entry.id)), 3) for entry in asked]
    crowd = [answered(prompt) for prompt in questions[2:12]]
    before = client.engine.stats()
    client.run(*crowd[:5], *again, *crowd[5:])
    after = client.engine.stats()
    assert after.compiles_after_warmup == before.compiles_after_warmup
    assert after.output_tokens - before.output_tokens == sum(entry.sampling.max_tokens for entry in crowd)
    for entry, asked_again in zip(asked, again, strict=True):
        events = client.events[asked_again.id]
        assert client.tokens(asked_again.id) == list(asked_again.prompt[1:])
        assert [event.finish for event in events if event.finish] == ["length"]
        assert all(event.cached_tokens == 0 for event in events)
        want, got = logprobs(client.events[entry.id]), logprobs(events)[len(entry.prompt) - 1 :]
        assert [one.chosen for one in got] == pytest.approx([one.chosen for one in want], abs=1e-5)
        assert [[id for id, _ in one.top] for one in got] == [[id for id, _ in one.top] for one in want]
        assert [one.rank for one in got] == [one.rank for one in want]
    assert client.engine.stats().cache_used <= 1


def test_crowds_do_not_disturb_each_other(client: Client, questions: list[tuple[int, ...]]) -> None:
    """More than there are slots, some cancelled; and what was scored may be gone on with."""
    alone = [client.run(answered(prompt))[0] for prompt in questions[:8]]
    scores = [scored(questions[n % 30] + questions[n % 7][: n % 50]) for n in range(90)]
    answers = [answered(prompt) for prompt in questions[:8]]
    client.submit(*scores[:40], *answers, *scores[40:])
    for entry in scores[::9]:
        client.engine.cancel(entry.id)
    client.wait()
    assert [client.tokens(entry.id) for entry in answers] == alone
    for entry in scores:
        if client.finish(entry.id) != "cancelled":
            assert client.tokens(entry.id) == list(entry.prompt[1:])
            assert [len(one.top) for one in logprobs(client.events[entry.id])] == [2] * (
                len(entry.prompt) - 1
            )
    client.run(scored(text := questions[20] * 2))
    following = (*text[:-1], 400, 401, 402)
    [reused] = client.run(first := answered(following))
    assert client.events[first.id][0].cached_tokens == len(text) - 1
    other = client.run(answered((7, *following)), answered(following, seed=0))
    assert other[1] == reused


def test_prompts_that_cannot_be_scored_are_refused(client: Client) -> None:
    for prompt, says in (((5,), "1 tokens"), ((5,) * 1025, "1025 tokens"), ((5, 10**6), "token 1000000")):
        with pytest.raises(RequestError, match=says):
            client.engine.submit(scored(prompt))
    with pytest.raises(RequestError, match="logprobs"):
        client.engine.submit(scored((5, 6), 21))
    [tokens] = client.run(scored((5,) * 1024))
    assert len(tokens) == 1023


def test_damaged_numbers_end_the_request_with_an_error(acorn_engine: Engine) -> None:
    loaded = acorn_engine._loaded
    params = loaded.params | {"norm": loaded.params["norm"] * jnp.nan}
    state = jax.tree.map(jnp.copy, loaded.state)
    engine = Engine(replace(loaded, params=params, state=state), EngineConfig(ACORN))
    client = Client(engine)
    engine.start(client.deliver)
    client.run(entry := scored((5, 6, 7)))
    assert client.finish(entry.id) == "error"
    assert "not finite" in str(client.events[entry.id][-1].error)
    engine.stop()
