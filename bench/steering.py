"""What steered requests cost: each wish beside plain requests, in turns, in one run -> a table of ratios.

    python bench/steering.py [MODEL] [--repeats 5] [--tokens 64] [--levels 1,8,64]

A plain request runs in windows of several steps; a steered one step by step, since the host has a say in each
token (engine/steering.py). "one step at a time" asks for log-probabilities of the chosen token alone, so it
is what that way of running costs; what a grammar costs beyond it was not hidden behind the device's own step.
`mask` is the host's time per step for the masks of all requests.
"""

from __future__ import annotations

import argparse
import statistics
import time
from functools import partial
from pathlib import Path
from typing import Any
from unittest import mock

from bench.engine import PROMPT_TOKENS, Load, Wish, alternate, median_and_spread

from onechip.engine.core import Engine
from onechip.engine.guides.grammar import Grammars
from onechip.engine.steering import Steering
from onechip.engine.types import EngineConfig
from onechip.models.config import read_config
from onechip.models.source import resolve_model

ITEM = {
    "type": "object",
    "properties": {
        "name": {"type": "string"},
        "kind": {"enum": ["order", "offer", "return"]},
        "count": {"type": "integer"},
        "tags": {"type": "array", "items": {"type": "string"}},
    },
    "required": ["name", "kind", "count", "tags"],
    "additionalProperties": False,
}
SCHEMA = {"type": "array", "items": ITEM, "minItems": 1000}
"""Longer than any answer here, so that every token of it is chosen under the grammar."""


def wishes(engine: Engine, model: Path) -> dict[str, Wish]:
    """Name of a row -> what its requests ask for."""
    grammar = Grammars(engine.tokenizer, read_config(model).vocab).json_schema(SCHEMA, "schema")
    return {
        "plain": Wish(),
        "one step at a time": Wish({"logprobs": 0}),
        "logprobs, 5 likeliest": Wish({"logprobs": 5}),
        "all three penalties": Wish(
            {"frequency_penalty": 0.5, "presence_penalty": 0.5, "repetition_penalty": 1.1}
        ),
        "JSON schema": Wish({}, lambda: (grammar.guide(),)),
        "JSON schema, drawn": Wish({"temperature": 1.0, "top_p": 0.95}, lambda: (grammar.guide(),)),
    }


class MaskClock:
    """The time that Steering.steer takes, each call."""

    def __init__(self) -> None:
        self.seconds: list[float] = []
        steer = Steering.steer

        def timed(*args: Any) -> Any:
            began = time.perf_counter()
            found = steer(*args)
            self.seconds.append(time.perf_counter() - began)
            return found

        mock.patch.object(Steering, "steer", timed).start()

    def take_ms(self) -> float:
        """Median since the last call; 0 if there was no step."""
        seconds, self.seconds[:] = list(self.seconds), []
        return statistics.median(seconds) * 1e3 if seconds else 0.0


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("model", nargs="?", default="acorn")
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--tokens", type=int, default=64)
    parser.add_argument("--levels", default="1,8,64", help="how many requests at once, separated by commas")
    args = parser.parse_args()

    model = Path(resolve_model(args.model))
    engine = Engine.load(EngineConfig(model), lambda *_: None)
    load, clock = Load(engine, engine.tokenizer.vocab_size), MaskClock()
    rows = wishes(engine, model)
    masks: dict[tuple[int, str], list[float]] = {}

    def arm(level: int, name: str) -> float:
        seconds = load.seconds(level, PROMPT_TOKENS, args.tokens, rows[name])
        masks.setdefault((level, name), []).append(clock.take_ms())
        return level * args.tokens / seconds

    print(f"{args.model}, {PROMPT_TOKENS} tokens in, {args.tokens} out, {args.repeats} repeats, medians")
    print("| requests | asks for | tok/s | spread | of plain | mask, ms a step |\n|---|---|---|---|---|---|")
    for level in map(int, args.levels.split(",")):
        arms = [partial(arm, level, name) for name in rows]
        for run in arms:
            run()  # what is only slow the first time
        masks.clear()
        figures = alternate(args.repeats, *arms)
        plain = statistics.median(figures[0])
        for name, speeds in zip(rows, figures, strict=True):
            middle, spread = median_and_spread(speeds)
            mask = statistics.median(masks[level, name])
            print(f"| {level} | {name} | {middle:,.0f} | {spread:.0%} | {middle / plain:.2f} | {mask:.2f} |")
    engine.stop()


if __name__ == "__main__":
    main()
