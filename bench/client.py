"""The ladder's client and its peers on the same streams -> tables of what each costs and how late it stamps.

    python -m bench.client [--streams 1,8,64] [--repeats 5] [--busy N]

A flood (bench/client_flood.py) in a process of its own sends every stream one event at a time, in a packet of
its own, all streams in step: 400 events a second to one stream, 200 to each of 8, 50 to each of 64. Each
client runs in a fresh process, all on uvloop, reads everything twice, and counts the second time: processor
time of its process, system calls included, over the events; and the time from when an event was written to
when the client could stamp it. Medians over the repeats, in which the clients take turns, the order turned
round every time. --busy runs so many processes that compute without end beside them, as an engine does that
fills the machine.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from statistics import median
from typing import NamedTuple

import psutil
from bench.client_rivals import NAMES, Cost

from onechip.ladder.machine import machine
from onechip.ladder.scheduling import scheduling

ROOT = Path(__file__).resolve().parent.parent
SECONDS = 2.0
HZ = {1: 400, 8: 200}
MANY_HZ = 50
CHILD_S = 120.0


class Figure(NamedTuple):
    """Microseconds of one client at one number of streams."""

    during: float
    after: float
    late_p50: float
    late_p99: float


@contextlib.contextmanager
def flood(streams: int, events: int, hz: float) -> Iterator[int]:
    """The server at work; its port."""
    command = [sys.executable, "-m", "bench.client_flood", str(streams), str(events), str(hz)]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            yield int(process.stdout.readline())
        finally:
            process.kill()


def measure(name: str, streams: int, seconds: float = SECONDS) -> Figure:
    """One client, in a process of its own."""
    hz = HZ.get(streams, MANY_HZ)
    events = round(hz * seconds)
    with flood(streams, events, hz) as port:
        command = [sys.executable, "-m", "bench.client_rivals", name, str(port), str(streams), str(events)]
        done = subprocess.run(
            command, cwd=ROOT, stdout=subprocess.PIPE, text=True, check=True, timeout=CHILD_S
        )
    cost = Cost(**json.loads(done.stdout))
    each = 1e6 / (streams * events)
    return Figure(cost.during_s * each, cost.after_s * each, cost.late_p50_us, cost.late_p99_us)


@contextlib.contextmanager
def busy(processes: int) -> Iterator[None]:
    """So many processes that never sleep, in sessions of their own like an engine."""
    command = [sys.executable, "-c", "while True: pass"]
    running = [subprocess.Popen(command, start_new_session=True) for _ in range(processes)]
    try:
        yield
    finally:
        for process in running:
            process.kill()
            process.wait()


def middle(figures: Sequence[Figure]) -> Figure:
    return Figure(*(median(column) for column in zip(*figures, strict=True)))


def table(found: dict[tuple[str, int], Figure], levels: Sequence[int]) -> Iterator[str]:
    """Markdown, a line a client."""
    heads = [f"{level} {'stream' if level == 1 else 'streams'}" for level in levels]
    most = levels[-1]
    columns = [*heads, f"read afterwards, {most}", f"stamp late, {most}: median", "p99"]
    yield "| client | " + " | ".join(columns) + " |"
    yield "|---|" + "---:|" * len(columns)
    for name in NAMES:
        if (name, most) not in found:
            continue
        last = found[name, most]
        cells = [f"{found[name, level].during:.1f}" for level in levels]
        cells += [f"{last.after:.1f}", milliseconds(last.late_p50), milliseconds(last.late_p99)]
        yield f"| {name} | " + " | ".join(cells) + " |"


def milliseconds(us: float) -> str:
    return f"{us / 1e3:.2f} ms"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--streams", default="1,8,64")
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--busy", type=int, default=0)
    parser.add_argument("--clients", default=";".join(NAMES), help="names, separated by semicolons")
    args = parser.parse_args()
    levels = [int(level) for level in args.streams.split(",")]
    names = args.clients.split(";")
    facts = machine()
    print(f"{facts['cpu']}, {facts['cores']} cores; our client runs {scheduling()}.")
    print(f"Others use {psutil.cpu_percent(interval=1):.0f} % of the processor.", flush=True)
    figures: dict[tuple[str, int], list[Figure]] = {}
    with busy(args.busy):
        for repeat in range(args.repeats):
            for level in levels:
                for name in names if repeat % 2 == 0 else reversed(names):
                    figures.setdefault((name, level), []).append(measure(name, level))
    print("Processor time, microseconds an event:\n")
    for line in table({where: middle(each) for where, each in figures.items()}, levels):
        print(line)


if __name__ == "__main__":
    main()
