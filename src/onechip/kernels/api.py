"""What the kernels work on: the int4 weight, and the shapes that matmul and attention agree on.

`xla` implements them in plain JAX for every platform; it is the reference that a faster kernel is tested
against.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import jax

Leaf = Any
"""An array of a pytree: jax.Array on the device, NumPy on the host, a shape while a program is made."""

GROUP = 32
"""Inputs that share one scale in an int4 weight."""

SPAN_BLOCK = 256
"""Positions that attention over a span reads at a time; a span's capacity is a multiple of it."""


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


Weight = jax.Array | Int4
"""A linear weight, [out, in] as checkpoints store it."""
