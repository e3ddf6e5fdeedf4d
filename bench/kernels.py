"""Each of the CPU's kernels at E2B's shapes, against what the machine can do and beside torch's own.

    python -m bench.kernels [--only WORD]... [--rows 1,4,16,64,256] [--out FILE]

A kernel's bound is the longer of its bytes over the read bandwidth and its operations over the peak of the
instruction for them, both measured in the same run (bench/bounds.py). Times are medians of calls that find
their weights in memory; the spread is that of the middle half. torch (bf16 linear, int8 and int4 packs) runs
in the Python of .venv-oracle, in turns with ours; `make .venv-oracle/.installed` makes that.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from bench import bounds, kernel_cases
from bench.bounds import Bounds, BoundsError
from bench.kernel_cases import ROTATED_BYTES, Case, Operations, Turns

from onechip.kernels.cpu import library

ROWS = (1, 4, 16, 64, 256)
ROUNDS = 3
"""Ours and torch's take turns so often."""
LEAST, MOST_S = 5, 1.0
"""A round ends after so many repeats, or earlier after so many seconds, but never before LEAST."""
REST_S = 0.05
"""Between turns: threads of either side that spin for the next piece of work go to sleep."""
TORCH = Path(__file__).with_name("torch_kernels.py")


@dataclass(frozen=True)
class Figure:
    """One line of the table.

    Attributes:
        seconds: of a call, low quartile, median, high quartile.
        read_bytes, operations: of a call, as Case has them.
        torch_s: of torch's kernel, None where it has none or torch is not there.
    """

    name: str
    shape: str
    rows: int
    seconds: tuple[float, float, float]
    read_bytes: float
    operations: Operations
    torch_s: float | None = None


class Torch:
    """bench/torch_kernels.py as a child of its own environment; one answer a line."""

    def __init__(self, python: Path) -> None:
        self._process = subprocess.Popen(
            [python, TORCH], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        self.notes: dict[str, None] = {}

    def seconds(self, peer: tuple[str, int, int], rows: int, repeats: int) -> list[float]:
        """Of calls of its kernel; none if it has no such kernel, which is noted."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        kernel, outputs, inputs = peer
        work = {"kernel": kernel, "rows": rows, "outputs": outputs, "inputs": inputs}
        self._process.stdin.write(
            json.dumps(work | {"rotated_bytes": ROTATED_BYTES, "repeats": repeats}) + "\n"
        )
        self._process.stdin.flush()
        answer = json.loads(self._process.stdout.readline() or '{"error": "torch ended"}')
        if "error" in answer:
            self.notes[f"torch has no {kernel} kernel here: {answer['error']}"] = None
        return [float(value) for value in answer.get("seconds", [])]

    def close(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait()


def timed(turns: Turns, repeats: int, first: int) -> list[float]:
    """Seconds of a call, of repeats first, first + 1, ..."""
    found, spent = [], 0.0
    for repeat in range(first, first + repeats):
        began = time.perf_counter()
        turns.run(repeat)
        took = time.perf_counter() - began
        found.append(took / turns.calls)
        spent += took
        if spent > MOST_S and len(found) >= LEAST:
            break
    return found


def measure(case: Case, rows: int, torch: Torch | None, repeats: int) -> Figure:
    """One kernel at one number of rows, in turns with torch's."""
    turns = case.make(rows)
    turns.run(0)
    ours: list[float] = []
    theirs: list[float] = []
    for _ in range(ROUNDS):
        time.sleep(REST_S)
        ours += timed(turns, repeats, len(ours) + 1)
        if torch is not None and case.peer is not None:
            time.sleep(REST_S)
            theirs += torch.seconds(case.peer, rows, repeats)
    low, median, high = statistics.quantiles(ours, n=4)
    torch_s = statistics.median(theirs) if theirs else None
    nbytes, operations = case.read_bytes(rows), case.operations(rows)
    return Figure(case.name, case.shape, rows, (low, median, high), nbytes, operations, torch_s)


def line(found: Figure, peak: Bounds) -> str:
    """A figure as a line of the table."""
    low, median, high = found.seconds
    bound_s, reading_s = peak.seconds(found.read_bytes, found.operations), peak.seconds(found.read_bytes, {})
    operations = sum(found.operations.values())
    cells = [
        found.name,
        found.shape,
        f"{found.rows}",
        f"{median * 1e6:,.1f} us",
        f"{low * 1e6:,.1f}-{high * 1e6:,.1f}",
        f"{found.read_bytes / median / 1e9:.1f}",
        f"{operations / median / 1e9:.0f}" if operations else "",
        f"{bound_s * 1e6:,.1f} us, {'reading' if bound_s == reading_s else 'arithmetic'}",
        f"{bound_s / median:.0%}",
        "" if found.torch_s is None else f"{found.torch_s * 1e6:,.0f} us",
        "" if found.torch_s is None else f"{found.torch_s / median:.2f}x",
    ]
    return f"| {' | '.join(cells)} |"


def table(figures: Sequence[Figure], peak: Bounds) -> list[str]:
    """Markdown, one line a figure."""
    head = [
        "| kernel | shape | rows | median | half lie in | GB/s | GOP/s | bound | reached | torch | ours is |",
        "|---|---|--:|--:|--:|--:|--:|---|--:|--:|--:|",
    ]
    return [*head, *(line(found, peak) for found in figures)]


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--only", action="append", default=[], help="kernels whose name has this word")
    parser.add_argument("--rows", default=",".join(map(str, ROWS)), help="numbers of rows")
    parser.add_argument("--repeats", type=int, default=10, help=f"of a round; there are {ROUNDS}")
    parser.add_argument("--torch", type=Path, default=Path(".venv-oracle/bin/python"), help="its Python")
    parser.add_argument("--out", type=Path, help="a file for the table, which is printed too")
    return parser.parse_args()


def run(options: argparse.Namespace) -> tuple[list[Figure], list[str]]:
    """All figures, and notes on what is missing."""
    torch = Torch(options.torch) if options.torch.exists() else None
    notes = (
        []
        if torch
        else [f"{options.torch} is not there, so torch is not beside: make .venv-oracle/.installed"]
    )
    figures = []
    rows = tuple(int(number) for number in options.rows.split(","))
    for case in kernel_cases.cases():
        if options.only and not any(word in case.name for word in options.only):
            continue
        for number in rows:
            if case.rows and number not in case.rows:
                continue
            print(f"{case.name}, {case.shape}, {number} rows", file=sys.stderr, flush=True)
            figures.append(measure(case, number, torch, options.repeats))
    if torch is not None:
        torch.close()
        notes += torch.notes
    return figures, notes


def main() -> None:
    options = _options()
    try:
        before = bounds.measure()
        figures, notes = run(options)
        after = bounds.measure()
    except BoundsError as error:
        raise SystemExit(f"bench.kernels: {error}") from None
    peak = bounds.best(before, after)
    parts = [
        f"{library.instruction_set()}, {library.threads()} threads.",
        "\n".join(bounds.table(peak)),
        bounds.drift(before, after),
        "\n".join(table(figures, peak)),
        *notes,
    ]
    text = "\n\n".join(parts)
    print(text)
    if options.out is not None:
        options.out.write_text(text + "\n")


if __name__ == "__main__":
    main()
