"""How many tokens an event carries, and how many the answer has."""

from __future__ import annotations

from collections.abc import Sequence

from tests.ladder.zoo.case import ENDING, MOMENTS, WORDS, Case, Expected, Timed, after, answer, tokens
from tests.ladder.zoo.events import DONE, counts, delta, text, usage


def in_every_event(*totals: int, pieces: Sequence[str], moments: Sequence[float]) -> list[Timed]:
    """Events with the count of output tokens so far."""
    return [
        (ms, text(piece) | {"usage": counts(total)})
        for ms, piece, total in zip(moments, pieces, totals, strict=True)
    ]


UNCOUNTED = [
    "1 of 1 requests had another prompt length: asked for 7 prompt tokens, got no count.",
    "1 of 1 requests had another output length: asked for 4 output tokens, got no count.",
]

CASES: dict[str, Case] = {
    "two tokens an event, not counted": Case(
        answers=[answer((50, text("a b ")), (80, text("c d ")), *ENDING)],
        expected=[Expected(at=(50, 80), tokens=(2, 2), source="text", gaps=(15, 15))],
    ),
    "several tokens an event, counted by its usage": Case(
        answers=[answer(*in_every_event(1, 4, pieces=("a ", "b c d "), moments=(50, 80)), *ENDING)],
        expected=[Expected(at=(50, 80), tokens=(1, 3), source="usage", gaps=(10, 10, 10))],
    ),
    "several tokens an event, counted by its token ids": Case(
        answers=[answer((50, text("a ", token_ids=[1])), (80, text("b c d ", token_ids=[2, 3, 4])), *ENDING)],
        expected=[Expected(at=(50, 80), tokens=(1, 3), source="token ids", gaps=(10, 10, 10))],
    ),
    "the whole answer in one event": Case(
        answers=[answer((110, text("a b c d ")), *ENDING)],
        expected=[Expected(at=(110,), tokens=(4,), source="text", gaps=())],
    ),
    "a token without text that only usage shows": Case(
        answers=[
            answer(
                *in_every_event(1, 2, 3, pieces=("a ", "b ", ""), moments=(50, 60, 80)),
                (110, delta(counts(4), "length")),
                *after(usage(4)),
            )
        ],
        expected=[Expected(source="usage", text="a b ")],
    ),
    "usage that is null until the end": Case(
        answers=[
            answer(*((ms, payload | {"usage": None}) for ms, payload in tokens()), *ENDING),
        ]
    ),
    "usage with the last choice": Case(
        answers=[answer(*tokens(), *after(text("", "length") | {"usage": counts(4)}, DONE))]
    ),
    "usage long after the last token": Case(
        answers=[answer(*tokens(), (110, text("", "length")), (300, usage(4)), end_ms=300)],
        expected=[Expected(end=300)],
    ),
    "no usage": Case(
        answers=[answer(*tokens(), *after(text("", "length"), DONE))],
        expected=[Expected(prompt=None, output=None)],
        invalid=UNCOUNTED,
    ),
    "usage of zero": Case(
        answers=[answer(*tokens(), *after(text("", "length"), usage(0, 0), DONE))],
        expected=[Expected(prompt=None, output=None)],
        invalid=UNCOUNTED,
    ),
    "usage below the text's own tokens": Case(
        answers=[answer(*tokens(), *after(text("", "length"), usage(3)))],
        expected=[Expected(tokens=(1, 1, 0, 1), source="text", gaps=(10, 50), output=3)],
        asked=3,
        invalid=["Its usage is too low: by our tokenizer its texts have 33% more tokens than it says."],
    ),
    "events that count less than the final usage": Case(
        answers=[answer(*in_every_event(1, 1, 2, 3, pieces=WORDS, moments=MOMENTS), *ENDING)],
        expected=[Expected(tokens=(1, 0, 1, 1), source="usage", gaps=(30, 30))],
        invalid=[
            "1 of 1 requests had contradicting token counts: its events carried 3 tokens,"
            " its final usage says 4."
        ],
    ),
    "a stop token without an event": Case(
        answers=[answer(*tokens()[:3], *after(text("", "stop"), usage(4)))],
        expected=[Expected(at=(50, 60, 80), tokens=(1, 1, 1), gaps=(10, 20), finish="stop", text="a b c ")],
    ),
    "an answer that stops early": Case(
        answers=[answer(*tokens()[:3], *after(text("", "stop"), usage(3)))],
        expected=[
            Expected(at=(50, 60, 80), tokens=(1, 1, 1), gaps=(10, 20), finish="stop", text="a b c ", output=3)
        ],
        invalid=["1 of 1 requests had another output length: asked for 4 output tokens, got 3."],
    ),
    "a prompt that was tokenized to another length": Case(
        answers=[answer(*tokens(), *after(text("", "length"), usage(4, prompt=8)))],
        expected=[Expected(prompt=8)],
        invalid=["1 of 1 requests had another prompt length: asked for 7 prompt tokens, got 8."],
    ),
}
