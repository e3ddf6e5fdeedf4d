"""The deepest grammars that the limits allow, each compiled in this process: a stack that ends kills it.

python -m tests.engine.guides.deep
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from onechip.engine.guides import large_stack
from onechip.engine.guides.grammar import Grammar, Grammars
from onechip.errors import RequestError
from onechip.models.source import resolve_model
from onechip.models.tokenizer import Tokenizer
from tests.engine.guides.walks import allowed_ids


def chain(first: str, link: str, last: str) -> str:
    """As many rules, one leading to the next, as a grammar may have characters."""
    lines, size = [first], len(first)
    while size < 99_900:
        lines.append(link.format(len(lines) - 1, len(lines)))
        size += len(lines[-1]) + 1
    return "\n".join([*lines, last.format(len(lines) - 1)])


def references(count: int, link: Callable[[str], Any]) -> dict[str, Any]:
    """Definitions, each of which refers to the next."""
    found = {str(index): link(f"#/$defs/{index + 1}") for index in range(count)}
    return {"$defs": {**found, str(count): {"type": "null"}}, "$ref": "#/$defs/0"}


def member(reference: str) -> Any:
    return {"type": "object", "properties": {"a": {"$ref": reference}}, "required": ["a"]}


def forced(made: Grammars, schema: Any) -> Grammar:
    return made.calls([{"type": "function", "function": {"name": "f", "parameters": schema}}], required=True)


def cases(made: Grammars) -> Iterator[tuple[str, Callable[[], Grammar]]]:
    """Each kind of grammar that llguidance, or a part of ours, goes down into step by step."""
    yield "rules", lambda: made.lark(chain("start: r0", 'r{}: "x" r{}', 'r{}: "z"'), "g")
    yield "short rules", lambda: made.lark(chain("start: r0", "r{}:r{}", 'r{}: "z"'), "g")
    yield "terminals", lambda: made.lark(chain("start: T0", 'T{}: "x" T{}', 'T{}: "z"'), "g")
    yield "negated", lambda: made.lark(chain("start: T0", "T{}:~T{}", 'T{}: "z"'), "g")
    yield "GBNF", lambda: made.ebnf(chain("root::=r0", 'r{}::="x"r{}', 'r{}::="z"'), "g")
    yield "GBNF, recursive", lambda: made.ebnf(chain("root::=r0", 'r{}::="x"r{}', 'r{}::=root|"z"'), "g")
    yield "GBNF, groups", lambda: made.ebnf("root ::= " + "(" * 40_000 + '"a"' + ")" * 40_000, "g")
    yield "groups", lambda: made.lark("start: " + "(" * 40_000 + '"a"' + ")" * 40_000, "g")
    yield "regex", lambda: made.regex("(" * 40_000 + "a" + ")" * 40_000, "g")
    yield "options", lambda: made.regex("(a" * 200 + ")?" * 200, "g")
    yield "references", lambda: made.json_schema(references(9_990, lambda to: {"$ref": to}), "g")
    yield "objects", lambda: made.json_schema(references(3_300, member), "g")
    yield "lists", lambda: made.json_schema(references(4_900, lambda to: {"items": {"$ref": to}}), "g")
    yield (
        "alternatives",
        lambda: made.json_schema(references(4_900, lambda to: {"anyOf": [{"$ref": to}]}), "g"),
    )
    yield "nested", lambda: made.lark("start: %json " + '{"items":' * 9_000 + "{}" + "}" * 9_000, "g")
    optional = {"type": "object", "properties": {f"p{index}": {"type": "null"} for index in range(2_000)}}
    yield "members", lambda: made.json_schema(optional, "g")
    yield "a call", lambda: forced(made, optional)
    yield "a call, references", lambda: forced(made, references(3_300, member))
    yield "a call, only references", lambda: forced(made, references(9_990, lambda to: {"$ref": to}))


def begin(grammar: Grammar, vocab: int) -> None:
    """Ask for the first masks, along the first token that each allows."""
    guide = grammar.guide()
    for _ in range(8):
        allowed = allowed_ids(guide, vocab)
        guide.take(int(allowed[-1]))


def main() -> None:
    large_stack.STACK //= 4
    tokenizer = Tokenizer.load(resolve_model("acorn"), [1])
    made = Grammars(tokenizer, tokenizer.vocab_size)
    for name, make in cases(made):
        try:
            begin(make(), tokenizer.vocab_size)
            print(f"{name}: compiled", flush=True)
        except RequestError as error:
            print(f"{name}: {error.message[:160]}", flush=True)


if __name__ == "__main__":
    main()
