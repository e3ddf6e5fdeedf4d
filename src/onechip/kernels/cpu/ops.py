"""The operations of a decoder in C++ on the CPU: arrays in, one call of JAX's FFI, arrays out.

Weights that are `Panels` are multiplied by native/blocks*.cc; all others are left to plain JAX.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from onechip.kernels.api import (
    Activation,
    AttendRows,
    Buckets,
    Draw,
    DrawTokens,
    Kernels,
    Kind,
    Leaf,
    Norm,
    Panels,
    Weight,
)
from onechip.kernels.cpu import attention, library, weights
from onechip.kernels.cpu.operands import like, norm_attributes, norm_weight, optional
from onechip.kernels.xla import PlainKernels

ALL = np.iinfo(np.int32).max
"""More rows than there are: all matter."""

KINDS = {"bf16": 0, "int8": 1, "int4": 2}
SCALES = {"bf16": 0, "half": 1}
"""As native/layout.h numbers them."""


def _weight_attributes(weight: Panels) -> dict[str, Any]:
    outputs, inputs = weight.shape
    return {
        "kind": np.int32(KINDS[weight.kind]),
        "scale": np.int32(SCALES[weight.scale]),
        "outputs": np.int64(outputs),
        "inputs": np.int64(inputs),
        "exact": np.bool_(weight.exact),
        "paired": np.bool_(weight.paired),
    }


def _call(name: str, result: jax.ShapeDtypeStruct, *operands: jax.Array, **attributes: Any) -> jax.Array:
    called: jax.Array = jax.ffi.ffi_call(f"onechip_{name}", result)(*operands, **attributes)
    return called


class CpuKernels:
    """The operations of `api.Kernels` by the CPU's own kernels."""

    def __init__(self, live: jax.Array | None = None) -> None:
        library.register()
        self._plain = PlainKernels()
        self._live: Leaf = live if live is not None else np.int32(ALL)

    @property
    def name(self) -> str:
        return f"cpu {library.instruction_set()}"

    def attend_rows(self, head_dims: Collection[int]) -> AttendRows | None:
        return attention.attend_rows if all(map(attention.takes, head_dims)) else None

    def first_rows(self, count: jax.Array) -> Kernels:
        return CpuKernels(count)

    @property
    def buckets(self) -> Buckets:
        """Rows that do not matter are not computed, hence few."""
        return Buckets((1, 8, 64), (32, 256))

    @property
    def packs(self) -> bool:
        return True

    def pack(self, *parts: Leaf, exact: bool, paired: bool) -> Weight:
        return weights.pack(*parts, exact=exact, paired=paired)

    def packed_bytes(self, shape: tuple[int, int], *, kind: Kind, paired: bool, dense_bytes: int) -> int:
        return weights.packed_bytes(weights.stored_as(kind), *shape, paired=paired)

    def matmul(
        self, x: jax.Array, weight: Weight, *, norm: Norm | None = None, out_dtype: Any = None
    ) -> jax.Array:
        if not isinstance(weight, Panels):
            return self._plain.matmul(x, weight, norm=norm, out_dtype=out_dtype)
        return _call(
            "matmul",
            like((*x.shape[:-1], weight.shape[0]), out_dtype or x.dtype),
            x,
            weight.data,
            norm_weight(norm),
            self._live,
            weight=_weight_attributes(weight),
            norm=norm_attributes(norm),
        )

    def matmul_add(
        self, x: jax.Array, weight: Weight, *, norm: Norm | None, residual: jax.Array
    ) -> jax.Array:
        if not isinstance(weight, Panels):
            return self._plain.matmul_add(x, weight, norm=norm, residual=residual)
        return _call(
            "matmul_add",
            like((*x.shape[:-1], weight.shape[0]), x.dtype),
            x,
            weight.data,
            norm_weight(norm),
            residual,
            self._live,
            weight=_weight_attributes(weight),
            norm=norm_attributes(norm),
        )

    def mlp(
        self,
        hidden: jax.Array,
        gate_up: Weight,
        down: Weight,
        *,
        norm: Norm,
        post_norm: Norm | None,
        activation: Activation,
    ) -> jax.Array:
        """As the contract says; what down multiplies is not rounded to bf16 before it is rounded to int8.

        gate_up must be packed with paired=True.
        """
        if not (isinstance(gate_up, Panels) and isinstance(down, Panels)):
            return self._plain.mlp(
                hidden, gate_up, down, norm=norm, post_norm=post_norm, activation=activation
            )
        return _call(
            "mlp",
            like(hidden.shape, hidden.dtype),
            hidden,
            gate_up.data,
            down.data,
            norm_weight(norm),
            norm_weight(post_norm),
            self._live,
            gate_up=_weight_attributes(gate_up),
            down=_weight_attributes(down),
            norm=norm_attributes(norm),
            post_norm=norm_attributes(post_norm),
            silu=np.bool_(activation == "silu"),
        )

    def add_ple(
        self,
        hidden: jax.Array,
        ple: jax.Array,
        gate: Weight,
        out: Weight,
        *,
        post_norm: Norm,
        scalar: jax.Array | None,
    ) -> jax.Array:
        if not (isinstance(gate, Panels) and isinstance(out, Panels)):
            return self._plain.add_ple(hidden, ple, gate, out, post_norm=post_norm, scalar=scalar)
        return _call(
            "add_ple",
            like(hidden.shape, hidden.dtype),
            hidden,
            ple,
            gate.data,
            out.data,
            norm_weight(post_norm),
            optional(None if scalar is None else scalar.reshape(1)),
            self._live,
            gate=_weight_attributes(gate),
            out=_weight_attributes(out),
            post_norm=norm_attributes(post_norm),
        )

    def rows(self, table: Weight, tokens: jax.Array, dtype: Any) -> jax.Array:
        if not isinstance(table, Panels):
            return self._plain.rows(table, tokens, dtype)
        fetched = like((*tokens.shape, table.shape[1]), dtype)
        return _call("rows", fetched, tokens, table.data, self._live, table=_weight_attributes(table))

    def logits(self, hidden: jax.Array, weight: Weight, *, norm: Norm) -> jax.Array:
        return self.matmul(hidden, weight, norm=norm, out_dtype=jnp.float32)

    def greedy(self, hidden: jax.Array, weight: Weight, *, norm: Norm, banned: jax.Array) -> jax.Array:
        if not isinstance(weight, Panels):
            return self._plain.greedy(hidden, weight, norm=norm, banned=banned)
        return _call(
            "greedy",
            like(hidden.shape[:1], jnp.int32),
            hidden,
            weight.data,
            norm_weight(norm),
            banned,
            self._live,
            weight=_weight_attributes(weight),
            norm=norm_attributes(norm),
        )

    @property
    def draw(self) -> DrawTokens | None:
        return self._draw

    def _draw(
        self, scores: jax.Array, wishes: Draw, positions: jax.Array, banned: jax.Array, softcap: float | None
    ) -> jax.Array:
        """As api.DrawTokens says; one number of (seed, position) picks from the sum of the probabilities."""
        return _call(
            "draw",
            like(scores.shape[:1], jnp.int32),
            scores,
            wishes.temperature,
            wishes.top_k,
            wishes.top_p,
            wishes.min_p,
            wishes.seed,
            positions,
            banned,
            self._live,
            softcap=np.float32(softcap or 0),
        )
