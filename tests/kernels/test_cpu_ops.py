"""The CPU's operations against plain JAX on the same weights; and a row's result does not depend on the other
rows.

Where activations are rounded to int8 the reference rounds them in the same way, so that what is left is the
order of sums; `test_int8_activations_stay_near_exact_ones` says how far from exact that is.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from onechip.kernels import xla
from onechip.kernels.api import GROUP, Activation, Int4, Int8, Norm, Panels
from onechip.kernels.cpu import library, weights
from onechip.models.quant import quantize_int4, quantize_int8

if (why_not := library.available()) is not None:
    pytest.skip(why_not, allow_module_level=True)

from onechip.kernels.cpu.ops import CpuKernels

CPU = CpuKernels()
ROWS = [1, 3, 17, 64, 300]
DTYPES = [jnp.bfloat16, jnp.float32]
KINDS = ["bf16", "int8", "int4", "exact int8", "exact int4"]


class Rounding(xla.PlainKernels):
    """Plain JAX whose products first round activations to int8, in groups of 32, as native/layout.h says."""

    def matmul(self, x: jax.Array, weight: Any, *, norm: Norm | None = None, out_dtype: Any = None) -> Any:
        normed = x if norm is None else xla.rms_norm(x, norm)
        product = xla.matmul(rounded(normed), weight, jnp.float32)
        return product.astype(out_dtype or x.dtype)

    def matmul_add(self, x: jax.Array, weight: Any, *, norm: Norm | None, residual: jax.Array) -> Any:
        out = self.matmul(x, weight)
        return residual + (out if norm is None else xla.rms_norm(out, norm))

    def add_ple(
        self, hidden: jax.Array, ple: jax.Array, gate: Any, out: Any, *, post_norm: Norm, scalar: Any
    ) -> Any:
        gated = xla.gelu(self.matmul(hidden, gate)) * ple
        added = self.matmul_add(gated, out, norm=post_norm, residual=hidden)
        return added if scalar is None else added * scalar.astype(hidden.dtype)


def rounded(x: jax.Array) -> jax.Array:
    """x [rows, in] as float32 after rounding to int8 with a scale for each 32 columns."""
    columns = x.shape[-1]
    groups = np.pad(np.asarray(x, np.float32), ((0, 0), (0, -columns % GROUP))).reshape(len(x), -1, GROUP)
    scale = np.abs(groups).max(-1, keepdims=True) / np.float32(127)
    levels = np.round(np.divide(groups, scale, out=np.zeros_like(groups), where=scale > 0))
    return jnp.asarray((levels * scale).reshape(len(x), -1)[:, :columns])


@dataclass(frozen=True)
class Pair:
    """One weight, as the CPU's kernels take it and as plain JAX does."""

    packed: Panels
    plain: jax.Array


class Maker:
    """Makes random weights of one kind, activations of one dtype, and norms."""

    def __init__(self, kind: str, dtype: Any) -> None:
        self.rng = np.random.default_rng(5)
        self.exact, self.kind = kind.startswith("exact"), kind.split()[-1]
        self.dtype = dtype
        rounding = self.kind != "bf16" and not self.exact
        self.plain = Rounding() if rounding else xla.PlainKernels()

    def normal(self, *shape: int) -> np.ndarray:
        return self.rng.standard_normal(shape).astype(np.float32)

    def x(self, *shape: int) -> jax.Array:
        return jnp.asarray(self.normal(*shape), self.dtype)

    def weight(self, outputs: int, inputs: int, paired: bool = False) -> Pair:
        """Rows with a length near 1, so that results are of size 1."""
        values = self.normal(outputs, inputs) / np.float32(inputs**0.5)
        leaf: Any = values.astype(weights.BFLOAT16)
        if self.kind == "int4":
            leaf = Int4(*quantize_int4(values))
        elif self.kind == "int8":
            leaf = Int8(*quantize_int8(values))
        packed = weights.pack(leaf, exact=self.exact, paired=paired)
        return Pair(packed, jnp.asarray(weights.unpack(packed)))

    def norm(self, width: int, offset: float = 0) -> Norm:
        weight = jnp.asarray(self.normal(width) / 4 + 1 - offset, self.dtype)
        return Norm(weight, 1e-6, offset)


def close(result: jax.Array | np.ndarray, wanted: jax.Array | np.ndarray, rms: float) -> None:
    """Alike: `rms` bounds the root mean square of the errors; twenty times that, each of them."""
    assert result.dtype == wanted.dtype
    assert result.shape == wanted.shape
    errors = np.asarray(result, np.float64) - np.asarray(wanted, np.float64)
    assert np.sqrt(np.mean(errors**2)) <= rms
    assert np.abs(errors).max() <= 20 * rms


def compiled(operation: Callable[..., Any]) -> Callable[..., Any]:
    """operation(CpuKernels, *inputs) as a function of how many rows matter, and the inputs: one program
    for all numbers of rows.
    """

    def first(count: jax.Array, *inputs: jax.Array) -> Any:
        return operation(CPU.first_rows(count), *inputs)

    return jax.jit(first, compiler_options=xla.compiler_options("cpu"))


def same(
    make: Maker,
    operation: Callable[..., jax.Array],
    plain: Callable[..., jax.Array],
    *inputs: jax.Array,
    straight: bool = False,
) -> None:
    """Both give the same, from one row to as many as the inputs have.

    Args:
        operation: of (CpuKernels, *inputs).
        plain: of the inputs.
        straight: nothing is rounded whose size hangs on the order of sums; it could come out one level away.
    """
    wanted = plain(*inputs)
    levels = make.dtype == jnp.bfloat16 or isinstance(make.plain, Rounding)
    rms = 1e-2 if wanted.dtype == jnp.bfloat16 else 1e-3 if levels and not straight else 3e-6
    run = compiled(operation)
    for rows in ROWS:
        close(np.asarray(run(np.int32(rows), *inputs))[:rows], np.asarray(wanted)[:rows], rms)


@pytest.mark.parametrize(
    ("outputs", "inputs", "normed", "offset"),
    [(33, 32, False, 0), (100, 96, True, 0), (256, 160, True, 1), (16, 1536, False, 0)],
)
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("kind", KINDS)
def test_matmul(kind: str, dtype: Any, outputs: int, inputs: int, normed: bool, offset: int) -> None:
    make = Maker(kind, dtype)
    weight, x = make.weight(outputs, inputs), make.x(ROWS[-1], inputs)
    norm = make.norm(inputs, offset) if normed else None
    for out_dtype in {None, jnp.float32} - {dtype}:
        same(
            make,
            lambda cpu, x, to=out_dtype: cpu.matmul(x, weight.packed, norm=norm, out_dtype=to),
            lambda x, to=out_dtype: make.plain.matmul(x, weight.plain, norm=norm, out_dtype=to),
            x,
            straight=not normed,
        )


@pytest.mark.parametrize("dtype", DTYPES)
def test_matmul_of_a_width_that_is_no_multiple_of_anything(dtype: Any) -> None:
    make = Maker("bf16", dtype)
    weight, x = make.weight(21, 50), make.x(2, 3, 50)
    result = CPU.matmul(x, weight.packed, norm=Norm(None, 1e-6))
    close(result, xla.matmul(xla.rms_norm(x, Norm(None, 1e-6)), weight.plain), 5e-3)


@pytest.mark.parametrize(("outputs", "inputs", "normed", "offset"), [(33, 32, False, 0), (192, 160, True, 1)])
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("kind", KINDS)
def test_matmul_add(kind: str, dtype: Any, outputs: int, inputs: int, normed: bool, offset: int) -> None:
    make = Maker(kind, dtype)
    weight, norm = make.weight(outputs, inputs), make.norm(outputs, offset) if normed else None
    same(
        make,
        lambda cpu, x, residual: cpu.matmul_add(x, weight.packed, norm=norm, residual=residual),
        lambda x, residual: make.plain.matmul_add(x, weight.plain, norm=norm, residual=residual),
        make.x(ROWS[-1], inputs),
        make.x(ROWS[-1], outputs),
        straight=True,
    )


@pytest.mark.parametrize(
    ("hidden", "width", "normed", "activation"), [(96, 160, True, "gelu_tanh"), (128, 96, False, "silu")]
)
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("kind", KINDS)
def test_mlp(kind: str, dtype: Any, hidden: int, width: int, normed: bool, activation: Activation) -> None:
    make = Maker(kind, dtype)
    gate_up, down = make.weight(2 * width, hidden, paired=True), make.weight(hidden, width)
    norm, post_norm = make.norm(hidden, 1), make.norm(hidden) if normed else None
    also = {"norm": norm, "post_norm": post_norm, "activation": activation}
    same(
        make,
        lambda cpu, x: cpu.mlp(x, gate_up.packed, down.packed, **also),
        lambda x: make.plain.mlp(x, gate_up.plain, down.plain, **also),
        make.x(ROWS[-1], hidden),
    )


@pytest.mark.parametrize(("hidden", "width", "scalar"), [(96, 32, None), (160, 64, "f32"), (64, 96, "same")])
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("kind", KINDS)
def test_add_ple(kind: str, dtype: Any, hidden: int, width: int, scalar: str | None) -> None:
    make = Maker(kind, dtype)
    gate, out = make.weight(width, hidden), make.weight(hidden, width)
    factor = jnp.asarray([0.7], jnp.float32 if scalar == "f32" else dtype)
    also = {"post_norm": make.norm(hidden), "scalar": factor if scalar else None}
    same(
        make,
        lambda cpu, x, ple: cpu.add_ple(x, ple, gate.packed, out.packed, **also),
        lambda x, ple: make.plain.add_ple(x, ple, gate.plain, out.plain, **also),
        make.x(ROWS[-1], hidden),
        make.x(ROWS[-1], width),
    )


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("kind", KINDS)
def test_rows(kind: str, dtype: Any) -> None:
    make = Maker(kind, dtype)
    table = make.weight(100, 96)
    for tokens in (np.arange(100), np.array([[99, 0, 7], [7, 64, 31]]), np.array([3])):
        ids = jnp.asarray(tokens, jnp.int32)
        result = CPU.rows(table.packed, ids, dtype)
        wanted = make.plain.rows(table.plain, ids, dtype)
        assert result.dtype == wanted.dtype
        np.testing.assert_array_equal(np.asarray(result, np.float32), np.asarray(wanted, np.float32))


@pytest.mark.parametrize("kind", KINDS)
def test_logits_and_the_best_of_them(kind: str) -> None:
    make = Maker(kind, jnp.bfloat16)
    weight, hidden, norm = make.weight(1003, 96), make.x(300, 96), make.norm(96)

    def heads(cpu: CpuKernels, hidden: jax.Array) -> tuple[jax.Array, ...]:
        logits = cpu.logits(hidden, weight.packed, norm=norm)
        nothing = jnp.zeros((len(hidden), 0), jnp.int32)
        best = cpu.greedy(hidden, weight.packed, norm=norm, banned=nothing)
        banned = jnp.stack([best, jnp.full_like(best, -1), jnp.full_like(best, 1 << 30)], axis=1)
        return logits, best, cpu.greedy(hidden, weight.packed, norm=norm, banned=banned)

    wanted = np.asarray(make.plain.logits(hidden, weight.plain, norm=norm))
    run = compiled(heads)
    for rows in (1, 8, 300):
        logits, best, second = (np.array(part)[:rows] for part in run(np.int32(rows), hidden))
        close(logits, wanted[:rows], 1e-3)
        np.testing.assert_array_equal(best, logits.argmax(-1))
        logits[np.arange(rows), best] = -np.inf
        np.testing.assert_array_equal(second, logits.argmax(-1))


def test_the_first_of_equal_logits_is_chosen() -> None:
    make = Maker("int4", jnp.float32)
    packed, scale = (np.tile(array, (40, 1)) for array in quantize_int4(make.normal(50, 64)))
    weight = weights.pack(Int4(packed, scale), exact=False, paired=False)
    best = CPU.greedy(make.x(5, 64), weight, norm=Norm(None, 1e-6), banned=jnp.zeros((5, 0), jnp.int32))
    assert (np.asarray(best) < 50).all()


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_no_token_is_chosen_where_logits_are_not_numbers(kind: str, value: float) -> None:
    make = Maker(kind, jnp.bfloat16)
    weight, hidden = make.weight(100, 96), make.x(3, 96).at[1, 40].set(value)
    best = CPU.greedy(hidden, weight.packed, norm=make.norm(96), banned=jnp.zeros((3, 0), jnp.int32))
    assert [int(index) >= 0 for index in best] == [True, False, True]


def test_no_token_is_chosen_where_one_logit_is_not_a_number() -> None:
    dense = np.asarray(jnp.ones((100, 96), jnp.bfloat16).at[77, 3].set(np.nan))
    weight = weights.pack(dense, exact=False, paired=False)
    hidden = jnp.ones((1, 96), jnp.bfloat16)
    for banned, wanted in ((0, xla.NOT_A_NUMBER), (77, 0)):
        ids = jnp.full((1, 1), banned, jnp.int32)
        assert CPU.greedy(hidden, weight, norm=Norm(None, 1e-6), banned=ids) == wanted


@pytest.mark.parametrize("kind", ["int8", "int4"])
def test_int8_activations_stay_near_exact_ones(kind: str) -> None:
    """Rounding errors are 1/127 of a group's largest value at most: under 1 % of a product's size, as a root
    mean square. Both modes agree where activations are whole numbers up to 127.
    """
    make = Maker(kind, jnp.float32)
    weight, x = make.weight(64, 1536), make.x(64, 1536)
    exact = CPU.matmul(x, replace(weight.packed, exact=True))
    error = CPU.matmul(x, weight.packed) - exact
    assert 0 < float(jnp.sqrt(jnp.mean(error**2) / jnp.mean(exact**2))) < 0.01
    whole = jnp.clip(jnp.round(x * 40), -127, 127).at[:, ::GROUP].set(127)
    wanted = CPU.matmul(whole, replace(weight.packed, exact=True))
    close(CPU.matmul(whole, weight.packed) / 64, wanted / 64, 1e-6)


def operations(make: Maker) -> dict[str, Callable[[CpuKernels, jax.Array], jax.Array]]:
    """Each operation as a function of rows [rows, 224]: 192 columns of hidden, then 32 of ple."""
    qkv, o = make.weight(208, 192), make.weight(192, 192)
    gate_up, down = make.weight(2 * 160, 192, paired=True), make.weight(192, 160)
    gate, out, head = make.weight(32, 192), make.weight(192, 32), make.weight(3000, 192)
    norm, scalar = make.norm(192), jnp.asarray([0.7], make.dtype)
    return {
        "matmul": lambda cpu, x: cpu.matmul(x[:, :192], qkv.packed, norm=norm),
        "matmul_add": lambda cpu, x: cpu.matmul_add(x[:, :192], o.packed, norm=norm, residual=x[:, 32:]),
        "mlp": lambda cpu, x: cpu.mlp(
            x[:, :192], gate_up.packed, down.packed, norm=norm, post_norm=norm, activation="gelu_tanh"
        ),
        "add_ple": lambda cpu, x: cpu.add_ple(
            x[:, :192], x[:, 192:], gate.packed, out.packed, post_norm=norm, scalar=scalar
        ),
        "logits": lambda cpu, x: cpu.logits(x[:, :192], head.packed, norm=norm),
    }


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("kind", KINDS)
def test_rows_do_not_depend_on_the_batch(kind: str, dtype: Any) -> None:
    """Rows that do not matter hold NaN here."""
    make = Maker(kind, dtype)
    x = np.asarray(make.x(300, 224))
    for name, operation in operations(make).items():
        run = compiled(operation)
        whole = np.asarray(run(np.int32(300), x), np.float32)
        for rows in (1, 2, 3, 5, 8, 13, 17, 64):
            for first in (0, 37, 300 - rows):
                some = np.full_like(x, np.nan)
                some[:rows] = x[first : first + rows]
                part = np.asarray(run(np.int32(rows), some), np.float32)[:rows]
                np.testing.assert_array_equal(
                    part, whole[first : first + rows], err_msg=f"{name}, {rows} rows"
                )
        np.testing.assert_array_equal(
            np.asarray(run(np.int32(1000), x[::-1]), np.float32), whole[::-1], err_msg=name
        )
        run(np.int32(0), x)


@pytest.mark.parametrize("rows", [1, 7, 270])
def test_rows_are_the_same_where_no_others_have_a_place(rows: int) -> None:
    """Buffers of just so many rows; the tests above have room for more."""
    make = Maker("int4", jnp.bfloat16)
    x = make.x(300, 224)
    for name, operation in operations(make).items():
        whole = np.asarray(operation(CPU, x), np.float32)
        part = np.asarray(operation(CPU, x[:rows]), np.float32)
        np.testing.assert_array_equal(part, whole[:rows], err_msg=name)


def test_weights_that_are_no_panels_go_to_plain_jax() -> None:
    make = Maker("bf16", jnp.bfloat16)
    weight, x = make.weight(64, 96).plain, make.x(3, 96)
    np.testing.assert_array_equal(CPU.matmul(x, weight), xla.matmul(x, weight))


def test_what_does_not_fit_is_refused_by_name() -> None:
    make = Maker("int4", jnp.bfloat16)
    weight, norm = make.weight(64, 96).packed, make.norm(96)
    with pytest.raises(Exception, match="activations of 128 columns cannot meet a weight of 96 inputs"):
        CPU.matmul(make.x(2, 128), weight)
    with pytest.raises(Exception, match="the norm has 96 weights for rows of 64 values"):
        CPU.matmul_add(make.x(2, 96), weight, norm=norm, residual=make.x(2, 64))
    with pytest.raises(Exception, match="pack it again"):
        CPU.matmul(make.x(2, 96), replace(weight, shape=(65, 96)))
    with pytest.raises(Exception, match="must be bfloat16 or float32"):
        CPU.matmul(make.x(2, 96).astype(jnp.float16), weight)
    with pytest.raises(Exception, match="gate_up must have its halves take turns"):
        CPU.mlp(make.x(2, 96), weight, weight, norm=norm, post_norm=None, activation="silu")
