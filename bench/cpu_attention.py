"""The CPU's attention at Gemma 4 E2B's shapes -> a table of times, and of bytes or operations a second.

    python bench/cpu_attention.py [--repeats 40] [--threads 1]

Decode reads each visible key and value once, so its rate is of memory; prefill's is of arithmetic. Times are
those of the fastest quarter's slowest call: a busy machine shows less.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np

from onechip.kernels.api import HeadSpec, Norm
from onechip.kernels.cpu import library
from onechip.kernels.cpu.attention import attend_rows

HEADS = 8


@dataclass(frozen=True)
class Case:
    """Rows at these positions of these slots, in one layer with one KV head; window 0 for a span."""

    name: str
    head_dim: int
    window: int
    slots: tuple[int, ...]
    positions: tuple[int, ...]

    @property
    def is_decode(self) -> bool:
        return len(set(self.slots)) == len(self.slots)

    @property
    def amount(self) -> float:
        """Bytes of keys and values that are read in decode, operations in prefill."""
        seen = sum(min(position + 1, self.window or position + 1) for position in self.positions)
        return 4.0 * self.head_dim * seen * (1 if self.is_decode else HEADS)


@dataclass(frozen=True)
class Figure:
    """A case's time, and its rate in GB/s (decode) or GFLOP/s (prefill)."""

    name: str
    milliseconds: float
    rate: float
    unit: str


def cases() -> Iterator[Case]:
    rows = tuple(range(64))
    for width, window in ((256, 512), (512, 0)):
        for position in (99, 511, 4095):
            yield Case(f"decode, 64 rows at {position}, {width} wide", width, window, rows, (position,) * 64)
        yield Case(f"decode, 1 row at 511, {width} wide", width, window, (0,), (511,))
    yield Case("decode, 1 row at 16383, 512 wide", 512, 0, (0,), (16383,))
    for width, window in ((256, 512), (512, 0)):
        for start in (0, 4096):
            positions = tuple(range(start, start + 256))
            yield Case(f"prefill, 256 rows at {start}, {width} wide", width, window, (0,) * 256, positions)


def measure(case: Case, repeats: int) -> Figure:
    """Run a case's rows through one layer again and again, in bf16."""
    norm = Norm(jnp.ones(case.head_dim, jnp.bfloat16), 1e-6)
    spec = HeadSpec(
        HEADS, 1, case.head_dim, case.window, True, False, norm, norm, Norm(None, 1e-6), q_scale=1.0
    )
    rows, length = len(case.slots), case.window or -(-(max(case.positions) + 1) // 256) * 256
    rng = np.random.default_rng(0)
    qkv = jnp.asarray(rng.standard_normal((rows, (HEADS + 2) * case.head_dim)), jnp.bfloat16)
    turns = (jnp.ones((rows, case.head_dim // 2)), jnp.zeros((rows, case.head_dim // 2)))
    where = (jnp.asarray(case.slots, jnp.int32), jnp.asarray(case.positions, jnp.int32), jnp.ones(rows, bool))
    k, v = (jnp.zeros((max(case.slots) + 1, 1, length, case.head_dim), jnp.uint16) for _ in range(2))
    call = jax.jit(partial(attend_rows, spec), donate_argnums=(3, 4))
    times = []
    for _ in range(repeats + 1):
        begin = time.perf_counter()
        out, k, v = call(qkv, *turns, k, v, *where)
        out.block_until_ready()
        times.append(time.perf_counter() - begin)
    best = sorted(times[1:])[repeats // 4]
    return Figure(case.name, best * 1e3, case.amount / best / 1e9, "GB/s" if case.is_decode else "GFLOP/s")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--repeats", type=int, default=40)
    parser.add_argument("--threads", type=int, help="of the kernels; all cores if not given")
    options = parser.parse_args()
    if options.threads:
        library.set_threads(options.threads)
    library.register()
    print(f"{library.instruction_set()}, {library.threads()} threads")
    for case in cases():
        figure = measure(case, options.repeats)
        print(f"{figure.name:40s} {figure.milliseconds:9.3f} ms {figure.rate:7.1f} {figure.unit}")


if __name__ == "__main__":
    main()
