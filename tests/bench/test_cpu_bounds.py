"""What the machine can do: figures read from what the loops print, and the time that work takes at least."""

from __future__ import annotations

import pytest
from bench.bounds import INSTRUCTIONS, Bounds, BoundsError, best, drift, parse, table

SAID = """\
read, 1 threads: 20.0 GB/s
read, 2 threads: 30.0 GB/s
peak int8: 400 GOP/s a thread
peak bf16: 200 GOP/s a thread
peak f32: 100 GOP/s a thread
"""


@pytest.fixture
def bounds() -> Bounds:
    return parse(SAID, 2, INSTRUCTIONS["avx512_bf16"])


def test_the_loops_figures_are_read(bounds: Bounds) -> None:
    assert bounds.read == {1: 20e9, 2: 30e9}
    assert bounds.read_bytes_s == 30e9
    assert bounds.operations_s("int8") == 800e9


@pytest.mark.parametrize("gone", ["read", "peak bf16"])
def test_a_missing_figure_is_an_error(gone: str) -> None:
    said = "\n".join(line for line in SAID.splitlines() if not line.startswith(gone))
    with pytest.raises(BoundsError, match="did not print"):
        parse(said, 2, INSTRUCTIONS["avx2"])


def test_the_longer_of_reading_and_arithmetic_counts(bounds: Bounds) -> None:
    assert bounds.seconds(30e9, {"int8": 80e9}) == pytest.approx(1.0)
    assert bounds.seconds(3e9, {"int8": 80e9}) == pytest.approx(0.1)
    assert bounds.seconds(3e9, {"int8": 80e9, "bf16": 80e9}) == pytest.approx(0.1 + 0.2)


def test_the_better_of_two_measurements_counts(bounds: Bounds) -> None:
    other = Bounds(2, {1: 10e9, 2: 33e9}, {"int8": 500e9, "bf16": 1e9, "f32": 1e9}, bounds.instructions)
    both = best(bounds, other)
    assert both.read == {1: 20e9, 2: 33e9}
    assert both.peak == {"int8": 500e9, "bf16": 200e9, "f32": 100e9}
    assert "reading moved by 10% between them, int8 by 25%" in drift(bounds, other)


def test_the_table_names_the_instruction_and_how_many_threads_read(bounds: Bounds) -> None:
    text = "\n".join(table(bounds))
    assert "| reading, huge pages | 20.0 GB/s | 30.0 GB/s | |" in text
    assert "| bf16 | 200 GOP/s | 400 GOP/s | `vdpbf16ps` |" in text
    more = parse(SAID, 8, INSTRUCTIONS["avx2"])
    assert "30.0 GB/s (2 of 8)" in "\n".join(table(more))
