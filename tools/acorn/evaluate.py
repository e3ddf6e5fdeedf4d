"""How often a trained acorn is right: greedy, on the shipped questions, in float32, bfloat16 and int4.

Questions, prompts and scorers are the ladder's own; the forward pass is the whole one, without a cache.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import jax.numpy as jnp

from onechip.ladder import data
from onechip.models.chat_parser import CallArguments, CallOpen, ChatParser, Text
from onechip.models.chat_template import ChatTemplate
from onechip.models.config import read_config
from onechip.models.layout import Params
from onechip.models.leaf import quantize_params
from onechip.models.tokenizer import Tokenizer
from onechip.models.weights import load_weights
from tools.acorn import questions
from tools.acorn.greedy import Greedy, Task
from tools.acorn.samples import END_OF_TURN, MODEL_DIR, called

LENGTH = 384
LATE_COUNT = 60
LATE_LENGTHS = (512, 1024, 2048)
"""Tokens of prompt and answer, for questions at the end of a long chat; training saw 1,024."""


@dataclass(frozen=True, slots=True)
class Asked:
    """A question of the ladder, with the prompt that it becomes and the generator's answer."""

    question: data.Question
    task: Task
    headline: str


def wilson(right: int, total: int) -> tuple[float, float]:
    """95 % interval of a share (Wilson 1927, doi:10.1080/01621459.1927.10502953)."""
    z, share = 1.959964, right / total
    middle = (share + z * z / (2 * total)) / (1 + z * z / total)
    reach = z * (share * (1 - share) / total + z * z / (4 * total * total)) ** 0.5 / (1 + z * z / total)
    return middle - reach, middle + reach


class Evaluation:
    """A checkpoint folder with dense weights, and the shipped questions."""

    def __init__(self, folder: Path) -> None:
        self._config = read_config(folder)
        self._tokenizer = Tokenizer.load(folder, self._config.eos_ids)
        self._template = ChatTemplate.load(folder)
        params = load_weights(folder, self._config)
        self._arms: dict[str, tuple[Params, type]] = {
            "bf16 weights, float32 activations": (params, jnp.float32),
            "bf16 weights, bf16 activations": (params, jnp.bfloat16),
            "W4A16 weights, bf16 activations": (quantize_params(params, self._config), jnp.bfloat16),
        }

    def shipped(self) -> Iterator[str]:
        """One Markdown table row for each set and arm."""
        for asked in self._sets():
            reference: list[bool] = []
            for name, (params, dtype) in self._arms.items():
                right = self._right(asked, params, dtype)
                reference = reference or right
                lost = sum(before and not now for before, now in zip(reference, right, strict=True))
                won = sum(now and not before for before, now in zip(reference, right, strict=True))
                kind = asked[0].headline
                yield f"| {kind} | {name} | {share(right)} | {lost} / {won} |"

    def late(self) -> Iterator[str]:
        """One line for each length of chat before the question."""
        params, dtype = self._arms["bf16 weights, bf16 activations"]
        for length in LATE_LENGTHS:
            tasks = questions.late_problem_tasks(self._tokenizer, length, LATE_COUNT)
            exact = Greedy(self._config, params, self._tokenizer, jnp.dtype(dtype), length).exact(tasks)
            yield f"| {length} | {share([True] * exact + [False] * (LATE_COUNT - exact))} |"

    def _sets(self) -> list[list[Asked]]:
        sets = data.load("acorn", None, acorn_tokens=LENGTH)
        seed = questions.SHIPPED_SEED
        answers = [
            [each.answer + END_OF_TURN for each in questions.problems(seed, questions.SHIPPED_PROBLEMS)],
            [called(each).text for each in questions.calls(seed, questions.SHIPPED_CALLS)],
        ]
        return [
            [
                self._asked(question, answer, one.headline)
                for question, answer in zip(one.questions, these, strict=True)
            ]
            for one, these in zip(sets, answers, strict=True)
        ]

    def _asked(self, question: data.Question, answer: str, headline: str) -> Asked:
        prompt = self._template.render(question.fields["messages"], question.fields.get("tools"))
        return Asked(question, Task(prompt, answer), headline)

    def _right(self, asked: list[Asked], params: Params, dtype: type) -> list[bool]:
        greedy = Greedy(self._config, params, self._tokenizer, jnp.dtype(dtype), LENGTH)
        answers = greedy.answers([each.task for each in asked])
        return [self._score(each, ids) for each, ids in zip(asked, answers, strict=True)]

    def _score(self, asked: Asked, ids: list[int]) -> bool:
        parser = ChatParser(self._tokenizer, asked.question.fields.get("tools"), [])
        deltas = [*parser.push(ids), *parser.finish()]
        text = "".join(delta.text for delta in deltas if isinstance(delta, Text))
        names = [delta.name for delta in deltas if isinstance(delta, CallOpen)]
        arguments = [""] * len(names)
        for delta in deltas:
            if isinstance(delta, CallArguments):
                arguments[delta.index] += delta.fragment
        calls = [{"name": name, "arguments": text} for name, text in zip(names, arguments, strict=True)]
        return asked.question.score(text, calls)[1][asked.headline]


def share(right: list[bool]) -> str:
    low, high = wilson(sum(right), len(right))
    return f"{sum(right) / len(right):.3f} ({sum(right)}/{len(right)}), {low:.3f} to {high:.3f}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "folder", type=Path, nargs="?", default=MODEL_DIR, help="default: the installed model"
    )
    evaluation = Evaluation(parser.parse_args().folder)
    for row in evaluation.shipped():
        print(row, flush=True)
    for row in evaluation.late():
        print(row, flush=True)


if __name__ == "__main__":
    main()
