"""Tables of bench/cpu.py and bench/kernels.py from made figures."""

from __future__ import annotations

import pytest
from bench import kernels
from bench.bounds import INSTRUCTIONS, Bounds
from bench.cpu_report import Measure, Ratio, best_peer, number, ratio, ratios, spread, table


def measure(*, higher: bool = True, **values: list[float]) -> Measure:
    made = {arm: dict(enumerate(figures)) for arm, figures in values.items()}
    return Measure("decode", "tok/s", higher, made)


def test_a_cell_has_median_spread_and_share_of_the_bound() -> None:
    found = measure(ours=[10.0, 12.0, 11.0], peer=[5.0])
    found.bounds["ours"] = 22.0
    assert table([found], ["ours", "peer", "gone"])[-1] == (
        "| decode, tok/s | 11 (spread 20.0% of 3), 50% of 22 | 5 | - |"
    )


def test_less_is_better_where_it_is() -> None:
    found = measure(higher=False, ours=[2.0, 4.0], slow=[8.0, 8.0], slower=[9.0, 9.0])
    assert best_peer(found, ["slow", "slower"]) == "slow"
    assert ratio(found, "ours", "slow") == Ratio(3.0, 2.0, 4.0)


def test_ratios_are_taken_round_by_round() -> None:
    found = measure(ours=[10.0, 20.0, 30.0], peer=[10.0, 10.0, 10.0], better=[15.0, 15.0, 15.0])
    del found.values["better"][1]
    assert best_peer(found, ["peer", "better"]) == "better"
    assert ratio(found, "ours", "better") == Ratio((10 / 15 + 30 / 15) / 2, 10 / 15, 2.0)
    assert ratios([found], ["ours"], ["peer", "better"])[-1] == (
        "| decode | better | **1.33x** (0.67 to 2.00) |"
    )


def test_without_peers_or_figures_there_is_nothing_to_compare() -> None:
    found = measure(ours=[1.0])
    assert ratios([found], ["ours"], []) == []
    assert len(ratios([found], ["ours"], ["peer"])) == 2
    assert ratio(found, "ours", "peer") is None


def test_numbers_and_spreads() -> None:
    assert [number(value) for value in (0.01234, 5.678, 12345.6)] == ["0.0123", "5.68", "12,346"]
    assert spread([2.0, 2.2, 2.1]) == pytest.approx(0.1)


@pytest.mark.parametrize(
    ("operations", "bound"),
    [({"int8": 1e9}, "1,250.0 us, arithmetic"), ({"int8": 1e6}, "1,000.0 us, reading")],
)
def test_a_kernel_stands_beside_its_bound(operations: dict[str, float], bound: str) -> None:
    peak = Bounds(2, {2: 30e9}, {"int8": 400e9}, INSTRUCTIONS["avx512_vnni"])
    found = kernels.Figure("mlp", "2 x 3", 4, (0.0019, 0.0020, 0.0021), 30e6, operations, 0.003)
    cells = [cell.strip() for cell in kernels.line(found, peak).strip("|").split("|")]
    assert cells[:6] == ["mlp", "2 x 3", "4", "2,000.0 us", "1,900.0-2,100.0", "15.0"]
    assert cells[7] == bound
    assert cells[8] == ("62%" if "arithmetic" in bound else "50%")
    assert cells[9:] == ["3,000 us", "1.50x"]
