"""The contract of the kernels: the weights they take, and the operations of a decoder that speed hangs on.

`xla` does all of them in plain JAX, for every platform; it is the reference that faster ones are tested
against. `cpu` does them in C++. Whoever computes, a row's result does not depend on the other rows.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import Any, Literal, Protocol

import jax

Leaf = Any
"""An array of a pytree: jax.Array on the device, NumPy on the host, a shape while a program is made."""

GROUP = 32
"""Inputs that share one scale in an int4 or int8 weight."""

Kind = Literal["dense", "int8", "int4"]
"""What a weight's values are: an array's, or levels with a scale for each group (Int8, Int4)."""

QUANTIZED_BYTES: dict[Kind, float] = {"int4": 0.5 + 2 / GROUP, "int8": 1 + 2 / GROUP}
"""Of one value of a quantised weight, its share of the scale included."""

SPAN_BLOCK = 256
"""Positions that attention over a span reads at a time; a span's capacity is a multiple of it."""

Activation = Literal["gelu_tanh", "silu"]


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Int4:
    """A linear weight [out, in] in symmetric int4, groups of 32 along `in` (compressed-tensors
    "pack-quantized").

    Attributes:
        packed: [out, in/8] int32; nibble i (low first) of word j is q + 8 of column 8j + i, q in -8..7.
        scale: [out, in/32] bfloat16 or float16; weight = q * scale.
    """

    packed: Leaf
    scale: Leaf

    @property
    def shape(self) -> tuple[int, int]:
        out, words = self.packed.shape
        return out, words * 8


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Int8:
    """A linear weight [out, in] in symmetric int8, groups of 32 along `in` (GGUF's Q8_0).

    Attributes:
        levels: [out, in] int8.
        scale: [out, in/32] float16; weight = level * scale.
    """

    levels: Leaf
    scale: Leaf

    @property
    def shape(self) -> tuple[int, int]:
        out, columns = self.levels.shape
        return out, columns


def kind_of(leaf: Leaf) -> Kind:
    """The kind of a weight that is not packed."""
    return "int4" if isinstance(leaf, Int4) else "int8" if isinstance(leaf, Int8) else "dense"


@jax.tree_util.register_pytree_node_class
@dataclass(frozen=True)
class Panels:
    """A linear weight [out, in] as the CPU's kernels read it (kernels/cpu/native/layout.h).

    Attributes:
        data: [panels, bytes of a panel] uint8.
        kind: what a weight is stored as.
        scale: dtype of the scales of int4 and int8.
        shape: [out, in] without the padding.
        exact: int4 and int8 weights meet activations as they are, not rounded to int8.
        paired: the first half of the outputs and the second take turns, panel by panel (gate and up).
    """

    data: Leaf
    kind: Literal["bf16", "int8", "int4"]
    scale: Literal["bf16", "half"]
    shape: tuple[int, int]
    exact: bool = False
    paired: bool = False

    def tree_flatten(self) -> tuple[tuple[Leaf], tuple[Any, ...]]:
        return (self.data,), (self.kind, self.scale, self.shape, self.exact, self.paired)

    @classmethod
    def tree_unflatten(cls, static: tuple[Any, ...], leaves: tuple[Leaf]) -> Panels:
        return cls(leaves[0], *static)


Weight = jax.Array | Int4 | Int8 | Panels
"""A linear weight, [out, in] as checkpoints store it."""


@dataclass(frozen=True)
class Norm:
    """An RMS norm over the last axis: x / rms(x) * (weight + offset), in float32, rounded once to x's dtype.

    Attributes:
        weight: [width], or None for 1.
        eps: added to the mean square.
        offset: 1 where files keep weight - 1.
    """

    weight: Leaf | None
    eps: float
    offset: float = 0.0


@dataclass(frozen=True)
class HeadSpec:
    """What attention does to one layer's queries, keys and values.

    Attributes:
        heads, kv_heads, head_dim: of this layer.
        window: positions that a query sees, itself included, kept as a ring, position p at index p mod
            window; 0 for a span, position p at index p.
        owns_kv: the layer computes keys and values and writes them; otherwise it reads another's.
        k_eq_v: the values are the raw key projection.
        q_norm, k_norm: of each head, before it turns; None where there is none.
        v_norm: likewise, without a weight.
        q_scale: what queries are multiplied by.
    """

    heads: int
    kv_heads: int
    head_dim: int
    window: int
    owns_kv: bool
    k_eq_v: bool
    q_norm: Norm | None
    k_norm: Norm | None
    v_norm: Norm | None
    q_scale: float = 1.0


@dataclass(frozen=True, slots=True)
class Buckets:
    """Numbers of rows that programs are compiled for, each ascending; what is fewer is padded.

    Attributes:
        rows: of a decode step, up to the most requests at once.
        chunks: of a part of a prompt.
    """

    rows: tuple[int, ...]
    chunks: tuple[int, ...]


class Kernels(Protocol):
    """The operations. x and hidden are [..., in] in the dtype of the activations, and so are results."""

    @property
    def name(self) -> str:
        """For the terminal and for fingerprints."""

    def matmul(
        self, x: jax.Array, weight: Weight, *, norm: Norm | None = None, out_dtype: Any = None
    ) -> jax.Array:
        """norm(x) times weight transposed [..., out], summed in float32, rounded once to out_dtype (x's)."""

    def matmul_add(
        self, x: jax.Array, weight: Weight, *, norm: Norm | None, residual: jax.Array
    ) -> jax.Array:
        """residual + norm(x times weight transposed)."""

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
        """hidden + post_norm(down(activation(gate(n)) * up(n))) with n = norm(hidden).

        gate_up [2 * width, in]: gate's outputs first.
        """

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
        """(hidden + post_norm(out(gelu_tanh(gate(hidden)) * ple))) * scalar, ple [..., P], scalar [1]."""

    def rows(self, table: Weight, tokens: jax.Array, dtype: Any) -> jax.Array:
        """Rows [..., in] of a table [out, in], in `dtype`."""

    def logits(self, hidden: jax.Array, weight: Weight, *, norm: Norm) -> jax.Array:
        """norm(hidden [rows, in]) times weight transposed [rows, V] float32, before any softcap."""

    def greedy(self, hidden: jax.Array, weight: Weight, *, norm: Norm, banned: jax.Array) -> jax.Array:
        """Index [rows] int32 of the first of each row's largest logits; -1 where logits are not numbers.

        banned [rows, n] int32: ids that must not be chosen; those outside the vocabulary ban nothing.
        """

    def first_rows(self, count: jax.Array) -> Kernels:
        """These kernels where only the first `count` (a scalar, int32) rows of all operands matter: what they
        give for the others has no meaning, and need not be computed.
        """

    @property
    def buckets(self) -> Buckets:
        """The numbers of rows that programs are compiled for."""

    @property
    def packs(self) -> bool:
        """Weights of products stand in a form of the kernels' own, also quantised; nothing is expanded."""

    def pack(self, *parts: Leaf, exact: bool, paired: bool) -> Weight:
        """A product's weight as it shall stand on the device; nothing is compiled.

        Args:
            parts: the weight, on the host, cut along its outputs: arrays of one dtype, Int4 or Int8.
            exact, paired: see Panels; they mean nothing to kernels that take weights as they are.
        """

    def packed_bytes(self, shape: tuple[int, int], *, kind: Kind, paired: bool, dense_bytes: int) -> int:
        """Bytes of what `pack` makes of a weight [out, in]; dense_bytes: of one value of a dense one."""

    @property
    def draw(self) -> DrawTokens | None:
        """The choice of tokens, if these kernels have it; None: engine/sampling.py does it."""

    def attend_rows(self, head_dims: Collection[int]) -> AttendRows | None:
        """Attention of any rows at once, if these kernels have it for heads so wide; None: engine/cache.py
        composes it.
        """


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Draw:
    """How each row's next token is chosen; see engine.types.SamplingParams.

    Attributes:
        temperature, top_p, min_p: [rows] float32.
        top_k: [rows] int32, 0 keeps all.
        seed: [rows] uint32.
    """

    temperature: Leaf
    top_k: Leaf
    top_p: Leaf
    min_p: Leaf
    seed: Leaf


class DrawTokens(Protocol):
    """The choice of tokens from logits that stand in memory."""

    def __call__(
        self, scores: jax.Array, wishes: Draw, positions: jax.Array, banned: jax.Array, softcap: float | None
    ) -> jax.Array:
        """Scores [rows, V] before the softcap -> tokens [rows] int32 that will stand at positions [rows].

        Argmax where temperature is 0, -1 where scores are not numbers, else a draw from the distribution of
        the capped scores, divided by the temperature, of which min_p, top_k and top_p (over what top_k left)
        drop the unlikely; ties at a threshold stay. The draw is a function of the row's own scores, seed and
        position. banned [rows, n]: ids that must not be chosen; -1 bans nothing.
        """


class AttendRows(Protocol):
    """Norms, RoPE, the writing of the cache and attention of one layer, in one call."""

    def __call__(
        self,
        spec: HeadSpec,
        qkv: jax.Array,
        cos: jax.Array,
        sin: jax.Array,
        k: jax.Array,
        v: jax.Array,
        slots: jax.Array,
        positions: jax.Array,
        active: jax.Array,
    ) -> tuple[jax.Array, jax.Array, jax.Array]:
        """Each row attends to its slot's keys at positions up to its own, those of this call included.

        Rows of one slot stand together, at consecutive positions; which of them are active is a prefix
        (padding is behind). So R rows are one new token of each of R slots, or a chunk of one slot's prompt,
        or several chunks. A row's result is the same, to the bit, however rows are cut into calls.

        Args:
            qkv: [R, (heads + 2 kv_heads) * head_dim] (one kv_heads less under k_eq_v; queries alone where the
                layer owns no keys).
            cos, sin: [R, head_dim / 2] float32, of each row's position; pair i is (i, i + head_dim / 2).
            k, v: [slots, kv_heads, window or capacity, head_dim] as stored; donated, changed in place.
            slots, positions: [R] int32.
            active: [R] bool; the others write nothing, and what they give has no meaning (but is finite).

        Returns:
            [R, heads * head_dim] in qkv's dtype, and the caches.
        """
