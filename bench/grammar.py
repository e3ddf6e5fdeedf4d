"""What holding answers to a grammar costs on the host: reading the vocabulary, compiling, a mask a token.

    python bench/grammar.py [--vocabulary FILE.gguf] [--rounds 20]

On acorn's vocabulary of 2,048 tokens, and on that of FILE.gguf (Gemma 4's 262,144, say). Each grammar is
walked along a typical answer, from a fresh state in each round. A mask's time is that of
`GrammarGuide.forbid`, which the engine calls while the device computes the logits. Times are the thread's
processor time, so that a busy machine does not add to them. "First" is the first round, in which the
automaton is made as far as it is needed, for later answers too.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import msgspec
import numpy as np
from rich.console import Console
from rich.table import Table

from onechip.engine.guides.grammar import Grammar, Grammars
from onechip.engine.guides.masks import has
from onechip.models.gguf.file import GgufFile
from onechip.models.gguf.metadata import Metadata
from onechip.models.gguf.tokenizer import tokenizer_json
from onechip.models.source import resolve_model
from onechip.models.tokenizer import Tokenizer

FLAT = {
    "type": "object",
    "properties": {
        "city": {"type": "string"},
        "days": {"type": "integer", "minimum": 1, "maximum": 14},
        "unit": {"enum": ["celsius", "fahrenheit"]},
    },
    "required": ["city"],
    "additionalProperties": False,
}
NESTED = {
    "type": "object",
    "properties": {
        "customer": {
            "type": "object",
            "properties": {
                "email": {"type": "string", "format": "email"},
                "name": {"type": "string", "maxLength": 80},
            },
            "required": ["name", "email"],
        },
        "lines": {
            "type": "array",
            "items": {
                "type": "object",
                "properties": {
                    "count": {"type": "integer", "minimum": 1, "maximum": 99},
                    "sku": {"type": "string", "pattern": "^[A-Z]{2}-[0-9]{4}$"},
                },
                "required": ["sku", "count"],
            },
            "minItems": 1,
            "maxItems": 20,
        },
        "note": {"anyOf": [{"type": "string"}, {"type": "null"}]},
    },
    "required": ["customer", "lines", "note"],
}
FLAT_CALL = '<|tool_call>call:weather{city:<|"|>Paris, France<|"|>,days:5,unit:<|"|>celsius<|"|>}<tool_call|>'
NESTED_CALL = (
    '<|tool_call>call:order{customer:{email:<|"|>ann.lee@example.org<|"|>,name:<|"|>Ann Lee<|"|>},'
    'lines:[{count:2,sku:<|"|>AB-1234<|"|>},{count:12,sku:<|"|>XY-0001<|"|>}],'
    'note:<|"|>Please leave it with the neighbours, "number 5".<|"|>}<tool_call|>'
)
NESTED_JSON = (
    '{"customer": {"email": "ann.lee@example.org", "name": "Ann Lee"}, '
    '"lines": [{"count": 2, "sku": "AB-1234"}, {"count": 12, "sku": "XY-0001"}], '
    '"note": "Please leave it with the neighbours, \\"number 5\\"."}'
)
CHOICES = [f"category {n}: goods of kind {n * 7919 % 1000}" for n in range(100)]


@dataclass(frozen=True)
class Case:
    """A grammar, and an answer that it allows."""

    name: str
    make: Callable[[Grammars], Grammar]
    answer: str


def tool(name: str, schema: Mapping[str, Any]) -> dict[str, Any]:
    return {"type": "function", "function": {"name": name, "parameters": schema, "strict": True}}


CASES = (
    Case("call, flat", lambda made: made.calls([tool("weather", FLAT)], required=True), FLAT_CALL),
    Case("call, nested", lambda made: made.calls([tool("order", NESTED)], required=True), NESTED_CALL),
    Case(
        "text, then a call",
        lambda made: made.calls([tool("weather", FLAT)], required=False),
        f"I will look up the weather in Paris for you, for the next five days.{FLAT_CALL}",
    ),
    Case("JSON object", lambda made: made.json_object("-"), NESTED_JSON),
    Case("JSON schema, nested", lambda made: made.json_schema(NESTED, "-"), NESTED_JSON),
    Case(
        "regex",
        lambda made: made.regex(r"[A-Z][a-z]+( [A-Z][a-z]+)*, \d{1,3} years", "-"),
        "Anna Maria Lee, 42 years",
    ),
    Case("choice of 100", lambda made: made.choice(CHOICES, "-"), CHOICES[57]),
)


def mask_times(grammar: Grammar, ids: list[int], vocab: int) -> list[float]:
    """Seconds for each mask along an answer."""
    guide = grammar.guide()
    allowed = np.empty(-(-vocab // 32), np.uint32)
    seconds = []
    for id in ids:
        allowed.fill(0xFFFFFFFF)
        began = time.thread_time()
        guide.forbid(allowed)
        seconds.append(time.thread_time() - began)
        if not has(allowed, id):
            raise SystemExit(f"Token {id} of the answer is not allowed: bench/grammar.py is wrong.")
        guide.take(id)
    return seconds


def measure(title: str, tokenizer: Tokenizer, rounds: int, console: Console) -> None:
    vocab = tokenizer.vocab_size
    made = Grammars(tokenizer, vocab)
    began = time.thread_time()
    made.warm()
    read = time.thread_time() - began
    table = Table(title=f"{title}: {vocab:,} tokens, read in {read:.2f} s")
    for heading in (
        "grammar",
        "tokens",
        "compile ms",
        "first: median us",
        "p99 us",
        "later: median us",
        "p99 us",
    ):
        table.add_column(heading, justify="left" if heading == "grammar" else "right")
    for case in CASES:
        began = time.process_time()  # it is compiled in a thread of its own
        grammar = case.make(made)
        compiled = time.process_time() - began
        ids = tokenizer.encode(case.answer)
        first = mask_times(grammar, ids, vocab)
        later = [seconds for _ in range(rounds) for seconds in mask_times(grammar, ids, vocab)]
        figures = [1e6 * np.quantile(times, share) for times in (first, later) for share in (0.5, 0.99)]
        table.add_row(
            case.name, str(len(ids)), f"{1e3 * compiled:.1f}", *(f"{figure:.0f}" for figure in figures)
        )
    console.print(table)


def gguf_tokenizer(file: Path) -> Tokenizer:
    with TemporaryDirectory() as folder:
        content = msgspec.json.encode(tokenizer_json(Metadata.read([GgufFile(file)])))
        (Path(folder) / "tokenizer.json").write_bytes(content)
        return Tokenizer.load(Path(folder), [])


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", 1)[0])
    parser.add_argument("--vocabulary", type=Path, help="a GGUF file; its vocabulary is measured too")
    parser.add_argument("--rounds", type=int, default=20)
    wishes = parser.parse_args()
    console = Console(width=110)
    measure("acorn", Tokenizer.load(resolve_model("acorn"), []), wishes.rounds, console)
    if wishes.vocabulary:
        measure(wishes.vocabulary.name, gguf_tokenizer(wishes.vocabulary), wishes.rounds, console)


if __name__ == "__main__":
    main()
