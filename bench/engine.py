"""Our engine, and transformers beside it in the same run, on one checkpoint -> a table of medians and ratios.

    python bench/engine.py [MODEL] [--repeats 5] [--oracle .venv-oracle/bin/python]

Measured are output tokens per second at 1, 8 and 64 requests (128 tokens in, 128 out), prompt tokens per
second, the first token's time of a request that joins 63 running ones, and starts with cold and warm cache.
Repeats of ours and of transformers' alternate, so that a machine that slows down slows both.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, get_args

import numpy as np

from onechip.engine.core import Engine
from onechip.engine.types import Dtype, EngineConfig, Event, Guide, Request, SamplingParams
from onechip.models.source import resolve_model

LEVELS = (1, 8, 64)
PROMPT_TOKENS = 128
OUTPUT_TOKENS = 128


@dataclass(frozen=True)
class Wish:
    """What requests ask for beside their length; each gets guides of its own."""

    sampling: Mapping[str, Any] = field(default_factory=dict)
    guides: Callable[[], tuple[Guide, ...]] = tuple


class Load:
    """Requests with random prompts against an engine, and when their events came."""

    def __init__(self, engine: Engine, vocab: int) -> None:
        self._engine = engine
        self._rng = np.random.default_rng(0)
        self._vocab = vocab
        self._count = 0
        self._changed = threading.Condition()
        self._open: set[str] = set()
        self.first_token: dict[str, float] = {}
        engine.start(self._deliver)

    def _deliver(self, events: list[Event]) -> None:
        now = time.perf_counter()
        with self._changed:
            for event in events:
                self.first_token.setdefault(event.request_id, now)
                if event.finish:
                    self._open.discard(event.request_id)
            self._changed.notify_all()

    def submit(self, prompt_tokens: int, output_tokens: int, wish: Wish | None = None) -> str:
        name = f"r{self._count}"
        self._count += 1
        prompt = self._rng.integers(self._vocab // 2, self._vocab, prompt_tokens).tolist()
        with self._changed:
            self._open.add(name)
        wish = wish or Wish()
        params = SamplingParams(max_tokens=output_tokens, ignore_eos=True, **wish.sampling)
        self._engine.submit(Request(name, tuple(prompt), params, wish.guides()))
        return name

    def wait(self) -> None:
        with self._changed:
            self._changed.wait_for(lambda: not self._open)

    def seconds(
        self, requests: int, prompt_tokens: int, output_tokens: int, wish: Wish | None = None
    ) -> float:
        """Wall time of so many requests at once."""
        began = time.perf_counter()
        for _ in range(requests):
            self.submit(prompt_tokens, output_tokens, wish)
        self.wait()
        return time.perf_counter() - began

    def joining_ttft_ms(self) -> float:
        """First-token time of one request while 63 others decode."""
        for _ in range(63):
            self.submit(PROMPT_TOKENS, OUTPUT_TOKENS)
        while len(self.first_token) < self._count:
            time.sleep(0.001)
        began = time.perf_counter()
        name = self.submit(PROMPT_TOKENS, 1)
        self.wait()
        return (self.first_token[name] - began) * 1e3


class Transformers:
    """bench/transformers_peer.py as a child of its own environment; one answer a line."""

    def __init__(self, python: Path, model: Path) -> None:
        script = Path(__file__).with_name("transformers_peer.py")
        self._process = subprocess.Popen(
            [python, script, model], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        self._ask({"requests": 1, "prompt_tokens": 8, "output_tokens": 8})

    def _ask(self, work: dict[str, int]) -> float:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps(work) + "\n")
        self._process.stdin.flush()
        return float(json.loads(self._process.stdout.readline())["seconds"])

    def seconds(self, requests: int, prompt_tokens: int, output_tokens: int) -> float:
        return self._ask(
            {"requests": requests, "prompt_tokens": prompt_tokens, "output_tokens": output_tokens}
        )

    def close(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait()


def start_seconds(model: Path, cache: Path) -> float:
    """From spawn to a loaded engine, in a process of its own."""
    code = (
        "import sys; from pathlib import Path; from onechip.engine.core import Engine;"
        "from onechip.engine.types import EngineConfig;"
        "Engine.load(EngineConfig(Path(sys.argv[1]), cache_dir=Path(sys.argv[2])), lambda *_: None)"
    )
    began = time.perf_counter()
    subprocess.run([sys.executable, "-c", code, str(model), str(cache)], check=True)
    return time.perf_counter() - began


def median_and_spread(values: list[float]) -> tuple[float, float]:
    return statistics.median(values), max(values) / min(values) - 1


def alternate(repeats: int, *arms: Callable[[], float]) -> list[list[float]]:
    """Each arm's figures, measured in turns; the order turns round every time (A B, B A, ...)."""
    figures: list[list[float]] = [[] for _ in arms]
    for repeat in range(repeats):
        order = range(len(arms)) if repeat % 2 == 0 else reversed(range(len(arms)))
        for arm in order:
            figures[arm].append(arms[arm]())
    return figures


def throughput(ours: Load, peer: Transformers | None, repeats: int) -> None:
    for level in LEVELS:
        tokens = level * OUTPUT_TOKENS

        def rate(side: Any, level: int = level, tokens: int = tokens) -> float:
            return tokens / float(side.seconds(level, PROMPT_TOKENS, OUTPUT_TOKENS))

        rate(ours)
        arms = [lambda: rate(ours)] + ([lambda: rate(peer)] if peer else [])
        figures = alternate(repeats, *arms)
        mine, spread = median_and_spread(figures[0])
        line = f"{level:3} requests   {mine:9.0f} tok/s out (spread {spread:.1%})"
        if peer:
            theirs, _ = median_and_spread(figures[1])
            line += f"   transformers {theirs:8.0f}   ratio {mine / theirs:.1f}x"
        print(line, flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("model", nargs="?", default="acorn")
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--dtype", default="auto", choices=get_args(Dtype))
    parser.add_argument("--oracle", type=Path, default=Path(".venv-oracle/bin/python"))
    args = parser.parse_args()
    model = resolve_model(args.model)

    with tempfile.TemporaryDirectory() as cache:
        starts = [start_seconds(model, Path(cache)) for _ in range(3)]
        print(f"start: cold {starts[0]:.1f} s, warm {min(starts[1:]):.1f} s")
        engine = Engine.load(
            EngineConfig(model, dtype=args.dtype, cache_dir=Path(cache)), lambda stage, share: None
        )
    print(engine.description)
    ours = Load(engine, json.loads((model / "config.json").read_text())["vocab_size"])
    peer = Transformers(args.oracle, model) if args.oracle.exists() else None
    if peer is None:
        print(f"{args.oracle} does not exist (make golden makes it): no peer in this run")
    throughput(ours, peer, args.repeats)
    prefill = [512 * 8 / ours.seconds(8, 512, 1) for _ in range(args.repeats + 1)][1:]
    print(f"prefill      {statistics.median(prefill):9.0f} tok/s in (8 prompts of 512)")
    joins = [ours.joining_ttft_ms() for _ in range(args.repeats + 1)][1:]
    print(f"TTFT of a request that joins 63 running ones: {statistics.median(joins):.0f} ms")
    engine.stop()
    if peer:
        peer.close()


if __name__ == "__main__":
    main()
