"""When a cell is repeated once more: declared before, and told from the records alone."""

from __future__ import annotations

import pytest

from onechip.ladder.figures import Place
from onechip.ladder.plan import Plan, check, design, usual_repeats
from onechip.ladder.records import Arm, Cell, CellRecord
from onechip.ladder.repeats import needed, places, speed
from tests.ladder.made_ladder import request

PLACE = Place("sweep", "512/128", 8)
ARMS = (Arm("A", "onechip", "acorn"), Arm("B", "onechip", "acorn"))
STEADY = (100.0, 100.5, 99.5, 100.2, 99.8, 100.1)
WIDE = (100.0, 110.0, 90.0, 105.0, 95.0, 100.0)


def plan(compare: bool = False, per_start: int = 1, repeats: int = 6, most: int | None = 12) -> Plan:
    return Plan("acorn", ARMS, repeats=repeats, most_repeats=most, compare=compare, per_start=per_start)


def cells(speeds: tuple[float, ...], arm: str = "A", invalid: tuple[int, ...] = ()) -> list[CellRecord]:
    """One record a repeat; speeds in tok/s of a whole batch."""
    made = []
    for repeat, tok_s in enumerate(speeds):
        cell = Cell(arm, "sweep", PLACE.variant, PLACE.level, repeat, "x")
        record = request(0, 101, tok_s, ttft_s=1 / tok_s)
        made.append(CellRecord(cell, "", requests=[record], invalid=["bad"] if repeat in invalid else []))
    return made


def test_speed_of_a_cell() -> None:
    assert speed(cells((50.0,))[0]) == pytest.approx(50.0)
    alone = CellRecord(Cell("A", "one", "alone", 1, 0, "x"), "", requests=[request(0, 11, 40.0, 1 / 40)] * 2)
    assert speed(alone) == pytest.approx(40.0)
    assert speed(CellRecord(alone.cell, "")) is None


def test_the_least_is_always_run_and_no_more_than_the_most() -> None:
    assert all(needed(plan(), [], "A", PLACE, repeat) for repeat in range(6))
    assert not needed(plan(), cells(WIDE * 2), "A", PLACE, 12)
    assert not needed(plan(most=None), cells(WIDE), "A", PLACE, 6)


def test_a_narrow_interval_ends_it_and_a_wide_one_does_not() -> None:
    assert not needed(plan(), cells(STEADY), "A", PLACE, 6)
    assert needed(plan(), cells(WIDE), "A", PLACE, 6)
    assert not needed(plan(), cells(WIDE), "B", PLACE, 6), "nothing of B is measured: nothing to narrow"


def test_invalid_repeats_are_made_up_for_but_not_where_all_are() -> None:
    assert needed(plan(), cells(STEADY, invalid=(3,)), "A", PLACE, 6)
    assert not needed(plan(), cells((*STEADY, 100.0), invalid=(3,)), "A", PLACE, 7)
    assert not needed(plan(), cells(STEADY, invalid=tuple(range(6))), "A", PLACE, 6)


def test_in_a_comparison_both_arms_go_on_together_for_whole_quads() -> None:
    """What was measured in the quad itself decides nothing, or the arm that comes first decided alone."""
    both = plan(compare=True)
    steady, wide = cells(STEADY), cells(WIDE, "B")
    assert needed(both, [*steady, *wide], "A", PLACE, 6)
    assert needed(both, [*steady, *wide], "A", PLACE, 7)
    assert not needed(both, [*steady, *cells(STEADY, "B")], "A", PLACE, 6)
    more = cells((*STEADY, 100.0), "B")
    assert needed(both, [*steady, *wide, more[-1]], "A", PLACE, 7)


def test_places_are_those_that_are_repeated() -> None:
    other = CellRecord(Cell("A", "acc", "gsm8k", 1, 0, "x"), "")
    assert places([*cells(STEADY), other, *cells(WIDE, "B")]) == [PLACE]


def test_usual_repeats() -> None:
    """Ten where several claims are made, six for one; whole A B B A; --quick has six and adds none."""
    whole = usual_repeats(Plan("acorn", ARMS))
    assert whole.claims == 8
    assert (whole.repeats, whole.most_repeats) == (10, 12)
    one = usual_repeats(Plan("acorn", ARMS, jobs=("sweep",), levels=(8,), shapes=((64, 8),)))
    assert (one.claims, one.repeats, one.most_repeats) == (1, 6, 12)
    quick = usual_repeats(Plan("acorn", ARMS, quick=True))
    assert (quick.repeats, quick.most_repeats) == (6, None)
    thrice = usual_repeats(Plan("acorn", ARMS, compare=True, per_start=3))
    assert (thrice.repeats, thrice.most_repeats) == (12, None)
    for made in (whole, one, quick, thrice):
        assert check(made) is made


def test_the_rule_is_said_before() -> None:
    assert design(usual_repeats(Plan("acorn", ARMS, compare=True))) == [
        "Order: A B B A, again and again, with A A and B B; each block is a start of its own with one repeat"
        " of each cell.",
        "Repeats of a cell: at least 10, then more until the half-width of the interval of its speed is at"
        " most 2%, and at most 12.",
    ]
    assert design(Plan("acorn", ARMS)) == [
        "Order: one arm after the other, each in one block.",
        "Repeats of a cell: 6.",
    ]
