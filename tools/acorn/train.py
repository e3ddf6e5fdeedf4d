"""From one seed to the installed model: tokenizer, training with checkpoints and a curve, installation.

`python -m tools.acorn.train` goes on where an earlier run stopped; tools/acorn/out holds what it keeps.
"""

from __future__ import annotations

import argparse
import json
import time
from functools import partial
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax

from onechip.models import decoder
from onechip.models.config import ModelConfig, parse_config
from onechip.models.layout import Params
from onechip.models.tokenizer import Tokenizer
from tools.acorn import questions, vocabulary
from tools.acorn.batches import SHORT, Batch, Batches
from tools.acorn.greedy import Greedy
from tools.acorn.install import install
from tools.acorn.model import CONFIG, fresh_params
from tools.acorn.optimizer import optimizer
from tools.acorn.samples import Sampler, texts

OUT = Path(__file__).parent / "out"
SEED = 20260417
STEPS = 1000
CHECK_EVERY = 50
TOKENIZER_TEXTS = 8000
VALIDATION = (100, 60)
"""Problems and calls of the learning curve."""

State = tuple[Params, optax.OptState]


def loss(config: ModelConfig, params: Params, batch: Batch) -> jax.Array:
    """Mean cross entropy of the learned tokens, in bfloat16 but for the logits."""
    rounded = jax.tree.map(lambda leaf: leaf.astype(jnp.bfloat16), params)
    same = (batch.documents[:, :, None] == batch.documents[:, None, :]) & (batch.documents[:, :, None] > 0)
    logits = decoder.forward(
        config, rounded, batch.tokens, batch.positions, dtype=jnp.dtype(jnp.bfloat16), mask=same
    )
    losses = optax.softmax_cross_entropy_with_integer_labels(logits, batch.targets)
    return (losses * batch.weights).sum() / batch.weights.sum()


def step_program(config: ModelConfig, steps: int) -> Any:
    """One optimizer step: (state, batch) -> (state, loss)."""

    @partial(jax.jit, donate_argnums=0)
    def step(state: State, batch: Batch) -> tuple[State, jax.Array]:
        params, moments = state
        value, gradient = jax.value_and_grad(partial(loss, config))(params, batch)
        updates, moments = optimizer(steps).update(gradient, moments, params)
        return (optax.apply_updates(params, updates), moments), value

    return step


class Run:
    """A training run and its folder."""

    def __init__(self, steps: int, seed: int, out: Path) -> None:
        self._steps, self._out = steps, out
        self._config = parse_config(CONFIG)
        self._tokenizer = prepare_tokenizer(out, seed)
        self._batches = Batches(self._tokenizer, seed)
        params = jax.tree.map(jnp.asarray, fresh_params(self._config, seed))
        self._state: State = (params, optimizer(steps).init(params))
        self._done, self._tokens, self._learned, self._cpu_s = 0, 0, 0, 0.0
        if self._checkpoint.exists():
            self._restore()

    def train(self) -> None:
        step = step_program(self._config, self._steps)
        losses: list[float] = []
        cpu = time.process_time()
        while self._done < self._steps:
            batch = self._batches.at(self._done)
            self._state, value = step(self._state, batch)
            losses.append(float(value))
            self._done += 1
            self._tokens += int((batch.documents > 0).sum())
            self._learned += int(batch.weights.sum())
            if self._done % CHECK_EVERY == 0 or self._done == self._steps:
                now = time.process_time()
                self._cpu_s, cpu = self._cpu_s + now - cpu, now
                self._log(sum(losses) / len(losses))
                self._save()
                losses = []

    def install(self) -> None:
        install(self._state[0], self._out / "tokenizer.json")

    def _log(self, mean_loss: float) -> None:
        problems, calls = self._validate()
        line = {
            "step": self._done,
            "tokens": self._tokens,
            "learned_tokens": self._learned,
            "loss": round(mean_loss, 4),
            "problems_exact": problems,
            "calls_exact": calls,
            "cpu_s": round(self._cpu_s),
            "time": time.strftime("%Y-%m-%d %H:%M:%S"),
        }
        with (self._out / "curve.jsonl").open("a", encoding="utf-8") as file:
            file.write(json.dumps(line) + "\n")
        print(json.dumps(line), flush=True)

    def _validate(self) -> tuple[float, float]:
        """Shares of held-out answers that are exactly the generator's: a lower bound of greedy accuracy."""
        sampler = Sampler()
        greedy = Greedy(
            self._config, self._state[0], self._tokenizer, jnp.dtype(jnp.float32), length=SHORT.length
        )
        count, others = VALIDATION
        problems = questions.problems(questions.VALIDATION_SEED, count)
        calls = questions.calls(questions.VALIDATION_SEED, others)
        right = greedy.exact([questions.problem_task(sampler, each) for each in problems])
        called = greedy.exact([questions.call_task(sampler, each) for each in calls])
        return right / count, called / others

    @property
    def _checkpoint(self) -> Path:
        return self._out / "checkpoint.npz"

    def _save(self) -> None:
        leaves = {f"leaf{index}": leaf for index, leaf in enumerate(jax.tree.leaves(self._state))}
        counts = np.array([self._done, self._tokens, self._learned, self._cpu_s])
        fresh = self._out / "checkpoint.new.npz"
        np.savez(fresh, counts=counts, **leaves)
        fresh.replace(self._checkpoint)

    def _restore(self) -> None:
        with np.load(self._checkpoint) as stored:
            leaves, tree = jax.tree.flatten(self._state)
            read = [jnp.asarray(stored[f"leaf{index}"]) for index in range(len(leaves))]
            self._state = jax.tree.unflatten(tree, read)
            done, tokens, learned, cpu_s = stored["counts"]
        self._done, self._tokens, self._learned, self._cpu_s = (
            int(done),
            int(tokens),
            int(learned),
            float(cpu_s),
        )
        print(f"going on from step {self._done} of {self._steps}", flush=True)


def prepare_tokenizer(out: Path, seed: int) -> Tokenizer:
    """The run's tokenizer, built before its first step."""
    if not (out / "tokenizer.json").exists():
        out.mkdir(parents=True, exist_ok=True)
        vocabulary.write(vocabulary.build(texts(seed, TOKENIZER_TEXTS)), out / "tokenizer.json")
    return Tokenizer.load(out, CONFIG["eos_token_id"])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--steps", type=int, default=STEPS, help="optimizer steps in all (default %(default)s)"
    )
    parser.add_argument("--out", type=Path, default=OUT, help="folder of the run (default %(default)s)")
    arguments = parser.parse_args()
    run = Run(arguments.steps, SEED, arguments.out)
    run.train()
    run.install()
    questions.write_shipped()


if __name__ == "__main__":
    main()
