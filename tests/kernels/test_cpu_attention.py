"""The CPU's attention against plain norms and RoPE and float64; and a row's result does not depend on how
rows are cut into calls, nor on who else is there.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import pairwise
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

from onechip.kernels import xla
from onechip.kernels.api import HeadSpec, Norm
from onechip.kernels.cpu import library
from onechip.kernels.cpu.attention import attend_rows, takes
from onechip.models.decoder import rope

pytestmark = pytest.mark.skipif(
    library.available() is not None, reason=str(library.available() or "the kernels are there")
)

SLOTS = 4
CAPACITY = 768
ROWS = (1, 40, CAPACITY)
"""Of a call: each number costs a compilation."""
NORM = Norm(None, 1e-6)

DTYPES = [jnp.float32, jnp.bfloat16]
SPECS = {
    "span": HeadSpec(4, 1, 32, 0, True, False, NORM, NORM, NORM),
    "ring": HeadSpec(8, 1, 32, 100, True, False, NORM, NORM, NORM),
    "whole_ring": HeadSpec(8, 1, 64, 256, True, False, NORM, NORM, None),
    "several_kv_heads": HeadSpec(6, 2, 64, 0, True, False, NORM, NORM, NORM, 0.125),
    "as_many_kv_heads": HeadSpec(3, 3, 48, 37, True, False, None, None, None, 48**-0.5),
    "more_heads_than_a_tile": HeadSpec(70, 1, 16, 300, True, False, NORM, NORM, NORM),
    "k_eq_v": HeadSpec(4, 2, 80, 0, True, True, NORM, NORM, NORM),
    "wide": HeadSpec(8, 1, 512, 0, True, False, NORM, NORM, NORM),
}


@dataclass(frozen=True)
class Fed:
    """What one slot is fed: qkv [n, columns], cosines and sines [n, D/2], of the positions from 0 on."""

    qkv: jax.Array
    turns: tuple[jax.Array, jax.Array]

    def rows(self, start: int, count: int) -> tuple[np.ndarray, ...]:
        """On the host: JAX would compile each slice."""
        return tuple(np.asarray(array)[start : start + count] for array in (self.qkv, *self.turns))


@pytest.fixture
def rng() -> np.random.Generator:
    return np.random.default_rng(7)


def with_weights(spec: HeadSpec, rng: np.random.Generator, dtype: Any) -> HeadSpec:
    """The spec with weights in its norms of queries and keys."""

    def weighted(norm: Norm | None, offset: float) -> Norm | None:
        weight = jnp.asarray(rng.uniform(0.3, 0.8, spec.head_dim) - offset, dtype)
        return norm and replace(norm, weight=weight, offset=offset)

    return replace(spec, q_norm=weighted(spec.q_norm, 0.0), k_norm=weighted(spec.k_norm, 1.0))


def sequence(spec: HeadSpec, rng: np.random.Generator, count: int, dtype: Any) -> Fed:
    own = spec.kv_heads * (1 if spec.k_eq_v else 2) if spec.owns_kv else 0
    qkv = rng.standard_normal((count, (spec.heads + own) * spec.head_dim)).astype(np.float32)
    angles = np.arange(count)[:, None] * 100.0 ** -np.linspace(0, 1, spec.head_dim // 2)
    turns = (jnp.asarray(np.cos(angles), jnp.float32), jnp.asarray(np.sin(angles), jnp.float32))
    return Fed(jnp.asarray(qkv, dtype), turns)


def heads_of(spec: HeadSpec, fed: Fed) -> list[np.ndarray]:
    """q [n, heads, D], k and v [n, kv, D] as plain JAX makes them, widened."""

    def normed(x: jax.Array, norm: Norm | None) -> jax.Array:
        return x if norm is None else xla.rms_norm(x, norm)

    parts = fed.qkv.reshape(len(fed.qkv), -1, spec.head_dim)
    q, k = parts[:, : spec.heads], parts[:, spec.heads : spec.heads + spec.kv_heads]
    q = rope(normed(q, spec.q_norm), fed.turns, spec.q_scale)
    v = normed(parts[:, -spec.kv_heads :], spec.v_norm)
    return [np.asarray(x, np.float32) for x in (q, rope(normed(k, spec.k_norm), fed.turns), v)]


def attended(spec: HeadSpec, q: np.ndarray, k: np.ndarray, v: np.ndarray) -> np.ndarray:
    """Causal attention in float64: q [n, heads, D], k and v [n, kv, D] -> [n, heads * D]."""
    count, per_kv = len(q), spec.heads // spec.kv_heads
    distance = np.arange(count)[:, None] - np.arange(count)
    visible = (distance >= 0) & (distance < (spec.window or count))
    q, k, v = (
        np.repeat(x.astype(np.float64), repeats, axis=1).swapaxes(0, 1)
        for x, repeats in ((q, 1), (k, per_kv), (v, per_kv))
    )
    scores = q @ k.swapaxes(1, 2)
    weights = np.where(visible, np.exp(scores - np.where(visible, scores, -np.inf).max(-1)[..., None]), 0)
    weights /= weights.sum(-1)[..., None]
    return (weights @ v).swapaxes(0, 1).reshape(count, -1)


class Slots:
    """Caches, and calls that change them as the engine's programs do: compiled, with donated caches."""

    def __init__(self, spec: HeadSpec, dtype: Any, capacity: int = CAPACITY) -> None:
        self._shape = (SLOTS, spec.kv_heads, spec.window or capacity, spec.head_dim)
        self._dtype = xla.stored_dtype(dtype)
        self.clear()
        self._call = jax.jit(
            partial(attend_rows, spec),
            donate_argnums=(3, 4) if spec.owns_kv else (),
            compiler_options=xla.compiler_options("cpu"),
        )

    def clear(self) -> None:
        """New caches, for the same program."""
        self.k, self.v = (jnp.asarray(np.full(self._shape, 9, self._dtype)) for _ in range(2))

    def __call__(self, parts: Sequence[tuple[Fed, int, int, int]]) -> list[np.ndarray]:
        """One call with parts (sequence, slot, start, count) -> rows of each part, filled up to one of ROWS
        with inactive ones.
        """
        counts = [count for *_, count in parts]
        padding = next(rows for rows in ROWS if rows >= sum(counts)) - sum(counts)
        rows = [fed.rows(start, count) for fed, _, start, count in parts]
        rows += [parts[0][0].rows(0, 1)] * padding
        slots = np.concatenate([np.full(count, slot) for _, slot, _, count in parts])
        positions = np.concatenate([np.arange(start, start + count) for _, _, start, count in parts])
        out, self.k, self.v = self._call(
            *(np.concatenate(arrays) for arrays in zip(*rows, strict=True)),
            self.k,
            self.v,
            np.pad(slots, (0, padding)).astype(np.int32),
            np.pad(positions, (0, padding)).astype(np.int32),
            np.arange(len(slots) + padding) < len(slots),
        )
        wide = np.asarray(out, np.float32)
        assert np.isfinite(wide).all()
        return np.split(wide[: len(slots)], np.cumsum(counts)[:-1])

    def feed(self, fed: Fed, slot: int, counts: Sequence[int], start: int = 0) -> np.ndarray:
        """A sequence's rows in calls of so many each -> all results [n, heads * D]."""
        ends = (start + np.cumsum([0, *counts])).tolist()
        return np.concatenate([self([(fed, slot, a, b - a)])[0] for a, b in pairwise(ends)])

    def stored(self, slot: int, count: int) -> tuple[np.ndarray, np.ndarray]:
        """k and v [m, kv, D] of the last positions that are kept after `count`, oldest first."""
        length = self.k.shape[2]
        places = np.arange(max(0, count - length), count) % length
        return tuple(np.asarray(cache)[slot][:, places].swapaxes(0, 1) for cache in (self.k, self.v))


def ulps(stored: np.ndarray, want: np.ndarray) -> np.ndarray:
    """How many bf16 lie between bits [...] uint16 and values [...] float32."""
    bits = np.asarray(want).astype(jnp.bfloat16).view(np.uint16)

    def ordered(x: np.ndarray) -> np.ndarray:
        x = x.astype(np.int32)
        return np.where(x & 0x8000, -(x & 0x7FFF), x)

    return np.abs(ordered(stored) - ordered(bits))


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", SPECS)
def test_rows_and_caches_are_those_of_plain_attention(
    rng: np.random.Generator, name: str, dtype: Any
) -> None:
    spec = with_weights(SPECS[name], rng, dtype)
    fed = sequence(spec, rng, 500, dtype)
    counts = [1, 1, 2, 7, 33, 256, 1, 190, 8, 1]
    slots = Slots(spec, dtype)
    out = slots.feed(fed, 2, counts)
    q, k, v = heads_of(spec, fed)
    k_kept, v_kept = slots.stored(2, 500)
    if dtype == jnp.float32:
        np.testing.assert_allclose(out, attended(spec, q, k, v), atol=3e-5)
        np.testing.assert_allclose(k_kept, k[-len(k_kept) :], atol=1e-5)
        np.testing.assert_allclose(v_kept, v[-len(v_kept) :], atol=1e-5)
        return
    np.testing.assert_allclose(out, attended(spec, q, k, v), atol=2e-2)
    for kept, want in ((k_kept, k), (v_kept, v)):
        apart = ulps(kept, want[-len(kept) :])
        # Keys are rounded three times; where terms of a turn cancel out, an ulp of one is many of their sum.
        assert (apart == 0).mean() > 0.99
        assert np.abs(widened(kept) - want[-len(kept) :]).max() < 0.05


def widened(stored: np.ndarray) -> np.ndarray:
    return stored.view(jnp.bfloat16).astype(np.float32)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", SPECS)
def test_rows_do_not_depend_on_how_they_are_cut(rng: np.random.Generator, name: str, dtype: Any) -> None:
    spec = with_weights(SPECS[name], rng, dtype)
    count = 530
    fed = sequence(spec, rng, count, dtype)
    slots = Slots(spec, dtype)
    want = slots.feed(fed, 1, [count])
    kept = slots.stored(1, count)
    for counts in ([256, 256, 18], [100, 1, 1, 7, 33, 2, 386], [3, 500] + [1] * 27):
        slots.clear()
        np.testing.assert_array_equal(slots.feed(fed, 1, counts), want)
        np.testing.assert_array_equal(slots.stored(1, count), kept)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", ["span", "ring", "several_kv_heads", "wide"])
def test_rows_do_not_depend_on_the_others(rng: np.random.Generator, name: str, dtype: Any) -> None:
    spec = with_weights(SPECS[name], rng, dtype)
    starts = [0, 299, 700, 64]
    fed = [sequence(spec, rng, CAPACITY, dtype) for _ in starts]
    slots = Slots(spec, dtype)

    def run(together: bool) -> list[np.ndarray]:
        slots.clear()
        for slot, start in enumerate(starts):
            if start:
                slots.feed(fed[slot], slot, [start])
        at, rows = starts, []
        for counts in ([1, 1, 1, 1], [5, 1, 40, 2], [1, 17, 1, 120]):
            parts = [(fed[i], i, at[i], counts[i]) for i in range(SLOTS)]
            calls = [parts] if together else [[part] for part in parts]
            rows += [part for call in calls for part in slots(call)]
            at = [start + count for start, count in zip(at, counts, strict=True)]
        return [*rows, np.asarray(slots.k), np.asarray(slots.v)]

    for alone, among in zip(run(together=False), run(together=True), strict=True):
        np.testing.assert_array_equal(alone, among)


def test_a_long_row_is_the_same_however_many_work_on_it(rng: np.random.Generator) -> None:
    """Alone it is cut into more pieces than in company, and as a part of its chunk into none."""
    spec = with_weights(SPECS["span"], rng, jnp.bfloat16)
    length = 2304
    fed = sequence(spec, rng, length, jnp.bfloat16)
    slots = Slots(spec, jnp.bfloat16, length)
    rows = [slots.feed(fed, slot, [256] * 9) for slot in range(SLOTS)]
    (alone,) = slots([(fed, 0, length - 1, 1)])
    np.testing.assert_array_equal(alone[0], rows[0][-1])
    for among in slots([(fed, slot, length - 1, 1) for slot in range(SLOTS)]):
        np.testing.assert_array_equal(among, alone)
    np.testing.assert_allclose(rows[0], attended(spec, *heads_of(spec, fed)), atol=2e-2)


@pytest.mark.parametrize("window", [0, 64])
def test_inactive_rows_write_nothing_and_are_finite(rng: np.random.Generator, window: int) -> None:
    spec = replace(SPECS["span"], window=window)
    slots = Slots(spec, jnp.bfloat16)
    before = np.array(slots.k), np.array(slots.v)
    fed = sequence(spec, rng, 8, jnp.bfloat16)
    nan = Fed(fed.qkv.at[3:].set(jnp.nan), fed.turns)
    call = jax.jit(partial(attend_rows, spec), donate_argnums=(3, 4))
    active = jnp.arange(8) < 3
    places = jnp.asarray([0, 1, 2, 3, -7, 1 << 30, 5, 6], jnp.int32)
    nobody = jnp.asarray([1, 1, 1, 1, 1, 99, -1, 1], jnp.int32)
    out, k, v = call(*nan.rows(0, 8), slots.k, slots.v, nobody, places, active)
    assert np.isfinite(np.asarray(out, np.float32)).all()
    for cache, old in ((k, before[0]), (v, before[1])):
        changed = (np.asarray(cache) != old).any(axis=(1, 3))
        assert changed[1, :3].all()
        assert changed.sum() == 3


@pytest.mark.parametrize("window", [0, 64])
def test_active_rows_outside_the_cache_write_nothing(rng: np.random.Generator, window: int) -> None:
    spec = replace(SPECS["span"], window=window)
    slots = Slots(spec, jnp.float32)
    before = np.array(slots.k)
    fed = sequence(spec, rng, 3, jnp.float32)
    call = jax.jit(partial(attend_rows, spec), donate_argnums=(3, 4))
    places = jnp.asarray([0, 0, -1 if window else CAPACITY], jnp.int32)
    nobody = jnp.asarray([SLOTS, -1, 0], jnp.int32)
    out, k, _ = call(*fed.rows(0, 3), slots.k, slots.v, nobody, places, jnp.ones(3, bool))
    assert (np.asarray(out) == 0).all()
    np.testing.assert_array_equal(k, before)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", ["span", "ring"])
def test_a_layer_may_read_the_cache_of_another(rng: np.random.Generator, name: str, dtype: Any) -> None:
    owner = with_weights(SPECS[name], rng, dtype)
    spec = replace(owner, owns_kv=False, k_norm=None, v_norm=None)
    fed = sequence(owner, rng, 400, dtype)
    own = Slots(owner, dtype)
    want = own.feed(fed, 3, [399, 1])
    queries = Fed(fed.qkv[:, : spec.heads * spec.head_dim], fed.turns)
    reader = Slots(spec, dtype)
    reader.k, reader.v = own.k, own.v
    (rows,) = reader([(queries, 3, 399, 1)])
    np.testing.assert_array_equal(rows[0], want[-1])
    assert reader.k is own.k or (np.asarray(reader.k) == np.asarray(own.k)).all()


def test_caches_are_not_copied() -> None:
    """As the engine's decode uses them: donated, in a loop, beside a branch, read by a second layer."""
    spec = SPECS["ring"]
    reader = replace(spec, owns_kv=False, k_norm=None, v_norm=None)
    turns = (jnp.ones((SLOTS, 16)), jnp.zeros((SLOTS, 16)))
    slots, active = jnp.arange(SLOTS, dtype=jnp.int32), jnp.ones(SLOTS, bool)

    def step(carry: Any, _: None) -> tuple[Any, jax.Array]:
        k, v, qkv, positions = carry
        out, k, v = attend_rows(spec, qkv, *turns, k, v, slots, positions, active)
        out, _, _ = attend_rows(reader, out, *turns, k, v, slots, positions, active)
        out = lax.cond(out.sum() > 0, jnp.tanh, jnp.negative, out)
        return (k, v, qkv + out.mean(), positions + 1), out

    def decode(k: jax.Array, v: jax.Array, qkv: jax.Array, positions: jax.Array) -> Any:
        return lax.scan(step, (k, v, qkv, positions), None, length=4)

    cache = jax.ShapeDtypeStruct((SLOTS, 1, 100, 32), jnp.float32)
    rows = jax.ShapeDtypeStruct((SLOTS, 10 * 32), jnp.float32)
    positions = jax.ShapeDtypeStruct((SLOTS,), jnp.int32)
    program = jax.jit(decode, donate_argnums=(0, 1)).lower(cache, cache, rows, positions).compile()
    assert "onechip_attend" in program.as_text()
    assert not re.findall(r"f32\[4,1,100,32\]\S* copy\(", program.as_text())
    assert program.memory_analysis().temp_size_in_bytes < 4 * SLOTS * 100 * 32


def test_what_the_kernels_do_not_take_is_refused_while_a_program_is_traced(rng: np.random.Generator) -> None:
    assert not takes(24)
    spec = HeadSpec(2, 1, 24, 0, True, False, None, None, None)
    with pytest.raises(ValueError, match="24 wide"):
        Slots(spec, jnp.float32).feed(sequence(spec, rng, 2, jnp.float32), 0, [2])


@pytest.mark.parametrize("name", ["avx2", "avx512_vnni"])
def test_lesser_instruction_sets_give_the_same(name: str) -> None:
    """The tests above again: the instruction set is chosen once in a process."""
    if os.environ.get("ONECHIP_CPU_ISA"):
        pytest.skip("this is such a run")
    tests = "(plain_attention or cut) and (as_many or k_eq_v)"
    command = [sys.executable, "-m", "pytest", "-q", "-x", __file__, "-k", tests]
    done = subprocess.run(
        command, env=os.environ | {"ONECHIP_CPU_ISA": name}, capture_output=True, text=True, timeout=600
    )
    assert done.returncode == 0, done.stdout[-3000:]
