"""The few operations that speed hangs on, by name: matmul, attention over a cache.

`choose(platform)` gives the implementation for a chip. Every implementation has the contract written here and is
tested against `xla`, the plain-JAX reference.
"""

from __future__ import annotations

from dataclasses import dataclass

import jax

GROUP = 32
"""Inputs that share one scale in an int4 weight."""


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Int4:
    """A linear weight [out, in] in symmetric int4, groups of 32 along `in` (compressed-tensors "pack-quantized").

    Attributes:
        packed: [out, in/8] int32; nibble i (low first) of word j is q + 8 of column 8j + i, q in -8..7.
        scale: [out, in/32] bfloat16 or float16; weight = q * scale.
    """

    packed: jax.Array
    scale: jax.Array

    @property
    def shape(self) -> tuple[int, int]:
        return self.packed.shape[0], self.packed.shape[1] * 8


Weight = jax.Array | Int4
"""A linear weight, [out, in] as checkpoints store it."""
