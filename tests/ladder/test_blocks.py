"""The order of a ladder's blocks: A B B A, each arm's mean place the same, nothing unequal in between."""

from __future__ import annotations

from statistics import mean

import pytest

from onechip.ladder.blocks import blocks
from onechip.ladder.plan import JOBS, Plan
from onechip.ladder.records import Arm, JobName

ARMS = (Arm("A", "onechip", "acorn"), Arm("B", "onechip", "acorn"))


def compared(repeats: int = 6, most: int = 12, per_start: int = 1, jobs: tuple[JobName, ...] = JOBS) -> Plan:
    return Plan(
        "acorn", ARMS, jobs=jobs, repeats=repeats, most_repeats=most, compare=True, per_start=per_start
    )


def test_without_a_comparison_each_arm_has_one_block() -> None:
    found = list(blocks(Plan("acorn", ARMS, repeats=6, most_repeats=12)))
    assert [(block.arm, block.number, block.cold, block.warm) for block in found] == [
        ("A", 0, True, 0),
        ("B", 0, True, 0),
    ]
    assert all(block.repeats == range(12) and block.last for block in found)
    assert found[0].jobs == ("one", "sweep", "acc")


def test_cold_starts_and_questions_come_before_the_blocks() -> None:
    first, second, *timed = blocks(compared())
    for block, arm in ((first, "A"), (second, "B")):
        assert (block.arm, block.number, block.cold, block.warm) == (arm, 0, True, None)
        assert (block.jobs, list(block.repeats)) == (("acc",), [])
    assert all(block.jobs == ("one", "sweep") and not block.cold for block in timed)


@pytest.mark.parametrize(("most", "per_start"), [(6, 1), (12, 1), (12, 3)])
def test_a_b_b_a_gives_both_arms_the_same_repeats_and_the_same_mean_place(most: int, per_start: int) -> None:
    timed = [block for block in blocks(compared(most, most, per_start)) if block.number]
    order = "".join(block.arm for block in timed)
    assert order == "ABBA" * (most // (2 * per_start))
    assert [block.number for block in timed] == list(range(1, len(order) + 1))
    for arm in "AB":
        own = [block for block in timed if block.arm == arm]
        assert [repeat for block in own for repeat in block.repeats] == list(range(most))
        assert [block.warm for block in own] == list(range(len(own)))
        assert mean(block.number for block in own) == (len(order) + 1) / 2
        assert [block.last for block in own] == [False] * (len(own) - 1) + [True]


def test_a_comparison_of_starts_alone_has_blocks_and_one_of_answers_alone_has_none() -> None:
    starts = list(blocks(compared(jobs=("start",))))
    assert [block.arm for block in starts[2:]] == list("ABBA" * 6)
    assert all(block.jobs == () and block.warm is not None for block in starts[2:])
    assert [block.jobs for block in blocks(compared(jobs=("acc",)))] == [("acc",), ("acc",)]
    assert [block.number for block in blocks(compared(jobs=("one",)))][:3] == [1, 2, 3]
