"""The chip canary: its work is done, its verdict is the limit's, and what moves once is looked at again."""

from __future__ import annotations

import pytest

from onechip.ladder import canary, pin
from onechip.ladder.canary import Canary, Reading, measured, moved
from tests.ladder.canaries import Scripted


def test_a_real_reading(monkeypatch: pytest.MonkeyPatch) -> None:
    """On every core; the copy and the product are what they should be."""
    monkeypatch.setattr(canary, "PASS_S", 0.002)
    bird = Canary(pin.allowed())
    found = bird.read()
    assert 1e-6 < found.copy_s < 1
    assert 1e-6 < found.matmul_s < 1
    for core in bird._work:
        assert core._copy.nbytes == canary.COPY_BYTES
        assert bool((core._copy == 1).all())
        assert bool((core._product == canary.SIDE).all())


def test_a_large_chip_is_read_on_some_of_its_cores() -> None:
    assert Canary(range(64)).cores == tuple(range(0, 64, 4))
    assert Canary(range(16)).cores == tuple(range(16))


@pytest.mark.parametrize(
    ("copy", "matmul", "count"),
    [(1.049, 0.951, 0), (1.051, 1.0, 1), (1.0, 0.949, 1), (1.06, 1.06, 2)],
)
def test_the_limit(copy: float, matmul: float, count: int) -> None:
    assert len(moved(Reading(0.001, 0.002), Reading(0.001 * copy, 0.002 * matmul))) == count


def test_a_move_that_does_not_last_is_none() -> None:
    was, slow, back = Reading(1e-3, 1e-3), Reading(2e-3, 1e-3), Reading(1.01e-3, 1.02e-3)
    assert Scripted([slow, back]).again(was) == Reading(1.01e-3, 1e-3)
    assert moved(was, Scripted([slow, slow, back]).again(was)) == []
    assert len(moved(was, Scripted([slow]).again(was))) == 1


def test_both_readings_are_kept() -> None:
    assert measured(Reading(1.0, 2.0), Reading(3.0, 4.0)) == {
        "canary_copy_before_s": 1.0,
        "canary_copy_after_s": 3.0,
        "canary_matmul_before_s": 2.0,
        "canary_matmul_after_s": 4.0,
    }
