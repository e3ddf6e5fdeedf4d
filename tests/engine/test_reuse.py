"""Texts with and without reuse of what was computed before, on acorn (window 64), on both kinds of kernels.

Tokens are drawn, so that a wrong logit anywhere shows soon. The engine without reuse runs the same programs.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from onechip.engine.cache import Cache, LayerCache
from onechip.engine.core import Engine
from onechip.engine.types import EngineConfig, Request, SamplingParams
from onechip.kernels.api import Buckets
from onechip.kernels.xla import PlainKernels
from tests.engine.conftest import ACORN, Client

WINDOW = 64
_names = itertools.count()


def request(prompt: Sequence[int], max_tokens: int = 20, *, seed: int = 1, ends: bool = False) -> Request:
    """Drawn at temperature 1; `ends` lets the model stop."""
    params = SamplingParams(temperature=1.0, seed=seed, max_tokens=max_tokens, ignore_eos=not ends)
    return Request(f"reuse{next(_names)}", tuple(prompt), params)


def words(seed: int, length: int) -> list[int]:
    return np.random.default_rng(seed).integers(300, 2000, length).tolist()


@dataclass
class Pair:
    """An engine that reuses and one that does not."""

    reusing: Client
    plain: Client

    def run(self, *requests: Request) -> tuple[list[list[int]], list[int]]:
        """Their texts, which must be the same, and how many tokens of each were cached."""
        return self._compared(self.reusing.run(*requests), requests)

    def run_together(self, *requests: Request) -> tuple[list[list[int]], list[int]]:
        """The same, where nobody is begun with before all are there: that decides who finds what."""
        return self._compared(self.reusing.run_together(*requests), requests)

    def _compared(
        self, answers: list[list[int]], requests: Sequence[Request]
    ) -> tuple[list[list[int]], list[int]]:
        assert answers == self.plain.run(*requests)
        assert all(event.cached_tokens == 0 for entry in requests for event in self.plain.events[entry.id])
        return answers, [self.cached(entry) for entry in requests]

    def cached(self, entry: Request) -> int:
        first, *others = self.reusing.events[entry.id]
        assert all(event.cached_tokens == 0 for event in others)
        return first.cached_tokens


def started(engine: Engine) -> Client:
    client = Client(engine)
    engine.start(client.deliver)
    return client


def with_and_without(engine: Engine) -> Iterator[Pair]:
    """Two engines of its programs, each with a state of its own."""
    loaded = engine._loaded
    config = EngineConfig(ACORN)
    states = [jax.tree.map(jnp.copy, loaded.state) for _ in range(2)]
    reusing = Engine(replace(loaded, state=states[0]), config)
    plain = Engine(replace(loaded, state=states[1], plan=replace(loaded.plan, reuse=None)), config)
    yield Pair(started(reusing), started(plain))
    reusing.stop()
    plain.stop()


@pytest.fixture(params=["ours", "xla"])
def pair(request: pytest.FixtureRequest) -> Iterator[Pair]:
    name = "acorn_engine" if request.param == "ours" else "plain_jax_engine"
    yield from with_and_without(request.getfixturevalue(name))


@pytest.fixture(scope="module")
def plain_jax_engine() -> Engine:
    """Float32, because there a prompt that is cut differently is rounded differently; with few programs."""
    wishes = EngineConfig(ACORN, context=768, max_requests=2, dtype="f32", kernels="xla")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(PlainKernels, "buckets", Buckets((2,), (64,)))
        return Engine.load(wishes, lambda *_: None)


@pytest.fixture
def ours(acorn_engine: Engine) -> Iterator[Pair]:
    yield from with_and_without(acorn_engine)


LENGTHS = (WINDOW - 1, WINDOW, WINDOW + 1, 2 * WINDOW, 300)


@pytest.mark.parametrize("length", LENGTHS)
def test_a_conversation_goes_on(pair: Pair, length: int) -> None:
    """Its prompt is all that was said before; the last token of an answer was never run."""
    text = words(length, length)
    for turn, max_tokens in enumerate((21, 2, 40)):
        [answer], [cached] = pair.run(request(text, max_tokens, seed=turn))
        assert cached == (len(text) - 10 - 1 if turn else 0)
        text += answer + words(turn, 10)


def test_a_conversation_goes_on_at_the_end_of_the_cache(pair: Pair) -> None:
    """Where a padded chunk of the prompt would reach behind what the slot holds."""
    context = pair.plain.engine.context
    for left in (60, 45):
        text = words(left, context - left)
        pair.run(request(text, 1))
        _, [cached] = pair.run(request(text + words(left + 1, 30), 10))
        assert cached == len(text)


@pytest.mark.parametrize("length", LENGTHS)
def test_a_prompt_parts_from_an_earlier_one_anywhere(pair: Pair, length: int) -> None:
    """At the end of the prompt, which is kept; and where nothing was kept, so that it must be computed."""
    text = words(length, length)
    [answer], _ = pair.run(request(text, 90))
    told = text + answer
    found = [
        pair.run(request(told[:cut] + words(cut, 9), 5))[1][0]
        for cut in (length, length - 1, length - 20, length - WINDOW + 40, length + 30, length + 89)
    ]
    assert found[0] == length - 1
    assert found[1] == length - 1


def test_the_third_with_one_system_prompt_reuses_it(pair: Pair) -> None:
    system = words(5, 200)
    found = [pair.run(request(system + words(n, 30 + n), 70))[1][0] for n in range(3)]
    assert found == [0, 0, 200]


def test_a_crowd_with_one_system_prompt_in_all_slots(ours: Pair) -> None:
    """More than there are slots; and then all of them go on."""
    system = words(6, 150)
    prompts = [system + words(100 + n, 20 + n % 40) for n in range(80)]
    crowd = [request(prompt, 30, seed=n, ends=True) for n, prompt in enumerate(prompts)]
    answers, found = ours.run_together(*crowd)
    assert found == [0] + [150] * 79
    texts = [prompt + answer for prompt, answer in zip(prompts, answers, strict=True)]
    _, found = ours.run_together(*(request(text + words(n, 9), 20, seed=n) for n, text in enumerate(texts)))
    assert sum(cached > 150 for cached in found) > 16, "slots hold what was said in them"


def test_a_request_that_was_cancelled_is_gone_on_with(pair: Pair) -> None:
    """Wherever the device was: what it wrote behind the tokens that came is not taken for theirs."""
    for seed in range(4):
        entry = request(words(seed, 90), 600, seed=seed)
        pair.reusing.submit(entry)
        pair.reusing.wait_for(3 + 7 * seed, entry.id)
        pair.reusing.engine.cancel(entry.id)
        pair.reusing.wait()
        told = list(entry.prompt) + pair.reusing.tokens(entry.id)
        _, [cached] = pair.run(request(told + words(seed, 12), 12))
        assert cached >= 89


def test_steered_steps_write_nothing_behind_an_end_either(ours: Pair) -> None:
    """Rows that ended in a window which nobody has read yet are in the next steered step. Gone on with is all
    but the last two tokens: a single position written behind the end would be one too many.
    """
    texts = [words(40 + n, 60 + n) for n in range(24)]
    for turn in range(4):
        crowd = [request(text, 12 + 2 * n, seed=turn, ends=n < 23) for n, text in enumerate(texts)]
        client = ours.reusing
        client.submit(*crowd)
        for tokens in range(8, 56, 4):
            client.wait_for(tokens, crowd[-1].id)
            steered = request(words(tokens, 9), 2)
            client.submit(replace(steered, sampling=replace(steered.sampling, logprobs=1)))
        client.wait()
        answers = [client.tokens(entry.id) for entry in crowd]
        assert answers == ours.plain.run(*crowd)
        assert [ours.cached(entry) for entry in crowd] == [len(text) - 7 if turn else 0 for text in texts]
        texts = [text + answer[:-2] + words(turn, 7) for text, answer in zip(texts, answers, strict=True)]


def test_kept_rings_come_and_go(ours: Pair) -> None:
    """More prompts than rings are kept, asked again and again, with what follows them changed."""
    assert ours.reusing.engine._loaded.plan.reuse is not None
    count = ours.reusing.engine._loaded.plan.reuse.kept + 10
    prompts = [words(n, 80 + n % 30) for n in range(count)]
    for round_ in range(3):
        some = [request([*prompt, *words(round_, 3)], 90) for prompt in prompts[:: 1 + round_]]
        ours.run(*some)


def test_what_is_not_claimed_is_not_read(ours: Pair) -> None:
    """Whatever the scheduler does not say that the cache holds is NaN here before each request."""
    system = words(8, 100)
    chats = [system + words(n, 40) for n in range(3)]
    for turn in range(3):
        for n, chat in enumerate(chats):
            poison(ours.reusing.engine)
            [answer], _ = ours.run(request(chat, 37, seed=n))
            chats[n] = chat + answer[: -20 if turn == 1 else None] + words(turn, 11)


def poison(engine: Engine) -> None:
    """Put NaN wherever an idle engine's cache holds nothing that is claimed."""
    prefixes, device = engine._scheduler.prefixes, engine._loaded
    assert prefixes is not None
    assert prefixes.reuse.window == WINDOW
    state, slots = device.state, len(engine._scheduler.slots)

    def poisoned(array: jax.Array, first_row: int, ring: bool) -> jax.Array:
        values = np.array(array)
        nan = np.array(np.nan, jnp.bfloat16).view(values.dtype)
        for row, content in enumerate(prefixes.rows[first_row : first_row + len(values)]):
            held, at = content.length, np.arange(values.shape[2])
            if ring:
                right = content.right_for(held, WINDOW)
                at = content.written - 1 - (content.written - 1 - at) % WINDOW
                values[row, :, (at < 0) | (at >= (held if right else 0))] = nan
            else:
                values[row, :, at >= held] = nan
        return jnp.asarray(values)

    def layers(cache: Cache, first_row: int) -> Cache:
        return {
            index: LayerCache(
                *(poisoned(array, first_row, layer.k.shape[2] == WINDOW) for array in (layer.k, layer.v))
            )
            for index, layer in cache.items()
        }

    device.state = replace(state, cache=layers(state.cache, 0), kept=layers(state.kept, slots))
