"""First-token times with and without prefix reuse, side by side in one run -> a table of medians.

    python bench/prefix.py [MODEL] [--repeats 5] [--turns 6] [--system 1000]

One is a chat that grows: each prompt is all that was said before and 60 tokens more, each answer has 60. The
other is a system prompt that others had before: alone, and by a crowd that comes at once. Both engines share
the weights and the programs; who is asked first alternates.
"""

from __future__ import annotations

import argparse
import itertools
import statistics
import tempfile
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import get_args

import jax
import jax.numpy as jnp
import numpy as np

from onechip.engine.core import Engine
from onechip.engine.start import load
from onechip.engine.types import Dtype, EngineConfig, Event, Request, SamplingParams
from onechip.models.source import resolve_model

SAID = 60
"""Tokens of each message, and of each answer."""

Prompt = list[int]


@dataclass
class Answer:
    """What was said, and after how many seconds the first of it came."""

    tokens: list[int]
    cached: int = 0
    first_s: float = 0.0


class Asker:
    """Asks one engine, and takes the times."""

    def __init__(self, engine: Engine) -> None:
        self.engine = engine
        self._names = itertools.count()
        self._changed = threading.Condition()
        self._answers: dict[str, Answer] = {}
        self._open: set[str] = set()
        self._began = 0.0
        engine.start(self._deliver)

    def _deliver(self, events: list[Event]) -> None:
        now = time.perf_counter()
        with self._changed:
            for event in events:
                answer = self._answers[event.request_id]
                if event.tokens and not answer.tokens:
                    answer.first_s, answer.cached = now - self._began, event.cached_tokens
                answer.tokens += event.tokens
                if event.finish:
                    self._open.discard(event.request_id)
            self._changed.notify_all()

    def ask(self, *prompts: Prompt, tokens: int) -> list[Answer]:
        """All at once."""
        params = SamplingParams(max_tokens=tokens, ignore_eos=True)
        return self.run(*(Request(f"r{next(self._names)}", tuple(prompt), params) for prompt in prompts))

    def run(self, *requests: Request) -> list[Answer]:
        """All at once."""
        with self._changed:
            self._answers |= {request.id: Answer([]) for request in requests}
            self._open |= {request.id for request in requests}
        self._began = time.perf_counter()
        for request in requests:
            self.engine.submit(request)
        with self._changed:
            self._changed.wait_for(lambda: not self._open)
        return [self._answers.pop(request.id) for request in requests]


Times = dict[str, list[float]]
"""Milliseconds by the name of what was asked, one for each repeat."""


class Bench:
    """The same questions for both engines."""

    def __init__(self, engines: dict[str, Asker], vocab: int) -> None:
        self.engines = engines
        self._vocab = vocab
        self._rng = np.random.default_rng(0)
        self.times: dict[str, Times] = {name: {} for name in engines}
        self.cached: dict[str, int] = {}

    def words(self, count: int) -> Prompt:
        words: Prompt = self._rng.integers(self._vocab // 2, self._vocab, count).tolist()
        return words

    def repeat(self, number: int, ask: Callable[[Asker, Callable[[str, list[Answer]], None]], None]) -> None:
        """Ask each engine, in turns who is first."""
        for name in sorted(self.engines, reverse=number % 2 == 1):

            def note(what: str, answers: list[Answer], name: str = name) -> None:
                slowest = max(answer.first_s for answer in answers) * 1e3
                self.times[name].setdefault(what, []).append(slowest)
                self.cached[what] = max(self.cached.get(what, 0), answers[-1].cached)

            ask(self.engines[name], note)

    def chat(self, number: int, turns: int) -> None:
        said = [self.words(SAID) for _ in range(turns)]

        def ask(asker: Asker, note: Callable[[str, list[Answer]], None]) -> None:
            text: Prompt = []
            for turn, message in enumerate(said, start=1):
                text += message
                [answer] = asker.ask(text, tokens=SAID)
                note(f"chat, turn {turn} ({len(text)} tokens)", [answer])
                text += answer.tokens

        self.repeat(number, ask)

    def system_prompt(self, number: int, length: int, crowd: int) -> None:
        system = self.words(length)
        prompts = [system + self.words(SAID) for _ in range(3 + crowd)]

        def ask(asker: Asker, note: Callable[[str, list[Answer]], None]) -> None:
            for count, prompt in enumerate(prompts[:3], start=1):
                note(f"system prompt of {length}, request {count}", asker.ask(prompt, tokens=1))
            note(f"system prompt of {length}, {crowd} at once, the last", asker.ask(*prompts[3:], tokens=1))

        self.repeat(number, ask)

    def table(self) -> str:
        lines = ["| first token, ms | without | with reuse | ratio | cached |", "|---|---|---|---|---|"]
        for what, values in self.times["without"].items():
            without, reusing = statistics.median(values), statistics.median(self.times["reuse"][what])
            ratio = f"{without / reusing:.1f}x"
            lines.append(f"| {what} | {without:.1f} | {reusing:.1f} | {ratio} | {self.cached[what]} |")
        return "\n".join(lines)


def engines(config: EngineConfig) -> dict[str, Asker]:
    """With and without reuse, on the same weights and programs."""
    loaded = load(config, lambda stage, share: None)
    state = jax.tree.map(jnp.copy, loaded.state)
    without = replace(loaded, state=state, plan=replace(loaded.plan, reuse=None))
    print(loaded.describe())
    return {"reuse": Asker(Engine(loaded, config)), "without": Asker(Engine(without, config))}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("model", nargs="?", default="acorn")
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--turns", type=int, default=6)
    parser.add_argument("--system", type=int, default=1000)
    parser.add_argument("--crowd", type=int, default=16)
    parser.add_argument("--dtype", default="auto", choices=get_args(Dtype))
    parser.add_argument("--max-requests", type=int, default=None)
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as cache:
        askers = engines(
            EngineConfig(
                resolve_model(args.model),
                dtype=args.dtype,
                max_requests=args.max_requests,
                cache_dir=Path(cache),
            )
        )
    bench = Bench(askers, askers["reuse"].engine.tokenizer.vocab_size)
    for number in range(args.repeats):
        bench.chat(number, args.turns)
        bench.system_prompt(number, args.system, args.crowd)
    print(bench.table())
    for asker in askers.values():
        asker.engine.stop()


if __name__ == "__main__":
    main()
