"""Greedy agreement: the same questions to several engines, what each wrote, and where they part -> a table.

    python bench/greedy.py DIR --engines onechip:f32,llama.cpp:f32,mistral.rs:f32 --out docs/greedy.md
    python bench/greedy.py DIR                  # the table again, from the records in DIR

The first engine is the one that the others are compared with. DIR is an ordinary results folder: the ladder
asks the questions (job `acc`, temperature 0, one at a time), and this script only reads its records. Where
two texts part, the model says in float32 how near the call was: the gap between the logits of the two tokens
that were written there, beside what is usual between the first and the second choice.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from onechip.errors import OnechipError
from onechip.ladder import answers, data
from onechip.ladder.answers import Sheet
from onechip.ladder.journal import Journal
from onechip.ladder.records import RequestRecord
from onechip.models import decoder
from onechip.models.chat_template import ChatTemplate
from onechip.models.config import ModelConfig, read_config
from onechip.models.layout import Params
from onechip.models.source import resolve_model
from onechip.models.tokenizer import Tokenizer
from onechip.models.weights import load_weights

SHOWN = 12
"""Answers that differ, in the page."""


@dataclass(frozen=True)
class Parting:
    """Where an engine's answer leaves the reference's.

    Attributes:
        position: of the first other token, counted from the start of the answer.
        ours, theirs: the token that each wrote there, spelled; the end of the turn counts as one.
        gap: how much higher the logit of ours is, in float32. margin: median over the common tokens of how
            much higher the first logit is than the second. Both None where there is nothing to compute.
    """

    question: str
    engine: str
    position: int
    ours: str
    theirs: str
    gap: float | None = None
    margin: float | None = None


@dataclass(frozen=True)
class Row:
    """One engine and one question set: in `same` of `asked` answers it wrote what the reference wrote.

    In `unparsed` of those, a tool call came back as text.
    """

    engine: str
    variant: str
    asked: int
    same: int
    unparsed: int = 0


def said(record: RequestRecord) -> tuple[str, list[tuple[str, Any]]]:
    """What counts of an answer: its text, and its tool calls with their arguments as values."""
    calls = [(call["name"], _value(call["arguments"])) for call in record.extra.get("tool_calls", [])]
    return record.text, calls


def _value(arguments: str) -> Any:
    try:
        return json.loads(arguments)
    except ValueError:
        return arguments


def spelled(record: RequestRecord) -> str:
    """The tool calls of an answer as the model writes them, less the tokens that no text shows."""
    calls = said(record)[1]
    return "".join(f"call:{name}{_notation(arguments)}" for name, arguments in calls)


def _notation(value: Any) -> str:
    """A value in Gemma 4's notation without its quotes."""
    if isinstance(value, dict):
        return "{" + ",".join(f"{key}:{_notation(member)}" for key, member in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ",".join(map(_notation, value)) + "]"
    return value if isinstance(value, str) else json.dumps(value)


def left_as_text(ours: RequestRecord, theirs: RequestRecord) -> bool:
    """Whether the other server gave the same tool calls, but as text."""
    return bool(said(ours)[1]) and not said(theirs)[1] and theirs.text.strip() == spelled(ours)


def compare(ours: Sheet, theirs: Sheet) -> tuple[int, list[str], int]:
    """How many questions both answered, which of them differently, and how many calls were left as text."""
    both = [question for question in ours if question in theirs]
    texts = [name for name in both if left_as_text(ours[name], theirs[name])]
    other = [name for name in both if said(ours[name]) != said(theirs[name]) and name not in texts]
    return len(both), other, len(texts)


@partial(jax.jit, static_argnames="config")
def _logits(config: ModelConfig, params: Params, tokens: jax.Array) -> jax.Array:
    """tokens [1, T] -> [1, T, V] float32."""
    positions = jnp.arange(tokens.shape[1], dtype=jnp.int32)[None]
    return decoder.forward(config, params, tokens, positions, dtype=jnp.float32)


class Judge:
    """The model in float32, which says how near a call was."""

    def __init__(self, model: str) -> None:
        folder = resolve_model(model)
        self.config = read_config(folder)
        self.params = load_weights(folder, self.config, dense_dtype=np.dtype(np.float32))
        self.tokenizer = Tokenizer.load(folder, self.config.eos_ids)
        self.template = ChatTemplate.load(folder)
        self.questions = {
            question.id: question.fields
            for questions in data.load("acorn", None, 0)
            for question in questions.questions
        }

    def part(self, engine: str, ours: RequestRecord, theirs: RequestRecord) -> Parting:
        """Two different answers to one question."""
        name = str(ours.extra["question"])
        if said(ours)[1] or said(theirs)[1]:
            return Parting(name, engine, 0, _call(ours), _call(theirs))
        first, second = (self._ids(record) for record in (ours, theirs))
        position = next(
            (at for at, (a, b) in enumerate(zip(first, second, strict=False)) if a != b),
            min(len(first), len(second)),
        )
        mine, other = (ids[position] if position < len(ids) else self._end() for ids in (first, second))
        gap, margin = self._gap(name, first[:position], mine, other)
        spelled = (self.tokenizer.token(token) for token in (mine, other))
        return Parting(name, engine, position, *spelled, gap, margin)

    def _ids(self, record: RequestRecord) -> list[int]:
        """Tokens of an answer; one that ended by itself has an end token, which no text shows."""
        ids = self.tokenizer.encode(record.text)
        return [*ids, self._end()] if record.finish == "stop" else ids

    def _end(self) -> int:
        return self.tokenizer.token_id("<turn|>") or max(self.tokenizer.stop_ids)

    def _gap(self, question: str, common: Sequence[int], mine: int, other: int) -> tuple[float, float]:
        assert self.template is not None
        fields = self.questions[question]
        prompt = self.template.render(fields["messages"], fields.get("tools"))
        before = self.tokenizer.encode(prompt)
        ids = [*before, *common]
        # One shape for all, so that it is compiled once: causal, so what stands behind changes nothing.
        padded = np.zeros((1, -(-len(ids) // 256) * 256), np.int32)
        padded[0, : len(ids)] = ids
        out = _logits(self.config, self.params, jnp.asarray(padded))
        logits = np.asarray(out)[0, len(before) - 1 : len(ids)]
        best = np.sort(logits, axis=-1)
        return float(logits[-1, mine] - logits[-1, other]), float(np.median(best[:, -1] - best[:, -2]))


def _call(record: RequestRecord) -> str:
    text, calls = said(record)
    return "; ".join(f"{name}({json.dumps(value, sort_keys=True)})" for name, value in calls) or text


def ask(folder: Path, model: str, engines: str, limit: int) -> None:
    """Runs the ladder that asks the questions, or goes on with it."""
    onechip = [sys.executable, "-m", "onechip.cli", "ladder"]
    if (folder / "manifest.json").exists():
        command = [*onechip, "resume", str(folder)]
    else:
        how = ["--jobs", "acc", "--acc-limit", str(limit), "--acc-level", "1", "--out", str(folder)]
        command = [*onechip, "run", model, "--engines", engines, *how]
    subprocess.run(command, check=True)


def read(folder: Path) -> tuple[list[Row], list[Parting], str, dict[str, Any]]:
    """Rows, partings, the reference's name and the manifest of a results folder."""
    manifest = json.loads((folder / "manifest.json").read_bytes())
    sheets = answers.sheets(Journal(folder).records)
    arms = [arm["name"] for arm in manifest["plan"]["arms"]]
    judge: Judge | None = None
    rows: list[Row] = []
    partings: list[Parting] = []
    for (arm, variant), sheet in sheets.items():
        if arm == arms[0] or (arms[0], variant) not in sheets:
            continue
        ours = sheets[arms[0], variant]
        asked, other, texts = compare(ours, sheet)
        rows.append(Row(arm, variant, asked, asked - len(other), texts))
        for name in other:
            judge = judge or Judge(manifest["plan"]["model"])
            partings.append(judge.part(arm, ours[name], sheet[name]))
    return rows, partings, arms[0], manifest


def page(rows: Sequence[Row], partings: Sequence[Parting], reference: str, versions: dict[str, str]) -> str:
    """The table as Markdown."""
    lines = [
        f"Answers that are, to the last character, what `{reference}` wrote (tool calls: the same name and"
        " the same values), greedy, one request at a time:",
        "",
        "| engine | version | question set | asked | the same | of those, a call left as text |",
        "|---|---|---|---|---|---|",
    ]
    lines += [
        f"| {row.engine} | {versions.get(row.engine, '')} | {row.variant} | {row.asked} | {row.same} |"
        f" {row.unparsed or ''} |"
        for row in rows
    ]
    if partings:
        lines += [
            "",
            "Where they part: the first other token, counted from the start of the answer; by how much the"
            " float32 logit of the reference's token is the higher there; and how much higher the first"
            " choice is than the second as a rule, the median over the tokens up to there.",
            "",
            "| engine | question | token | reference wrote | it wrote | gap | usual gap |",
            "|---|---|---|---|---|---|---|",
        ]
        lines += [
            f"| {part.engine} | {part.question} | {part.position} | `{part.ours}` | `{part.theirs}` |"
            f" {_number(part.gap)} | {_number(part.margin)} |"
            for part in partings[:SHOWN]
        ]
        if len(partings) > SHOWN:
            lines += ["", f"{len(partings) - SHOWN} more are in the records."]
    return "\n".join(lines) + "\n"


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:.3g}"


def main() -> None:
    parser = argparse.ArgumentParser(description="Compares what engines write, greedy, question by question.")
    parser.add_argument("folder", type=Path, help="results folder; made if it is not there")
    parser.add_argument("--engines", default="", help="as in `onechip ladder`, the reference first")
    parser.add_argument("--model", default="acorn")
    parser.add_argument("--limit", type=int, default=100, help="questions of each set")
    parser.add_argument("--out", type=Path, help="Markdown file; printed in any case")
    options = parser.parse_args()
    if options.engines:
        ask(options.folder, options.model, options.engines, options.limit)
    try:
        rows, partings, reference, manifest = read(options.folder)
    except OnechipError as error:
        sys.exit(f"greedy: {error.message}")
    versions = {arm["name"]: arm.get("version") or "" for arm in manifest["arms"]}
    text = page(rows, partings, reference, versions)
    print(text)
    if options.out:
        options.out.write_text(text)


if __name__ == "__main__":
    main()
