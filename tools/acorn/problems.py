"""Word problems: a Draw in, a question and its worked answer (last line `#### N`) out.

Each family is one function with a few wordings; tests/tools checks each answer against its sums.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from tools.acorn.draws import Draw, Sum


@dataclass(frozen=True, slots=True)
class Problem:
    """A question, the lines of its answer, and every sum that the answer computes."""

    question: str
    lines: tuple[str, ...]
    sums: tuple[Sum, ...]

    @property
    def answer(self) -> str:
        return "\n".join((*self.lines, f"#### {self.sums[-1].result}"))

    @property
    def held_out(self) -> bool:
        return any(each.held_out for each in self.sums)


Family = Callable[[Draw], Problem]


def problem(question: str, *steps: tuple[str, Sum, str]) -> Problem:
    """A Problem whose answer has one line a step: words before the sum, the sum, words after it."""
    lines = tuple(f"{before} {total.worked} {after}.".replace(" .", ".") for before, total, after in steps)
    return Problem(question, lines, tuple(total for _, total, _ in steps))


def gain(draw: Draw) -> Problem:
    who, thing, a, b = draw.name(), draw.thing(), draw.number(4, 99), draw.number(4, 99)
    question = draw.pick(
        f"{who} has {a} {thing} and gets {b} more. How many {thing} does {who} have now?",
        f"There are {a} {thing} on the table. {who} adds {b} {thing}. How many {thing} are there in total?",
        f"{who} found {a} {thing} on Monday and {b} {thing} on Tuesday. How many {thing} is that altogether?",
    )
    return problem(question, ("In total there are", Sum(a, "+", b), thing))


def loss(draw: Draw) -> Problem:
    who, other = draw.two_names()
    thing, a = draw.thing(), draw.number(14, 99)
    b = draw.number(3, a - 2)
    question = draw.pick(
        f"{who} has {a} {thing} and gives {b} of them to {other}. How many {thing} are left?",
        f"There were {a} {thing} in the shop. {who} bought {b} of them. How many {thing} remain?",
        f"{who} had {a} {thing} but lost {b}. How many {thing} does {who} still have?",
    )
    return problem(question, ("There are", Sum(a, "-", b), f"{thing} left"))


def groups(draw: Draw) -> Problem:
    who, thing, box = draw.name(), draw.thing(), draw.container()
    a, b = draw.number(3, 49), draw.number(2, 9)
    question = draw.pick(
        f"{who} has {b} {box} with {a} {thing} in each. How many {thing} is that?",
        f"Each of {b} {box} holds {a} {thing}. How many {thing} are there altogether?",
    )
    return problem(question, (f"The {box} hold", Sum(a, "*", b), thing))


def share(draw: Draw) -> Problem:
    who, thing, box = draw.name(), draw.thing(), draw.container()
    each, parts = draw.number(3, 29), draw.number(2, 9)
    question = draw.pick(
        f"{who} puts {each * parts} {thing} into {parts} {box}, the same number in each. How many "
        f"{thing} are in each?",
        f"{each * parts} {thing} are shared equally among {parts} children. How many {thing} does each "
        "child get?",
    )
    return problem(question, ("Each gets", Sum(each * parts, "/", parts), thing))


def gain_then_loss(draw: Draw) -> Problem:
    who, thing, a, b = draw.name(), draw.thing(), draw.number(5, 79), draw.number(5, 60)
    c = draw.number(3, a + b - 2)
    question = draw.pick(
        f"{who} had {a} {thing}, bought {b} more and then gave away {c}. How many {thing} does {who} "
        "have now?",
        f"{who} picks {a} {thing} in the morning and {b} in the afternoon, and sells {c} of them. "
        f"How many {thing} are left?",
    )
    total = Sum(a, "+", b)
    left = Sum(total.result, "-", c)
    return problem(question, ("First", total, thing), ("Then", left, f"{thing} are left"))


def groups_then_gain(draw: Draw) -> Problem:
    who, thing, box = draw.name(), draw.thing(), draw.container()
    a, b, c = draw.number(3, 20), draw.number(2, 9), draw.number(3, 60)
    question = draw.pick(
        f"{who} has {b} {box} of {a} {thing} and {c} loose {thing}. How many {thing} does {who} have?",
        f"There are {b} {box} with {a} {thing} each. {who} brings {c} more {thing}. How many {thing} are "
        "there now?",
    )
    product = Sum(a, "*", b)
    return problem(question, ("First", product, thing), ("Then", Sum(product.result, "+", c), thing))


def groups_then_loss(draw: Draw) -> Problem:
    who, thing, box = draw.name(), draw.thing(), draw.container()
    a, b = draw.number(4, 25), draw.number(2, 9)
    c = draw.number(2, a * b - 2)
    question = draw.pick(
        f"{who} buys {b} {box} of {a} {thing}. {c} of the {thing} are broken. How many {thing} are good?",
        f"{who} fills {b} {box} with {a} {thing} each and sells {c} {thing}. How many {thing} are left?",
    )
    product = Sum(a, "*", b)
    return problem(
        question, ("First", product, thing), ("Then", Sum(product.result, "-", c), f"{thing} are left")
    )


def price(draw: Draw) -> Problem:
    who, place = draw.name(), draw.pick("shop", "market", "store")
    first, second = draw.some(("pear", "book", "pencil", "cake", "candle", "ball", "cup", "hat"), 2)
    a, b, c = draw.number(2, 9), draw.number(2, 25), draw.number(2, 60)
    question = draw.pick(
        f"At the {place} a {first} costs ${b} and a {second} costs ${c}. {who} buys {a} {first}s and one "
        f"{second}. "
        f"How many dollars does {who} pay?",
        f"{who} buys {a} {first}s for ${b} each and a {second} for ${c}. How much does {who} pay in dollars?",
    )
    product = Sum(b, "*", a)
    return problem(
        question,
        (f"The {first}s cost", product, "dollars"),
        ("Together", Sum(product.result, "+", c), "dollars"),
    )


def change(draw: Draw) -> Problem:
    who, thing = draw.name(), draw.thing()
    a, b = draw.number(2, 9), draw.number(2, 19)
    paid = a * b + draw.number(1, 50)
    question = draw.pick(
        f"{who} buys {a} {thing} for ${b} each and pays with ${paid}. How many dollars of change does "
        f"{who} get?",
        f"{who} has ${paid} and buys {a} {thing} that cost ${b} each. How many dollars are left?",
    )
    product = Sum(b, "*", a)
    return problem(
        question,
        ("The cost is", product, "dollars"),
        ("What is left is", Sum(paid, "-", product.result), "dollars"),
    )


def times_as_many(draw: Draw) -> Problem:
    who, other = draw.two_names()
    thing, a = draw.thing(), draw.number(4, 49)
    word, times = draw.among((("twice", 2), ("three times", 3), ("four times", 4)))
    question = draw.pick(
        f"{who} has {a} {thing}. {other} has {word} as many. How many {thing} do they have together?",
        f"{other} has {word} as many {thing} as {who}. {who} has {a} {thing}. How many {thing} do both "
        "have in total?",
    )
    product = Sum(a, "*", times)
    return problem(
        question, (f"{other} has", product, thing), ("Together", Sum(product.result, "+", a), thing)
    )


def more_than(draw: Draw) -> Problem:
    who, other = draw.two_names()
    thing, a, b = draw.thing(), draw.number(5, 70), draw.number(3, 40)
    question = draw.pick(
        f"{who} has {a} {thing}. {other} has {b} more than {who}. How many {thing} do they have together?",
        f"{other} has {b} more {thing} than {who}, who has {a}. How many {thing} do both have in total?",
    )
    more = Sum(a, "+", b)
    return problem(question, (f"{other} has", more, thing), ("Together", Sum(more.result, "+", a), thing))


def fewer_than(draw: Draw) -> Problem:
    who, other = draw.two_names()
    thing, a = draw.thing(), draw.number(16, 90)
    b = draw.number(3, a - 3)
    question = draw.pick(
        f"{who} has {a} {thing}. {other} has {b} fewer than {who}. How many {thing} do they have together?",
        f"{other} has {b} fewer {thing} than {who}, who has {a}. How many {thing} do both have in total?",
    )
    fewer = Sum(a, "-", b)
    return problem(question, (f"{other} has", fewer, thing), ("Together", Sum(fewer.result, "+", a), thing))


def half(draw: Draw) -> Problem:
    who, thing, a = draw.name(), draw.thing(), 2 * draw.number(4, 49)
    b = draw.number(2, 40)
    question = draw.pick(
        f"{who} had {a} {thing}. Half of them were sold, and then {who} got {b} more. How many {thing} "
        "are there now?",
        f"{who} gives away half of {a} {thing} and then finds {b} {thing}. How many {thing} does {who} have?",
    )
    halved = Sum(a, "/", 2)
    return problem(question, ("Half is", halved, thing), ("Then", Sum(halved.result, "+", b), thing))


def wage(draw: Draw) -> Problem:
    who, a, b = draw.name(), draw.number(7, 25), draw.number(2, 9)
    c = draw.number(2, min(60, a * b - 2))
    question = draw.pick(
        f"{who} earns ${a} an hour and works {b} hours. Then {who} spends ${c}. How many dollars are left?",
        f"{who} works {b} hours for ${a} an hour and pays ${c} for lunch. How many dollars does {who} keep?",
    )
    product = Sum(a, "*", b)
    return problem(
        question,
        (f"{who} earns", product, "dollars"),
        ("What is left is", Sum(product.result, "-", c), "dollars"),
    )


def ducks(draw: Draw) -> Problem:
    who, animal = draw.name(), draw.pick("ducks", "hens", "geese")
    a, b, c, price_each = draw.number(14, 60), draw.number(2, 9), draw.number(2, 4), draw.number(2, 5)
    question = draw.pick(
        f"The {animal} of {who} lay {a} eggs a day. {who} eats {b} and bakes with {c}, and sells the "
        "others for "
        f"${price_each} each. How many dollars does {who} make a day?",
        f"{who} collects {a} eggs from the {animal}, keeps {b} and gives {c} to a neighbor. The rest are "
        "sold for "
        f"${price_each} each. How many dollars is that?",
    )
    first = Sum(a, "-", b)
    second = Sum(first.result, "-", c)
    return problem(
        question,
        ("First", first, "eggs"),
        ("Then", second, "eggs"),
        (f"{who} makes", Sum(second.result, "*", price_each), "dollars"),
    )


def more_than_twice(draw: Draw) -> Problem:
    who, other = draw.two_names()
    thing, a, c = draw.thing(), draw.number(4, 40), draw.number(2, 20)
    question = draw.pick(
        f"{who} has {a} {thing}. {other} has {c} more than twice as many. How many {thing} do they have "
        "together?",
        f"{other} has {c} more than twice as many {thing} as {who}. {who} has {a}. How many {thing} do "
        "both have?",
    )
    twice = Sum(a, "*", 2)
    more = Sum(twice.result, "+", c)
    return problem(
        question,
        ("Twice is", twice, thing),
        (f"{other} has", more, thing),
        ("Together", Sum(more.result, "+", a), thing),
    )


def gather_and_share(draw: Draw) -> Problem:
    who, other = draw.two_names()
    thing, parts, each = draw.thing(), draw.number(2, 9), draw.number(3, 12)
    a = draw.number(2, parts * each - 2)
    b = parts * each - a
    question = draw.pick(
        f"{who} brings {a} {thing} and {other} brings {b}. They share them equally among {parts} children. "
        f"How many {thing} does each child get?",
        f"{who} has {a} {thing} and {other} has {b}. They put them all into {parts} bags, the same in each. "
        f"How many {thing} are in each bag?",
    )
    total = Sum(a, "+", b)
    return problem(
        question, ("Together there are", total, thing), ("Each gets", Sum(total.result, "/", parts), thing)
    )


def any_sum(draw: Draw) -> Sum:
    sign = draw.pick("+", "+", "-", "-", "*", "/")
    if sign == "+":
        return Sum(draw.number(2, 140), "+", draw.number(2, 99))
    if sign == "-":
        left = draw.number(10, 160)
        return Sum(left, "-", draw.number(2, min(left - 1, 99)))
    if sign == "*":
        return Sum(draw.number(2, 49), "*", draw.number(2, 9))
    each, parts = draw.number(2, 29), draw.number(2, 9)
    return Sum(each * parts, "/", parts)


def exercises(draw: Draw) -> Problem:
    """Bare sums, several at once: many sums a token, which is what makes arithmetic learnable quickly."""
    sums = tuple(any_sum(draw) for _ in range(draw.number(2, 6)))
    listed = ", ".join(f"{each.left} {each.sign} {each.right}" for each in sums)
    question = draw.pick(f"Work out {listed}.", f"Calculate {listed}.", f"What is {listed}?")
    return Problem(question, tuple(each.worked for each in sums), sums)


FAMILIES: dict[Family, int] = {
    gain: 3,
    loss: 4,
    groups: 3,
    share: 3,
    gain_then_loss: 4,
    groups_then_gain: 4,
    groups_then_loss: 4,
    price: 3,
    change: 3,
    times_as_many: 3,
    more_than: 3,
    fewer_than: 4,
    half: 3,
    wage: 3,
    ducks: 3,
    more_than_twice: 3,
    gather_and_share: 3,
}
"""The word problems and how often each comes; `exercises` is training matter only."""

EXERCISES_SHARE = 0.25


def training_problem(draw: Draw) -> Problem:
    """A problem none of whose sums is held out."""
    while True:
        family = exercises if draw.chance(EXERCISES_SHARE) else draw.weighted(FAMILIES)
        made = family(draw)
        if not made.held_out:
            return made


def held_out_problem(draw: Draw) -> Problem:
    """A word problem with at least one sum that training never sees, so its whole question is new as well."""
    family = draw.weighted(FAMILIES)
    while True:
        made = family(draw)
        if made.held_out:
            return made
