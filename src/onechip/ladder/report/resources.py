"""Tables of what arms took and cost, and of the machine: the summary in, tables of strings out."""

from __future__ import annotations

from onechip.ladder.prices import Price
from onechip.ladder.report import wording
from onechip.ladder.report.table import Table
from onechip.ladder.report.wording import NONE
from onechip.ladder.summary import Summary
from onechip.ladder.usage import READINGS

MEMORY = ("resident_peak_bytes", "own_peak_bytes", "hwm_bytes", "device_peak_bytes")


def memory(summary: Summary) -> Table:
    """The most memory of every arm at every place, and the power drawn, as far as the machine says."""
    rows = []
    order = wording.reading_order(found.place for found in summary.usages)
    for found in sorted(summary.usages, key=lambda found: order[found.place]):
        sizes = (_bytes(getattr(found, name)) for name in MEMORY)
        power = (_watts(found.gpu_w), _watts(found.cpu_w))
        rows.append((wording.where(found.place), found.arm, str(found.n), *sizes, *power))
    head = (
        *("place", "arm", "cells", "peak resident", "peak of its own pages", "sum of each process's peak"),
        *("peak device memory", "GPU power", "processor power"),
    )
    return Table("Memory and power while it worked", head, tuple(rows), (0, 1)).without_empty()


def _bytes(value: float | None) -> str:
    return NONE if value is None else wording.quantity(value, "bytes")


def _watts(value: float | None) -> str:
    return NONE if value is None else wording.quantity(value, "W")


def missing(summary: Summary) -> str:
    """One sentence on the meters that gave nothing; "" if all did, or if no cell has readings at all."""
    if not summary.usages:
        return ""
    found = {
        "device memory": any(usage.device_peak_bytes is not None for usage in summary.usages),
        "energy of GPUs": any(usage.gpu_w is not None for usage in summary.usages),
        "energy of the processor": any(usage.cpu_w is not None for usage in summary.usages),
    }
    absent = [name for name, there in found.items() if not there]
    return f"Not available on this machine: {', '.join(absent)}." if absent else ""


def cost(summary: Summary) -> Table:
    """US dollars for a million output tokens in the sweep; no rows where the chip has no listed price."""
    speeds = {(m.arm, m.place): m.headline for m in summary.measures if m.figure == "whole_batch_tok_s"}
    rows = []
    order = wording.reading_order(found.place for found in summary.costs)
    for found in sorted(summary.costs, key=lambda found: order[found.place]):
        between = (
            NONE
            if found.interval is None
            else f"{dollars(found.interval.low)} to {dollars(found.interval.high)}"
        )
        speed = wording.quantity(speeds[found.arm, found.place], "tok/s")
        rows.append((wording.where(found.place), found.arm, speed, dollars(found.usd), between))
    head = ("place", "arm", "whole batch", "a million output tokens", "95 % interval of the speed")
    return Table("Cost of a million output tokens", head, tuple(rows), (0, 1))


def dollars(value: float) -> str:
    """Cents where a dollar or more, else three digits that count."""
    return f"${value:,.2f}" if value >= 1 else f"${value:#.3g}"


def priced(price: Price) -> str:
    """Where a price is from, in one sentence."""
    read = f"{price.source}, {price.date.isoformat()}"
    return (
        f"{price.name} at ${price.usd_per_hour:,.4g} an hour: {price.what}; {read}. The whole hour is"
        " paid for, so this is the cost on a machine that is always as busy as here. Prompts are in it."
    )


def state(summary: Summary) -> Table:
    """How the machine was while each arm was measured."""
    rows = []
    order = list(READINGS)
    for found in sorted(summary.readings, key=lambda found: order.index(found.reading)):
        label, unit = READINGS[found.reading]
        values = (found.minimum, found.median, found.maximum)
        rows.append((label, found.arm, f"{found.n:,}", *(_reading(value, unit) for value in values)))
    head = ("reading", "arm", "cells", "least", "median", "most")
    return Table("The machine while it was measured", head, tuple(rows), (0, 1))


def _reading(value: float, unit: str) -> str:
    if unit == "s":
        return f"{1e3 * value:.2f} ms"
    return wording.quantity(value, unit).strip()


def visits(summary: Summary) -> Table:
    """Each start of each arm with the rest before it, where the ladder kept them."""
    rows = []
    for arm in summary.manifest.arms:
        for found in arm.visits:
            rested = {None: NONE, True: "yes", False: "no"}[found.rested]
            place = str(found.block) if found.block else NONE
            waited = wording.quantity(found.waited_s, "s")
            rows.append((found.started_at, arm.name, place, waited, rested))
    rows.sort()
    head = ("started", "arm", "block", "cool-down", "at rest")
    return Table("Starts, in order", head, tuple(rows), (0, 1, 4))
