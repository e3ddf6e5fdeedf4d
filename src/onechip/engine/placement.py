"""A checkpoint's arrays in, arrays on the device out: in which precision they stand there, and how many bytes
that is.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from onechip.engine.types import Dtype
from onechip.kernels.api import GROUP, Int4, Leaf
from onechip.models import decoder
from onechip.models.architecture import ModelConfig
from onechip.models.layout import EMBED, HEAD, PLE_EMBED, Params, TreePath, expected_tensors
from onechip.models.quant import dequantize_int4

PACKED_BYTES = 0.5 + 2 / GROUP
"""Of one value in a packed int4 tensor, its share of the scale included."""


@dataclass(frozen=True, slots=True)
class Precision:
    """How weights and activations stand on the device.

    Attributes:
        activations: dtype of activations, cache and dense weights.
        int4: linear weights carry 4-bit values.
        packed: they also stay packed; otherwise they are expanded once, at load.
        packed_tables: names of the tables, and of an untied head, that stay packed too.
    """

    activations: Any
    int4: bool
    packed: bool
    packed_tables: tuple[str, ...] = ()

    def describe(self) -> str:
        """For the terminal: what is served, and what of it is not as small as it could be."""
        name = jnp.dtype(self.activations).name
        if not self.int4:
            return f"{name} weights"
        if self.packed:
            what = "int4 weights and tables" if self.packed_tables else "int4 weights"
            return f"{what}, {name} activations"
        return f"int4 weights expanded to {name} at load (this chip has no int4 kernel here yet)"


def choose_precision(wish: Dtype, stored: frozenset[str], platform: str) -> Precision:
    """What `--dtype` means on this platform for a checkpoint with int4 tensors of these names.

    On the CPU, plain XLA would expand int4 weights again in every step, which is several times slower than
    reading them expanded; elsewhere they stay packed.
    """
    int4 = wish == "w4a16" or (wish == "auto" and bool(stored))
    activations = jnp.float32 if wish == "f32" else jnp.bfloat16
    packed = int4 and platform != "cpu"
    tables = sorted(stored & {EMBED, PLE_EMBED, HEAD}) if packed else ()
    return Precision(activations, int4, packed, tuple(tables))


def host_dtype(precision: Precision) -> np.dtype[Any]:
    """NumPy's dtype of dense weights."""
    dtype: np.dtype[Any] = np.dtype(precision.activations)
    return dtype


def planned_bytes(config: ModelConfig, precision: Precision, int4: frozenset[str]) -> int:
    """Bytes of all weights on the device.

    Args:
        int4: names of the tensors that have 4-bit values when they are placed.
    """
    dense_bytes = jnp.dtype(precision.activations).itemsize
    specs = expected_tensors(config)
    packed = {spec.path for spec in specs if spec.name in int4} if precision.packed else set()
    expanded = _expanded_for_their_product({spec.path for spec in specs}, packed)
    total = 0.0
    for spec in specs:
        stays = spec.path in packed and spec.path not in expanded
        total += math.prod(spec.shape) * (PACKED_BYTES if stays else dense_bytes)
    return int(total)


def fetched_bytes(config: ModelConfig, precision: Precision) -> int:
    """Bytes of the per-layer table, of which a step reads some rows only."""
    packed = PLE_EMBED in precision.packed_tables
    each = PACKED_BYTES if packed else jnp.dtype(precision.activations).itemsize
    return int(config.ple_vocab * len(config.layers) * config.ple_dim * each)


def _expanded_for_their_product(paths: set[TreePath], packed: set[TreePath]) -> set[TreePath]:
    """What `_of_one_kind` expands: those of `packed` that share a product with a dense weight."""
    expanded: set[TreePath] = set()
    for names in decoder.FUSED.values():
        for parent in {path[:-1] for path in packed if path[-1] in names}:
            group = {(*parent, name) for name in names} & paths
            if not group <= packed:
                expanded |= group & packed
    return expanded


def _expand(leaf: Leaf, dtype: Any) -> Leaf:
    """A dense weight on the host."""
    if isinstance(leaf, Int4):
        return dequantize_int4(leaf.packed, leaf.scale, dtype)
    return np.asarray(leaf).astype(dtype, copy=False)


def _of_one_kind(weights: Params, dtype: Any) -> Params:
    """A layer whose int4 weights are expanded where another weight of the same product is dense."""
    expanded = dict(weights)
    for names in decoder.FUSED.values():
        present = [name for name in names if name in weights]
        if not all(isinstance(weights[name], Int4) for name in present):
            expanded |= {name: _expand(weights[name], dtype) for name in present}
    return expanded


def place(params: Params, precision: Precision) -> Params:
    """Fuse, cast and move every weight to the device; nothing is compiled."""
    dtype = host_dtype(precision)

    def on_host(leaf: Leaf) -> Leaf:
        return leaf if isinstance(leaf, Int4) and precision.packed else _expand(leaf, dtype)

    host = jax.tree.map(on_host, params, is_leaf=lambda leaf: isinstance(leaf, Int4))
    layers = [_of_one_kind(weights, dtype) for weights in host["layers"]]
    placed: Params = jax.tree.map(jax.device_put, decoder.fuse(host | {"layers": layers}))
    return placed
