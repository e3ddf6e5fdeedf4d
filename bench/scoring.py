"""How fast prompts are scored, beside how fast they are read and answers are written -> a table of medians.

    python -m bench.scoring [MODEL] [--repeats 5] [--tokens 1000] [--crowd 16]

All in turns in one run, on one engine without prefix reuse. Tokens a second are those of the prompts, and for
"written" those of an answer of the same length with the log-probability of each token, as prompts were scored
before there was a program for it.
"""

from __future__ import annotations

import argparse
import itertools
import statistics
import time
from pathlib import Path
from typing import get_args

import numpy as np
from bench.prefix import Asker

from onechip.engine.core import Engine
from onechip.engine.types import Dtype, EngineConfig, Request, SamplingParams
from onechip.models.config import read_config
from onechip.models.source import resolve_model

_names = itertools.count()


def requests(way: str, prompts: list[tuple[int, ...]]) -> list[Request]:
    """What is asked of each prompt."""
    name = f"{way} {next(_names)}"
    if way == "scored":
        return [
            Request(f"{name} {n}", prompt, SamplingParams(logprobs=1), scored=True)
            for n, prompt in enumerate(prompts)
        ]
    if way == "read":
        return [
            Request(f"{name} {n}", prompt, SamplingParams(max_tokens=1)) for n, prompt in enumerate(prompts)
        ]
    written = [SamplingParams(max_tokens=len(prompt) - 1, ignore_eos=True, logprobs=1) for prompt in prompts]
    return [
        Request(f"{name} {n}", prompt[:1], params)
        for n, (prompt, params) in enumerate(zip(prompts, written, strict=True))
    ]


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("model", nargs="?", default="acorn")
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--tokens", type=int, default=1000, help="of each prompt")
    parser.add_argument("--crowd", type=int, default=16, help="prompts at once")
    parser.add_argument("--dtype", choices=get_args(Dtype), default="auto")
    parser.add_argument("--cache-dir", type=Path, help="where compiled programs are kept")
    parser.add_argument("--without", default="", help='ways to leave out, as "written"')
    options = parser.parse_args()
    model = resolve_model(options.model)
    config = EngineConfig(
        model, context=options.tokens, dtype=options.dtype, cache_dir=options.cache_dir, reuse=False
    )
    asker = Asker(engine := Engine.load(config, lambda stage, share: None))
    began = time.perf_counter()
    engine.prepare_scoring()
    print(f"{engine.description}\nthe program was made in {time.perf_counter() - began:.1f} s", flush=True)
    rng, vocab = np.random.default_rng(0), read_config(model).vocab
    ways = [way for way in ("read", "scored", "written") if way not in options.without.split(",")]
    print("| prompts at once | way | prompt tok/s | of read |\n|---|---|---|---|")
    for count in (1, options.crowd):
        speeds: dict[str, list[float]] = {way: [] for way in ways}
        for repeat in range(options.repeats + 1):  # the first is for warming up
            prompts = [
                tuple(rng.integers(vocab // 2, vocab, options.tokens - 1).tolist()) for _ in range(count)
            ]
            for way in ways:
                asked = requests(way, prompts)
                began = time.perf_counter()
                asker.run(*asked)
                seconds = time.perf_counter() - began
                if repeat:
                    speeds[way].append(count * options.tokens / seconds)
        read = statistics.median(speeds["read"])
        for way, values in speeds.items():
            speed = statistics.median(values)
            print(f"| {count} | {way} | {speed:.0f} | {speed / read:.2f} |", flush=True)
    engine.stop()


if __name__ == "__main__":
    main()
