"""The loop's lag, with the kernel's timer and without."""

from __future__ import annotations

import asyncio
import time

import pytest

from onechip.ladder import lag
from onechip.ladder.lag import PERIOD_NS, LagProbe, percentile

HELD_S = 0.06


async def held_up() -> LagProbe:
    """A loop that does nothing else for HELD_S, after some time in which it was free."""
    probe = LagProbe()
    probe.start()
    await asyncio.sleep(0.03)
    time.sleep(HELD_S)
    await asyncio.sleep(0.03)
    probe.stop()
    return probe


@pytest.mark.parametrize("kernel", [True, False])
def test_every_moment_of_a_hold_counts_with_what_it_waited(
    kernel: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A hold of 60 ms holds up 12 moments, the first for about 60 ms, the second for 55, and so on."""
    if not kernel:
        monkeypatch.setattr(lag, "_kernel_timer", lambda first: None)
    began = time.perf_counter_ns()
    probe = asyncio.run(held_up())
    passed = time.perf_counter_ns() - began
    lags = sorted(probe.lags_ns, reverse=True)
    assert len(lags) <= passed // PERIOD_NS
    assert len(lags) >= (HELD_S + 0.06) * 1e9 // PERIOD_NS - 1
    assert lags[0] > HELD_S * 1e9 - 2 * PERIOD_NS
    long = [one for one in lags if one > PERIOD_NS]
    assert len(long) >= HELD_S * 1e9 // PERIOD_NS - 2


def test_a_probe_that_is_stopped_before_its_first_moment() -> None:
    async def once() -> LagProbe:
        probe = LagProbe()
        probe.start()
        probe.stop()
        return probe

    assert asyncio.run(once()).lags_ns == []


@pytest.mark.parametrize(
    ("values", "share", "found"),
    [([], 0.5, 0), ([7], 0.99, 7), (range(1, 101), 0.99, 99), (range(1, 101), 0.5, 50), ([3, 1, 2], 1.0, 3)],
)
def test_percentiles_by_nearest_rank(values: list[int], share: float, found: int) -> None:
    assert percentile(values, share) == found
