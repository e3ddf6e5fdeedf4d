"""Attention of any rows over the cache in C++ on the CPU (native/attention.cc): new rows and caches in, one
call of JAX's FFI, the attended rows and the same caches out.
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from onechip.kernels import xla
from onechip.kernels.api import HeadSpec
from onechip.kernels.cpu.operands import like, norm_attributes, norm_weight

WIDTH_STEP = 16
MOST_WIDTH = 1024
"""Widths of heads are multiples of WIDTH_STEP, up to MOST_WIDTH."""

DTYPES = (jnp.bfloat16, jnp.float32)
"""Of activations."""

CACHES = (5, 6)
"""Operands of the call that are the caches."""


def takes(head_dim: int) -> bool:
    """Whether the kernels attend with heads of this width."""
    return head_dim % WIDTH_STEP == 0 and 0 < head_dim <= MOST_WIDTH


def _head(spec: HeadSpec) -> dict[str, Any]:
    return {
        "heads": np.int32(spec.heads),
        "kv_heads": np.int32(spec.kv_heads),
        "window": np.int32(spec.window),
        "owns_kv": np.bool_(spec.owns_kv),
        "k_eq_v": np.bool_(spec.k_eq_v),
        "q_scale": np.float32(spec.q_scale),
    }


def attend_rows(
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
    """As api.AttendRows says; heads are as `takes` says.

    Active rows whose slot or position the caches do not have are as inactive ones: they write nothing and
    give 0. Rows of a layer that reads another's ring must be the newest of their slot: the keys of older rows
    are gone.

    Raises:
        ValueError: heads or activations that the kernels do not take.
    """
    if not takes(spec.head_dim) or qkv.dtype not in DTYPES:
        raise ValueError(
            f"heads {spec.head_dim} wide in {qkv.dtype}: the CPU's attention takes multiples of {WIDTH_STEP} "
            f"up to {MOST_WIDTH} in bfloat16 or float32; use plain JAX."
        )
    if spec.v_norm is not None and spec.v_norm.weight is not None:
        raise ValueError("a norm of values has no weight in the CPU's attention; use plain JAX.")
    results = [like((qkv.shape[0], spec.heads * spec.head_dim), qkv.dtype)]
    aliases = {}
    if spec.owns_kv:
        results += [like(cache.shape, xla.stored_dtype(qkv.dtype)) for cache in (k, v)]
        aliases = {operand: result for result, operand in enumerate(CACHES, 1)}
    out, *kept = jax.ffi.ffi_call("onechip_attend", results, input_output_aliases=aliases)(
        qkv,
        cos,
        sin,
        norm_weight(spec.q_norm),
        norm_weight(spec.k_norm),
        k,
        v,
        slots,
        positions,
        active,
        head=_head(spec),
        q_norm=norm_attributes(spec.q_norm),
        k_norm=norm_attributes(spec.k_norm),
        v_norm=norm_attributes(spec.v_norm),
    )
    return out, *(kept or (k, v))
