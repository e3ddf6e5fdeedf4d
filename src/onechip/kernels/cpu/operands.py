"""What calls of the kernels have in common: shapes of results, operands that may be missing, norms."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from onechip.kernels.api import Leaf, Norm


def like(shape: tuple[int, ...], dtype: Any) -> jax.ShapeDtypeStruct:
    """The shape of a result."""
    return jax.ShapeDtypeStruct(shape, dtype)  # type: ignore[no-untyped-call]


def optional(array: Leaf | None) -> jax.Array:
    """An operand that may be missing: then it is empty."""
    return jnp.zeros(0, jnp.float32) if array is None else array


def norm_weight(norm: Norm | None) -> jax.Array:
    """[width], empty for 1 and where there is no norm."""
    return optional(norm.weight if norm else None)


def norm_attributes(norm: Norm | None) -> dict[str, Any]:
    """As native/blocks.h has them: NormAttrs."""
    return {
        "present": np.bool_(norm is not None),
        "eps": np.float32(norm.eps if norm else 0),
        "offset": np.float32(norm.offset if norm else 0),
    }
