"""The kernels of the CPU at E2B's shapes, each as something to run again and again on other memory.

Weights, caches and tables take turns: together they are many times the processor's last cache, so that each
call finds its own in memory, as in a decode step. Several calls make one program, which the dispatch of
programs then costs little.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np

from onechip.kernels.api import GROUP, SPAN_BLOCK, Draw, HeadSpec, Int4, Int8, Norm, Panels
from onechip.kernels.cpu import weights
from onechip.kernels.cpu.arena import Arena
from onechip.kernels.cpu.attention import attend_rows
from onechip.kernels.cpu.ops import CpuKernels
from onechip.models.quant import quantize_int8

HIDDEN, WIDE, WIDEST, QKV, QUERIES, PLE, VOCAB = 1536, 6144, 12288, 2560, 2048, 256, 262_144
"""Of Gemma 4 E2B; the MLP of the last 20 layers is the widest one. QKV and QUERIES: of sliding layers."""
HEADS, WINDOW, SPAN = 8, 512, 4096
ROTATED_BYTES = 256 << 20
CALLS = 8
"""In one program, at the most."""
PATTERN_ROWS = 1024
"""Random rows; a weight repeats them."""

Operations = Mapping[str, float]
"""Kind of activations -> multiplications and additions."""


@dataclass(frozen=True)
class Turns:
    """Attributes: run(i) does `calls` calls on the i-th memory and waits for them."""

    run: Callable[[int], None]
    calls: int


@dataclass(frozen=True)
class Case:
    """One kernel.

    Attributes:
        name, shape: for the table.
        read_bytes, operations: of one call with so many rows; activations, which lie in a cache, not counted.
        make: rows -> what runs it.
        rows: the numbers of rows that it can have; empty for any.
        peer: torch's kernel for the same product (torch_kernels.KERNELS), and the weight's [out, in].
    """

    name: str
    shape: str
    read_bytes: Callable[[int], float]
    operations: Callable[[int], Operations]
    make: Callable[[int], Turns]
    rows: tuple[int, ...] = ()
    peer: tuple[str, int, int] | None = None


def weight(kind: str, outputs: int, inputs: int, *, exact: bool = False, paired: bool = False) -> Panels:
    """Random values, packed; they do not change how long a product takes."""
    rng = np.random.default_rng(0)
    rows, times = min(outputs, PATTERN_ROWS), -(-outputs // PATTERN_ROWS)

    def repeated(pattern: np.ndarray) -> np.ndarray:
        return np.tile(pattern, (times, 1))[:outputs]

    if kind == "int4":
        words = rng.integers(-(2**31), 2**31, (rows, inputs // 8)).astype(np.int32)
        scales = rng.uniform(0.005, 0.01, (rows, inputs // GROUP)).astype(ml_dtypes.bfloat16)
        return weights.pack(
            Int4(repeated(words), repeated(scales)), exact=exact, paired=paired, arena=Arena()
        )
    dense = repeated(rng.normal(0, 0.02, (rows, inputs)).astype(ml_dtypes.bfloat16))
    if kind == "int8":
        return weights.pack(Int8(*quantize_int8(dense)), exact=exact, paired=paired, arena=Arena())
    return weights.pack(dense, exact=exact, paired=paired, arena=Arena())


def copies(panels: Panels) -> list[Panels]:
    """As many as fill ROTATED_BYTES, each in memory of its own, in huge pages."""
    arena, found = Arena(), []
    for _ in range(_turns(panels.data.nbytes)):
        data = arena.take(panels.data.shape)
        data[...] = panels.data
        found.append(replace(panels, data=jax.device_put(data)))
    return found


def _turns(nbytes: float) -> int:
    return max(2, math.ceil(ROTATED_BYTES / nbytes))


def activations(rows: int, width: int) -> jax.Array:
    return jnp.asarray(np.random.default_rng(1).standard_normal((rows, width)), jnp.bfloat16)


def norm(width: int) -> Norm:
    return Norm(jnp.ones(width, jnp.bfloat16), 1e-6)


def turns(program: Callable[..., Any], x: Any, memories: list[Any]) -> Turns:
    """`program(x, memories)` jitted, for some of the memories at a time."""
    calls = min(CALLS, len(memories) // 2)
    groups = [memories[at : at + calls] for at in range(0, len(memories) - calls + 1, calls)]
    jitted = jax.jit(program)
    return Turns(lambda i: _wait(jitted(x, groups[i % len(groups)])), calls)


def in_a_row(step: Callable[[Any, Any], Any], x: Any, memories: list[Any]) -> Any:
    """Each call takes what the one before gave."""
    for memory in memories:
        x = step(x, memory)
    return x


def each(step: Callable[[Any, Any], Any], x: Any, memories: list[Any]) -> list[Any]:
    """Calls of their own; the processor does one after the other."""
    return [step(x, memory) for memory in memories]


def product(kind: str, against: str, outputs: int = QKV, *, peer: bool = True) -> Case:
    """q, k and v of a sliding layer with the norm before; weights `kind`, activations `against`."""

    def make(rows: int) -> Turns:
        kernels, before = CpuKernels(), norm(HIDDEN)
        panels = copies(weight(kind, outputs, HIDDEN, exact=against != "int8"))
        program = partial(each, lambda x, memory: kernels.matmul(x, memory, norm=before))
        return turns(program, activations(rows, HIDDEN), panels)

    nbytes = weights.packed_bytes(_kind(kind), outputs, HIDDEN)
    return Case(
        f"matmul {kind} x {against}",
        f"{outputs} x {HIDDEN}",
        lambda rows: nbytes,
        lambda rows: {against: 2.0 * rows * outputs * HIDDEN},
        make,
        peer=(kind, outputs, HIDDEN) if peer else None,
    )


def matmul_add() -> Case:
    """Attention's output product, with the norm behind it and the residual."""

    def make(rows: int) -> Turns:
        kernels, behind, x = CpuKernels(), norm(HIDDEN), activations(rows, QUERIES)

        def step(hidden: jax.Array, memory: Panels) -> jax.Array:
            return kernels.matmul_add(x, memory, norm=behind, residual=hidden)

        panels = copies(weight("int4", HIDDEN, QUERIES))
        return turns(partial(in_a_row, step), activations(rows, HIDDEN), panels)

    nbytes = weights.packed_bytes("int4", HIDDEN, QUERIES)
    return Case(
        "matmul_add int4 x int8",
        f"{HIDDEN} x {QUERIES}",
        lambda rows: nbytes,
        lambda rows: {"int8": 2.0 * rows * HIDDEN * QUERIES},
        make,
    )


def mlp(width: int) -> Case:
    def make(rows: int) -> Turns:
        kernels, around = CpuKernels(), norm(HIDDEN)

        def step(hidden: jax.Array, memory: tuple[Panels, Panels]) -> jax.Array:
            return kernels.mlp(hidden, *memory, norm=around, post_norm=around, activation="gelu_tanh")

        gate_up = copies(weight("int4", 2 * width, HIDDEN, paired=True))
        down = copies(weight("int4", HIDDEN, width))
        pairs = list(zip(gate_up, down, strict=False))
        return turns(partial(in_a_row, step), activations(rows, HIDDEN), pairs)

    nbytes = weights.packed_bytes("int4", 2 * width, HIDDEN, paired=True)
    nbytes += weights.packed_bytes("int4", HIDDEN, width)
    return Case(
        "mlp int4 x int8",
        f"{HIDDEN} x {width} x {HIDDEN}",
        lambda rows: nbytes,
        lambda rows: {"int8": 6.0 * rows * HIDDEN * width},
        make,
    )


def add_ple() -> Case:
    def make(rows: int) -> Turns:
        kernels, behind, ple = CpuKernels(), norm(HIDDEN), activations(rows, PLE)

        def step(hidden: jax.Array, memory: tuple[Panels, Panels]) -> jax.Array:
            return kernels.add_ple(hidden, ple, *memory, post_norm=behind, scalar=None)

        gate, out = copies(weight("int4", PLE, HIDDEN)), copies(weight("int4", HIDDEN, PLE))
        return turns(partial(in_a_row, step), activations(rows, HIDDEN), list(zip(gate, out, strict=False)))

    nbytes = weights.packed_bytes("int4", PLE, HIDDEN) + weights.packed_bytes("int4", HIDDEN, PLE)
    return Case(
        "add_ple int4 x int8",
        f"{HIDDEN} x {PLE} x {HIDDEN}",
        lambda rows: nbytes,
        lambda rows: {"int8": 4.0 * rows * HIDDEN * PLE},
        make,
    )


def greedy(kind: str, against: str) -> Case:
    """The head and the choice of the largest logit."""

    def make(rows: int) -> Turns:
        kernels, before = CpuKernels(), norm(HIDDEN)
        banned = jnp.full((rows, 16), -1, jnp.int32)

        def step(x: jax.Array, memory: Panels) -> jax.Array:
            return kernels.greedy(x, memory, norm=before, banned=banned)

        panels = copies(weight(kind, VOCAB, HIDDEN, exact=against != "int8"))
        return turns(partial(each, step), activations(rows, HIDDEN), panels)

    nbytes = weights.packed_bytes(_kind(kind), VOCAB, HIDDEN)
    return Case(
        f"greedy head {kind} x {against}",
        f"{VOCAB} x {HIDDEN}",
        lambda rows: nbytes,
        lambda rows: {against: 2.0 * rows * VOCAB * HIDDEN},
        make,
    )


def table_rows() -> Case:
    """Rows of the embedding table, which the head multiplies and which is therefore in panels: of each row's
    panel every line holds a part of it."""

    def make(rows: int) -> Turns:
        kernels, table = CpuKernels(), copies(weight("int4", VOCAB, HIDDEN))[0]
        rng = np.random.default_rng(2)
        tokens = [jnp.asarray(rng.integers(0, VOCAB, rows), jnp.int32) for _ in range(16 * CALLS)]
        program = partial(each, lambda panels, ids: kernels.rows(panels, ids, jnp.bfloat16))
        return turns(program, table, tokens)

    panel = weights.packed_bytes("int4", 16, HIDDEN)
    return Case("rows int4", f"{VOCAB} x {HIDDEN}", lambda rows: rows * panel, lambda rows: {}, make)


def draw() -> Case:
    """The choice of tokens from logits, with Gemma's recommended sampling."""

    def make(rows: int) -> Turns:
        choose = CpuKernels().draw
        assert choose is not None
        wishes = Draw(
            temperature=jnp.ones(rows, jnp.float32),
            top_k=jnp.full(rows, 64, jnp.int32),
            top_p=jnp.full(rows, 0.95, jnp.float32),
            min_p=jnp.zeros(rows, jnp.float32),
            seed=jnp.arange(rows, dtype=jnp.uint32),
        )
        positions, banned = jnp.arange(rows, dtype=jnp.int32), jnp.full((rows, 16), -1, jnp.int32)
        rng = np.random.default_rng(3)
        one = rng.standard_normal((rows, VOCAB), np.float32)
        scores = [jnp.asarray(np.roll(one, at)) for at in range(_turns(one.nbytes))]
        program = partial(each, lambda seeds, memory: choose(memory, seeds, positions, banned, 30.0))
        return turns(program, wishes, scores)

    return Case("draw", f"{VOCAB}", lambda rows: 4.0 * rows * VOCAB, lambda rows: {}, make)


def attention(width: int, window: int) -> Case:
    """One new row of each of as many slots at position SPAN - 1, in one layer with one KV head."""
    seen = window or SPAN

    def make(rows: int) -> Turns:
        slots = max(2 * rows, _turns(4.0 * width * seen))
        groups = slots // rows
        run = _attender(width, window, slots, rows)

        def turn(i: int) -> None:
            first = i % groups * rows
            run(np.arange(first, first + rows), np.full(rows, SPAN - 1))

        return Turns(turn, 1)

    what = f"ring of {window}" if window else f"span of {SPAN}"
    return Case(
        "attention, decode",
        f"{HEADS} heads of {width}, {what}",
        lambda rows: 4.0 * rows * width * seen,
        lambda rows: {"bf16": 4.0 * rows * width * seen * HEADS},
        make,
        rows=(1, 4, 16, 64),
    )


def prefill(width: int, window: int) -> Case:
    """A chunk of one slot's prompt that ends at position SPAN - 1."""

    def make(rows: int) -> Turns:
        slots = _turns(4.0 * width * (window or SPAN))
        run = _attender(width, window, slots, rows)
        return Turns(lambda i: run(np.full(rows, i % slots), np.arange(SPAN - rows, SPAN)), 1)

    def seen(rows: int) -> int:
        return sum(min(position + 1, window or SPAN) for position in range(SPAN - rows, SPAN))

    what = f"ring of {window}" if window else f"span of {SPAN}"
    return Case(
        "attention, prefill",
        f"{HEADS} heads of {width}, {what}",
        lambda rows: 4.0 * width * min(SPAN, window + rows if window else SPAN),
        lambda rows: {"bf16": 4.0 * width * HEADS * seen(rows)},
        make,
        rows=(16, 64, 256),
    )


def _attender(width: int, window: int, slots: int, rows: int) -> Callable[[np.ndarray, np.ndarray], None]:
    """Attends rows of these slots at these positions, and waits; the caches stay from call to call."""
    spec = HeadSpec(
        HEADS, 1, width, window, True, False, norm(width), norm(width), Norm(None, 1e-6), q_scale=1.0
    )
    length = window or -(-SPAN // SPAN_BLOCK) * SPAN_BLOCK
    caches = [jnp.ones((slots, 1, length, width), jnp.uint16) for _ in range(2)]
    qkv = activations(rows, (HEADS + 2) * width)
    ones, zeros, active = jnp.ones((rows, width // 2)), jnp.zeros((rows, width // 2)), jnp.ones(rows, bool)
    call = jax.jit(partial(attend_rows, spec), donate_argnums=(3, 4))

    def run(which: np.ndarray, positions: np.ndarray) -> None:
        where = (jnp.asarray(which, jnp.int32), jnp.asarray(positions, jnp.int32))
        out, caches[0], caches[1] = call(qkv, ones, zeros, *caches, *where, active)
        _wait(out)

    return run


def _wait(results: Any) -> None:
    jax.block_until_ready(results)  # type: ignore[no-untyped-call]


def _kind(name: str) -> weights.Kind:
    kinds: dict[str, weights.Kind] = {"bf16": "bf16", "int8": "int8", "int4": "int4"}
    return kinds[name]


def cases() -> list[Case]:
    """In the order of the table."""
    return [
        product("int4", "int8"),
        product("int4", "bf16", peer=False),
        product("int8", "int8"),
        product("bf16", "bf16"),
        matmul_add(),
        mlp(WIDE),
        mlp(WIDEST),
        add_ple(),
        greedy("int4", "int8"),
        greedy("bf16", "bf16"),
        table_rows(),
        draw(),
        attention(256, WINDOW),
        attention(512, 0),
        prefill(256, WINDOW),
        prefill(512, 0),
    ]
