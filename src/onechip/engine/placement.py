"""A checkpoint's arrays in, arrays on the device out: in which precision and form they stand there, and how
many bytes that is.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from onechip.engine.types import INT4_DTYPES, Dtype
from onechip.errors import UsageError
from onechip.kernels.api import INT4_BYTES, Int4, Kernels, Leaf
from onechip.kernels.xla import PlainKernels
from onechip.models import decoder
from onechip.models.architecture import ModelConfig
from onechip.models.layout import EMBED, HEAD, PLE_EMBED, Params, TensorSpec, TreePath, expected_tensors
from onechip.models.quant import dequantize_int4


@dataclass(frozen=True, slots=True)
class Precision:
    """How weights and activations stand on the device.

    Attributes:
        activations: dtype of activations, cache and dense weights.
        int4: linear weights carry 4-bit values.
        packed: they also stay packed; otherwise they are expanded once, at load.
        packed_tables: names of the tables, and of an untied head, that stay packed too.
        exact: int4 weights meet activations as they are; otherwise kernels round those to int8, in groups of
            32.
        kernels: who multiplies. The CPU's take weights as panels.
    """

    activations: Any
    int4: bool
    packed: bool
    packed_tables: tuple[str, ...] = ()
    exact: bool = True
    kernels: Kernels = field(default_factory=PlainKernels)

    def describe(self) -> str:
        """For the terminal: what is served, and what of it is not as small as it could be."""
        name = jnp.dtype(self.activations).name
        if not self.int4:
            return f"{name} weights"
        if self.packed:
            what = "int4 weights and tables" if self.packed_tables else "int4 weights"
            return f"{what}, {name if self.exact else 'int8'} activations"
        return f"int4 weights expanded to {name} at load (plain JAX has no int4 product for this chip)"


def choose_precision(wish: Dtype, stored: frozenset[str], platform: str, kernels: Kernels) -> Precision:
    """What `--dtype` means on this platform, with these kernels.

    On the CPU, plain XLA would expand int4 weights again in every step, which is several times slower than
    reading them expanded; elsewhere, and in the CPU's own kernels, they stay packed. float32 is the
    reference: plain JAX computes it everywhere.

    Args:
        stored: names of the tensors that are int4 in the checkpoint.

    Raises:
        UsageError: int8 activations without kernels that have them.
    """
    if wish == "f32":
        kernels = PlainKernels()
    if wish == "w4a8" and not kernels.packs:
        raise UsageError(
            "--dtype w4a8 needs the CPU's own kernels, which are not in use here (--kernels xla turns them "
            "off, `make native` builds them): take w4a16."
        )
    int4 = wish in INT4_DTYPES or (wish == "auto" and bool(stored))
    activations = jnp.float32 if wish == "f32" else jnp.bfloat16
    packed = int4 and (kernels.packs or platform != "cpu")
    tables = sorted(stored & {EMBED, PLE_EMBED, HEAD}) if packed else ()
    exact = not (kernels.packs and int4 and wish != "w4a16")
    return Precision(activations, int4, packed, tuple(tables), exact, kernels)


def host_dtype(precision: Precision) -> np.dtype[Any]:
    """NumPy's dtype of dense weights."""
    dtype: np.dtype[Any] = np.dtype(precision.activations)
    return dtype


@dataclass(frozen=True, slots=True)
class _Product:
    """Tensors that are multiplied as one, and the fused weight that they make.

    Attributes:
        specs: in the order in which they are stacked.
        path: of the weight in the tree.
    """

    specs: tuple[TensorSpec, ...]
    path: TreePath

    @property
    def shape(self) -> tuple[int, int]:
        return sum(spec.shape[0] for spec in self.specs), self.specs[0].shape[1]


def _products(config: ModelConfig) -> Iterator[_Product]:
    """Every product of the model; the head is among them, and so is a tied table."""
    fused_into = {part: name for name, parts in decoder.FUSED.items() for part in parts}
    parts: dict[TreePath, list[TensorSpec]] = {}
    for spec in expected_tensors(config):
        if spec.linear or (config.tied and spec.name == EMBED):
            last = str(spec.path[-1])
            parts.setdefault((*spec.path[:-1], fused_into.get(last, last)), []).append(spec)
    for path, specs in parts.items():
        yield _Product(tuple(specs), path)


def planned_bytes(config: ModelConfig, precision: Precision, int4: frozenset[str]) -> int:
    """Bytes of all weights on the device.

    Args:
        int4: names of the tensors that have 4-bit values when they are placed.
    """
    dense_bytes = jnp.dtype(precision.activations).itemsize
    packed = int4 if precision.packed else frozenset()
    products = list(_products(config))
    multiplied = {spec.name for product in products for spec in product.specs}
    total = 0
    for product in products:
        stays = all(spec.name in packed for spec in product.specs)
        paired = product.path[-1] == "gate_up"
        total += precision.kernels.packed_bytes(
            product.shape, int4=stays, paired=paired, dense_bytes=dense_bytes
        )
    for spec in expected_tensors(config):
        if spec.name not in multiplied:
            each = INT4_BYTES if spec.name in packed else dense_bytes
            total += int(math.prod(spec.shape) * each)
    return total


def fetched_bytes(config: ModelConfig, precision: Precision) -> int:
    """Bytes of the per-layer table, of which a step reads some rows only."""
    packed = PLE_EMBED in precision.packed_tables
    each = INT4_BYTES if packed else jnp.dtype(precision.activations).itemsize
    return int(config.ple_vocab * len(config.layers) * config.ple_dim * each)


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
    """Fuse, cast and move every weight to the device, those of products as the kernels want them; nothing is
    compiled.
    """
    dtype, kernels = host_dtype(precision), precision.kernels

    def on_host(leaf: Leaf) -> Leaf:
        return leaf if isinstance(leaf, Int4) and precision.packed else _expand(leaf, dtype)

    def placed(name: str, leaf: Leaf, multiplied: bool) -> Any:
        if multiplied:
            leaf = kernels.pack(leaf, exact=precision.exact, paired=name == "gate_up")
        return jax.tree.map(jax.device_put, leaf)

    layers: list[Params] = []
    for weights in params["layers"]:
        host = _of_one_kind({name: on_host(leaf) for name, leaf in weights.items()}, dtype)
        fused = decoder.fuse_layer(host)
        layers.append({name: placed(name, leaf, len(leaf.shape) == 2) for name, leaf in fused.items()})
    multiplied = {"ple_proj", "lm_head"} if "lm_head" in params else {"ple_proj", "embed"}
    whole = {name: leaf for name, leaf in params.items() if name != "layers"}
    return {name: placed(name, on_host(leaf), name in multiplied) for name, leaf in whole.items()} | {
        "layers": layers
    }
