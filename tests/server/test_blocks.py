"""Blocks do not depend on how the deltas were cut, and their steps say the same as they do."""

from __future__ import annotations

import random

from hypothesis import given
from hypothesis import strategies as st

from onechip.models.chat_parser import CallArguments, CallClose, CallOpen, Delta, Reasoning, Text
from onechip.server.blocks import Block, Blocks, Closed, Grown, Opened, Step

PARTS = st.lists(
    st.tuples(st.sampled_from(["text", "reasoning", "call"]), st.text("ab", min_size=1)), max_size=6
)


def deltas_of(parts: list[tuple[str, str]], rng: random.Random) -> list[Delta]:
    """Deltas for the parts, each text cut at random."""
    deltas: list[Delta] = []
    calls = 0
    for kind, text in parts:
        if kind == "call":
            deltas.append(CallOpen(calls, f"call_{calls}", "f"))
        while text:
            cut = rng.randint(1, len(text))
            piece, text = text[:cut], text[cut:]
            if kind == "text":
                deltas.append(Text(piece))
            elif kind == "reasoning":
                deltas.append(Reasoning(piece))
            else:
                deltas.append(CallArguments(calls, piece))
        if kind == "call":
            deltas.append(CallClose(calls))
            calls += 1
    return deltas


@given(PARTS, st.randoms(use_true_random=False))
def test_blocks_are_the_parts_of_the_answer(parts: list[tuple[str, str]], rng: random.Random) -> None:
    joined: list[tuple[str, str]] = []
    for kind, text in parts:
        if kind != "call" and joined and joined[-1][0] == kind:
            text = joined.pop()[1] + text
        joined.append((kind, text))
    expected = joined or [("text", "")]
    deltas = deltas_of(parts, rng)
    assert [(block.kind, block.text) for block in Blocks.of(deltas)] == expected

    blocks, steps = Blocks(), list[Step]()
    while deltas:
        count = rng.randint(0, len(deltas))
        steps += blocks.take(deltas[:count])
        deltas = deltas[count:]
    steps += blocks.end()
    assert [(block.kind, block.text) for block in blocks.all] == expected
    assert told(steps) == [text for _, text in expected]


def told(steps: list[Step]) -> list[str]:
    """The texts that the steps tell of, one block open at a time."""
    texts: list[str] = []
    current: Block | None = None
    for step in steps:
        if isinstance(step, Opened):
            assert current is None
            assert step.block.index == len(texts)
            current = step.block
            texts.append("")
        else:
            assert step.block is current
            if isinstance(step, Grown):
                texts[-1] += step.piece
            elif isinstance(step, Closed):
                current = None
    assert current is None
    return texts
