"""A checkpoint's arrays in, arrays on the device out: in which precision and form they stand there, and how
many bytes that is.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from onechip.engine.types import Dtype
from onechip.errors import UsageError
from onechip.kernels.api import QUANTIZED_BYTES, Kernels, Kind, Leaf
from onechip.kernels.xla import PlainKernels
from onechip.models import decoder
from onechip.models.architecture import ModelConfig
from onechip.models.layout import (
    EMBED,
    HEAD,
    PLE_EMBED,
    Params,
    Read,
    TensorSpec,
    TreePath,
    empty_params,
    expected_tensors,
    put,
)
from onechip.models.leaf import alike, expand, kind_of_all, packable, quantize

_WEIGHTS: dict[Dtype, Kind] = {"w8a16": "int8", "w8a8": "int8", "w4a16": "int4", "w4a8": "int4"}
_TABLES = (EMBED, PLE_EMBED, HEAD)


@dataclass(frozen=True, slots=True)
class Precision:
    """How weights and activations stand on the device.

    Attributes:
        activations: dtype of activations, cache and dense weights.
        kinds: name -> kind of the tensors that stay quantised.
        rounded: what linear weights that are stored in more bits are rounded to at load, if anything.
        expanded: kinds of tensors that are quantised, but expanded once, at load.
        exact: quantised weights meet activations as they are; otherwise kernels round those to int8, in
            groups of 32.
        kernels: who multiplies. The CPU's take weights as panels.
    """

    activations: Any
    kinds: Mapping[str, Kind] = field(default_factory=dict)
    rounded: Kind | None = None
    expanded: frozenset[Kind] = frozenset()
    exact: bool = True
    kernels: Kernels = field(default_factory=PlainKernels)

    def describe(self) -> str:
        """For the terminal: what is served, and what of it is not as small as it could be."""
        name = jnp.dtype(self.activations).name
        if self.expanded:
            what = " and ".join(sorted(self.expanded))
            reason = f"plain JAX has no {what} product for this chip"
            return f"{what} weights expanded to {name} at load ({reason})"
        tables = {kind for table, kind in self.kinds.items() if table in _TABLES}
        linears = {kind for linear, kind in self.kinds.items() if linear not in _TABLES}
        if not self.kinds:
            return f"{name} weights"
        what = " and ".join(sorted(linears)) or name
        if tables == linears:
            what += " weights and tables"
        else:
            what += " weights" + (f", {' and '.join(sorted(tables))} tables" if tables else "")
        return f"{what}, {name if self.exact else 'int8'} activations"


def choose_precision(
    config: ModelConfig, wish: Dtype, stored: Mapping[str, Kind], platform: str, kernels: Kernels
) -> Precision:
    """What `--dtype` means on this platform, with these kernels.

    On the CPU, plain XLA would expand quantised weights again in every step, which is several times slower
    than reading them expanded; elsewhere, and in the CPU's own kernels, they stay packed. float32 is the
    reference: plain JAX computes it everywhere.

    Args:
        stored: name -> kind of the tensors that are quantised in the checkpoint.

    Raises:
        UsageError: int8 activations without kernels that have them.
    """
    if wish == "f32":
        kernels = PlainKernels()
    if wish in ("w4a8", "w8a8") and not kernels.packs:
        raise UsageError(
            f"--dtype {wish} needs the CPU's own kernels, which are not in use here (--kernels xla turns them"
            f" off, `make native` builds them): take {wish.removesuffix('8')}16."
        )
    activations = jnp.float32 if wish == "f32" else jnp.bfloat16
    if wish in ("bf16", "f32"):
        return Precision(activations, kernels=kernels)
    rounded, kinds = _WEIGHTS.get(wish), dict(stored)
    if rounded is not None:
        linears = (spec.name for spec in expected_tensors(config) if packable(spec))
        kinds |= {name: rounded for name in linears if kinds.get(name) != "int4"}
    if platform == "cpu" and not kernels.packs:
        return Precision(activations, {}, rounded, frozenset(kinds.values()), kernels=kernels)
    exact = not (kernels.packs and kinds and wish not in ("w4a16", "w8a16"))
    return Precision(activations, kinds, rounded, exact=exact, kernels=kernels)


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

    @property
    def paired(self) -> bool:
        """See Panels."""
        return self.path[-1] == "gate_up"


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


def _not_multiplied(config: ModelConfig) -> Iterator[TensorSpec]:
    """Norms, scalars, and tables of which rows are only fetched."""
    multiplied = {spec.name for product in _products(config) for spec in product.specs}
    return (spec for spec in expected_tensors(config) if spec.name not in multiplied)


def planned_bytes(config: ModelConfig, precision: Precision) -> int:
    """Bytes of all weights on the device."""
    dense_bytes = jnp.dtype(precision.activations).itemsize
    total = 0
    for product in _products(config):
        kind = kind_of_all([precision.kinds.get(spec.name, "dense") for spec in product.specs])
        total += precision.kernels.packed_bytes(
            product.shape, kind=kind, paired=product.paired, dense_bytes=dense_bytes
        )
    for spec in _not_multiplied(config):
        each = QUANTIZED_BYTES.get(precision.kinds.get(spec.name, "dense"), dense_bytes)
        total += int(math.prod(spec.shape) * each)
    return total


def fetched_bytes(config: ModelConfig, precision: Precision) -> int:
    """Bytes of the per-layer table, of which a step reads some rows only."""
    dense_bytes = jnp.dtype(precision.activations).itemsize
    each = QUANTIZED_BYTES.get(precision.kinds.get(PLE_EMBED, "dense"), dense_bytes)
    return int(config.ple_vocab * len(config.layers) * config.ple_dim * each)


def place(config: ModelConfig, read: Read, precision: Precision) -> Params:
    """Round, cast and move every weight to the device, those of a product as one, as the kernels want them;
    nothing is compiled. No more than one product at a time is on the host.
    """
    dtype, kernels = host_dtype(precision), precision.kernels

    def on_host(spec: TensorSpec) -> Leaf:
        leaf = read(spec)
        if precision.rounded is not None and packable(spec):
            leaf = quantize(spec, leaf, precision.rounded)
        return leaf if spec.name in precision.kinds else expand(leaf, dtype)

    placed = empty_params(config)
    for product in _products(config):
        parts = alike([on_host(spec) for spec in product.specs], dtype)
        packed = kernels.pack(*parts, exact=precision.exact, paired=product.paired)
        put(placed, product.path, jax.tree.map(jax.device_put, packed))
    for spec in _not_multiplied(config):
        put(placed, spec.path, jax.tree.map(jax.device_put, on_host(spec)))
    return placed
