"""What the host adds to the device's work: a tiny model at 64 requests, where Python could be the limit.

    python bench/host.py [MODEL] [--requests 64] [--repeats 5]

The engine's thread is timed part by part, without HTTP: it waits for the device, or it plans, dispatches,
reads results into events and delivers them. A dispatch may wait for the device too, so what is said to be
the host's alone are the parts that never touch it. Medians of the repeats.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest import mock

from bench.engine import OUTPUT_TOKENS, PROMPT_TOKENS, Load

from onechip.engine import core, scheduler
from onechip.engine.core import Engine
from onechip.engine.types import EngineConfig
from onechip.models.source import resolve_model

PARTS: dict[str, tuple[Any, str]] = {
    "wait for the device": (core._InFlight, "results"),
    "dispatch prefill": (Engine, "_prefill"),
    "dispatch join": (Engine, "_join"),
    "dispatch decode": (Engine, "_decode"),
    "take requests": (Engine, "_take_inbox"),
    "plan a turn": (scheduler, "plan"),
    "tokens into events": (scheduler, "apply"),
    "deliver events": (Engine, "_hand_over"),
}
HOST = ("take requests", "plan a turn", "tokens into events", "deliver events")
"""Parts that never wait for the device."""


class Clock:
    """Seconds spent in each part of the engine's thread."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = defaultdict(float)

    def timed(self, name: str, function: Callable[..., Any]) -> Callable[..., Any]:
        def call(*args: Any, **options: Any) -> Any:
            began = time.perf_counter()
            try:
                return function(*args, **options)
            finally:
                self.seconds[name] += time.perf_counter() - began

        return call

    def watch(self) -> None:
        """Times all parts from now on."""
        for name, (owner, attribute) in PARTS.items():
            mock.patch.object(owner, attribute, self.timed(name, getattr(owner, attribute))).start()


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("model", nargs="?", default="acorn")
    parser.add_argument("--requests", type=int, default=64)
    parser.add_argument("--repeats", type=int, default=5)
    args = parser.parse_args()

    engine = Engine.load(EngineConfig(Path(resolve_model(args.model))), lambda *_: None)
    clock = Clock()
    clock.watch()
    load = Load(engine, engine.tokenizer.vocab_size)
    load.seconds(args.requests, PROMPT_TOKENS, OUTPUT_TOKENS)
    walls, parts = [], []
    for _ in range(args.repeats):
        clock.seconds.clear()
        walls.append(load.seconds(args.requests, PROMPT_TOKENS, OUTPUT_TOKENS))
        parts.append(dict(clock.seconds))
    engine.stop()

    wall = statistics.median(walls)
    tokens = args.requests * OUTPUT_TOKENS
    print(f"{args.model}, {args.requests} requests of {PROMPT_TOKENS} in, {OUTPUT_TOKENS} out: {wall:.3f} s,")
    print(f"{tokens / wall:,.0f} tokens/s, {args.repeats} repeats.\n")
    print("| part of the engine's thread | ms | share | us a token |\n|---|---|---|---|")
    medians = {name: statistics.median(part.get(name, 0.0) for part in parts) for name in PARTS}
    host = sum(medians[name] for name in HOST)
    for name, seconds in (*medians.items(), ("**host alone**", host)):
        print(f"| {name} | {seconds * 1e3:.1f} | {seconds / wall:.1%} | {seconds / tokens * 1e6:.2f} |")


if __name__ == "__main__":
    main()
