"""One weight on the host, an array, Int4 or Int8: rounded to another kind, expanded, made alike others."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from onechip.errors import CheckpointError
from onechip.kernels.api import Int4, Int8, Kind, Leaf, kind_of
from onechip.models.architecture import ModelConfig
from onechip.models.layout import Params, TensorSpec, empty_params, expected_tensors, get, put
from onechip.models.quant import dequantize_int4, dequantize_int8, quantize_int4, quantize_int8, unpack


def quantize_params(params: Params, config: ModelConfig) -> Params:
    """The linear weights of the layers, and the projection of the per-layer embeddings, in int4; see `quant`.

    Tables, norms and an untied head stay as they are, as in the published W4A16 checkpoints. Raises
    CheckpointError naming the tensor that has no groups of 32 inputs or a value that is not finite.
    """
    quantized = empty_params(config)
    for spec in expected_tensors(config):
        leaf = get(params, spec.path)
        put(quantized, spec.path, quantize(spec, leaf, "int4") if packable(spec) else leaf)
    return quantized


def packable(spec: TensorSpec) -> bool:
    """Whether the published W4A16 checkpoints have this tensor in int4: all linears but an untied head."""
    return spec.linear and spec.path != ("lm_head",)


def quantize(spec: TensorSpec, leaf: Leaf, kind: Kind) -> Leaf:
    """A weight in int4 or int8; as it is if it is int4, or of that kind already.

    Raises CheckpointError if it has no groups of 32 inputs or a value that is not finite.
    """
    if kind_of(leaf) in ("int4", kind):
        return leaf
    dense = expand(leaf, np.float32) if isinstance(leaf, Int8) else np.asarray(leaf)
    try:
        return Int4(*quantize_int4(dense)) if kind == "int4" else Int8(*quantize_int8(dense))
    except ValueError as error:
        raise CheckpointError(f"{spec.name} cannot be quantised to {kind}: {error}.") from None


def expand(leaf: Leaf, dtype: Any) -> NDArray[Any]:
    """The weight as a dense array, each value rounded once to `dtype`."""
    if isinstance(leaf, Int4):
        return dequantize_int4(np.asarray(leaf.packed), np.asarray(leaf.scale), dtype)
    if isinstance(leaf, Int8):
        return dequantize_int8(np.asarray(leaf.levels), np.asarray(leaf.scale), dtype)
    return np.asarray(leaf).astype(dtype, copy=False)


def kind_of_all(kinds: Sequence[Kind]) -> Kind:
    """The kind that holds weights of these kinds: int8 holds int4 ones exactly."""
    if "dense" in kinds:
        return "dense"
    return "int8" if "int8" in kinds else "int4"


def alike(leaves: Sequence[Leaf], dtype: Any) -> list[Leaf]:
    """Weights of one product in the one kind that holds all: dense ones in `dtype`, scales of one dtype."""
    kind = kind_of_all([kind_of(leaf) for leaf in leaves])
    if kind == "dense":
        return [expand(leaf, dtype) for leaf in leaves]
    if kind == "int8":
        return [_widened(leaf) if isinstance(leaf, Int4) else leaf for leaf in leaves]
    if len({leaf.scale.dtype for leaf in leaves}) == 1:
        return list(leaves)
    return [Int4(leaf.packed, _in_float16(leaf.scale)) for leaf in leaves]


def _widened(leaf: Int4) -> Int8:
    return Int8(unpack(np.asarray(leaf.packed)), _in_float16(leaf.scale))


def _in_float16(scale: Leaf) -> NDArray[np.float16]:
    """Scales in float16, which holds ours and a GGUF file's exactly, but not every bfloat16.

    Raises CheckpointError if some are too large or too small for it.
    """
    with np.errstate(over="ignore"):  # some processors say so, and the error below says it better
        half: NDArray[np.float16] = np.asarray(scale).astype(np.float16)
    wide = np.asarray(scale).astype(np.float32)
    if (lost := half != wide).any():
        raise CheckpointError(
            f"An int4 weight has the scale {wide[lost][0]:g}, which float16 cannot hold; int4 weights of one "
            "product with scales of two kinds, and --dtype w8a8 and w8a16, need that: take --dtype bf16."
        )
    return half
