"""Small talk: a Draw in, a chat prompt and its answer out, so that plain chat gives plain sentences.

It teaches no knowledge: a few texts learned by heart and some templated ones are all that acorn can say.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from tools.acorn.draws import PLACES, Draw, words
from tools.acorn.functions import COLORS, DAYS, WORDS
from tools.acorn.passages import PASSAGES

MONTHS = words("January February March April May June July August September October November December")
ANIMALS = words("fox cat dog owl hare duck bear mouse goat horse")
MOODS = words("happy proud brave calm curious hungry tired")


@dataclass(frozen=True, slots=True)
class Talk:
    question: str
    answer: str


def passage(draw: Draw) -> Talk:
    chosen = draw.among(PASSAGES)
    return Talk(draw.among(chosen.questions), chosen.answer)


def count(draw: Draw) -> Talk:
    start = draw.number(1, 60)
    end = start + draw.number(4, 39)
    question = draw.pick(
        f"Count from {start} to {end}.",
        f"Please count from {start} to {end}.",
        f"List the numbers from {start} to {end}.",
    )
    return Talk(question, ", ".join(str(number) for number in range(start, end + 1)) + ".")


def count_down(draw: Draw) -> Talk:
    start = draw.number(5, 40)
    return Talk(
        f"Count down from {start} to 1.", ", ".join(str(number) for number in range(start, 0, -1)) + "."
    )


def days(draw: Draw) -> Talk:
    question = draw.pick(
        "List the days of the week.", "Name the days of the week.", "What are the days of the week?"
    )
    return Talk(question, "The days of the week are " + ", ".join(DAYS[:-1]) + f" and {DAYS[-1]}.")


def months(draw: Draw) -> Talk:
    question = draw.pick(
        "List the months of the year.", "Name the months.", "What are the months of the year?"
    )
    return Talk(question, "The months of the year are " + ", ".join(MONTHS[:-1]) + f" and {MONTHS[-1]}.")


def next_day(draw: Draw) -> Talk:
    index = draw.number(0, 6)
    if draw.chance(0.5):
        return Talk(
            f"What day comes after {DAYS[index]}?", f"The day after {DAYS[index]} is {DAYS[(index + 1) % 7]}."
        )
    return Talk(
        f"What day comes before {DAYS[index]}?", f"The day before {DAYS[index]} is {DAYS[index - 1]}."
    )


def repeat(draw: Draw) -> Talk:
    word, (many, times) = draw.among(WORDS), draw.among((("two", 2), ("three", 3), ("four", 4), ("five", 5)))
    question = draw.pick(f"Say {word} {many} times.", f"Repeat the word {word} {many} times.")
    return Talk(question, " ".join([word] * times))


def spell(draw: Draw) -> Talk:
    word = draw.among((*WORDS, *COLORS))
    return Talk(draw.pick(f"Spell the word {word}.", f"How do you spell {word}?"), "-".join(word))


def larger(draw: Draw) -> Talk:
    a, b = draw.some(range(1, 100), 2)
    return Talk(f"Which is larger, {a} or {b}?", f"{max(a, b)} is larger than {min(a, b)}.")


def colors(draw: Draw) -> Talk:
    many, number = draw.among((("three", 3), ("four", 4), ("five", 5)))
    chosen = list(COLORS[:number])
    return Talk(
        f"Name {many} colors.",
        f"{many.capitalize()} colors are " + ", ".join(chosen[:-1]) + f" and {chosen[-1]}.",
    )


def story(draw: Draw) -> Talk:
    who, animal, place, color, mood = (
        draw.name(),
        draw.among(ANIMALS),
        draw.among(PLACES),
        draw.among(COLORS),
        draw.among(MOODS),
    )
    thing = draw.thing()
    sentences = [
        f"Once there was a {animal} who lived near the {place}.",
        f"One morning {who} walked by and saw the {animal} sitting under a {color} tree.",
        f'"Good morning," said {who}. "Why are you so {mood} today?"',
        f'"I have found {draw.number(3, 40)} {thing}," said the {animal}, '
        '"and I do not know what to do with them."',
        f"{who} thought about it for a while and looked at the sky.",
        f'"Let us count them together," said {who}, "and then share them with everyone at the {place}."',
        f"So they counted all the {thing}, put them into a {draw.among(COLORS)} basket and carried it "
        "down the road.",
        f"On the way they met a {draw.among(ANIMALS)}, who was glad to help.",
        f"At the {place} everyone got the same number, and nothing was left over.",
        f"In the evening the {animal} was very {draw.among(MOODS)}, and {who} went home with a smile.",
        f"From that day on {who} and the {animal} met every {draw.among(DAYS)}.",
    ]
    question = draw.pick(
        f"Tell me a story about {who} and a {animal}.",
        f"Write a short story about a {animal} and {who}.",
        f"Write a story about {who}, a {animal} and some {thing}.",
    )
    return Talk(question, " ".join(sentences))


KINDS: dict[Callable[[Draw], Talk], int] = {
    passage: 12,
    count: 4,
    count_down: 2,
    days: 1,
    months: 1,
    next_day: 2,
    repeat: 2,
    spell: 2,
    larger: 2,
    colors: 1,
    story: 4,
}


def any_talk(draw: Draw) -> Talk:
    return draw.weighted(KINDS)(draw)
