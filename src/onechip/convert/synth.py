"""A shape's name in; out comes a complete checkpoint of that shape with random weights, for speed work.

The numbers are nobody's model: the text is noise, but hidden states stay near 1 and logits spread over a few
units, so that kernels, samplers and softmax see what they would see in a real one.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterable, Iterator
from functools import cached_property
from pathlib import Path
from typing import Any, Literal, get_args

import ml_dtypes
import numpy as np
from numpy.typing import NDArray

import onechip.models
from onechip.convert.shapes import SHAPES
from onechip.convert.synth_tokenizer import build_tokenizer
from onechip.convert.target import check_free, check_room
from onechip.errors import UsageError
from onechip.kernels.api import GROUP
from onechip.models.config import ModelConfig, parse_config
from onechip.models.layout import TensorSpec, expected_tensors
from onechip.models.leaf import packable
from onechip.models.quant import pack
from onechip.models.scheme import config_entry
from onechip.models.source import RANDOM_WEIGHTS
from onechip.models.tensorfile import TensorInfo, write_tensors
from onechip.models.weights import full_name, int4_infos

Array = NDArray[Any]
Dtype = Literal["bf16", "w4a16"]
Progress = Callable[[int, int], None]

DTYPES: tuple[str, ...] = get_args(Dtype)

_SEED = 20260731
_PERIOD = 4_194_301  # of the noise; a prime, so that no two of up to 4 million rows of a table begin alike
_PREFIX = "model."
_POST_NORM = 0.5  # what each branch adds to the hidden state, of size 1
_LOGIT_SPREAD = 3.0
_SCORE_SPREAD = 2.0  # of q.k before the softmax: neither uniform nor one-hot
_TOP_LEVEL = 7  # int4 levels are drawn from -7..7: with -8 their mean, -1/2, would drown the signal
_LEVEL_SPREAD = (((2 * _TOP_LEVEL + 1) ** 2 - 1) / 12) ** 0.5

_GENERATION_CONFIG = {
    "bos_token_id": 2,
    "do_sample": True,
    "eos_token_id": [1, 106, 50],
    "pad_token_id": 0,
    "temperature": 1.0,
    "top_k": 64,
    "top_p": 0.95,
    "transformers_version": "5.5.0",
}
_TOKENIZER_CONFIG = {
    "tokenizer_class": "PreTrainedTokenizerFast",
    "bos_token": "<bos>",
    "eos_token": "<eos>",
    "pad_token": "<pad>",
    "unk_token": "<unk>",
    "mask_token": "<mask>",
    "clean_up_tokenization_spaces": False,
    "padding_side": "left",
}


def synthesise(folder: Path, shape: str, dtype: str, progress: Progress | None = None) -> int:
    """Write a checkpoint of `shape` (a key of SHAPES) with random weights; the same bytes each time.

    Args:
        folder: must not exist, or be empty.
        dtype: "bf16", or "w4a16": the linears of the layers in int4, as compressed-tensors packs them.
        progress: called with (bytes written, bytes in all) of the weights.

    Returns:
        Bytes of the weights.

    Raises:
        UsageError: an unknown shape or dtype, a folder in use, or too little room on the disk.
        CheckpointError: the folder cannot be written.
    """
    for name, value, known in (("shape", shape, tuple(SHAPES)), ("dtype", dtype, DTYPES)):
        if value not in known:
            raise UsageError(f"--{name} is {value}: it must be one of {', '.join(known)}.")
    raw = dict(SHAPES[shape]) | {RANDOM_WEIGHTS: True}
    config = parse_config(raw)
    plan = {spec: _infos(spec, dtype) for spec in expected_tensors(config)}
    infos = {name: info for part in plan.values() for name, info in part.items()}
    total = sum(info.nbytes for info in infos.values())
    _claim(folder, total)
    if dtype == "w4a16":
        raw["quantization_config"] = config_entry(["lm_head"])
    pieces = _pieces(config, plan)
    write_tensors(folder / "model.safetensors", infos, _counted(pieces, total, progress))
    _write_json(folder / "config.json", raw)
    _write_json(folder / "generation_config.json", _GENERATION_CONFIG)
    _write_json(
        folder / "tokenizer_config.json", _TOKENIZER_CONFIG | {"model_max_length": config.max_position}
    )
    build_tokenizer(config.vocab).save(str(folder / "tokenizer.json"))
    template = Path(onechip.models.__file__).parent / "acorn" / "chat_template.jinja"
    shutil.copyfile(template, folder / "chat_template.jinja")
    return total


def _claim(folder: Path, total: int) -> None:
    """Make the folder, if it is free and its disk has room."""
    check_free(folder)
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UsageError(f"{folder} cannot be made: {error.strerror}.") from None
    check_room(folder, total)


def _write_json(path: Path, value: dict[str, Any]) -> None:
    path.write_text(json.dumps(value, indent=2) + "\n", encoding="utf-8")


def _infos(spec: TensorSpec, dtype: str) -> dict[str, TensorInfo]:
    """What stands for the tensor in the file: itself in bf16, or three tensors in int4."""
    if dtype == "w4a16" and packable(spec):
        module = full_name(_PREFIX, spec.module)
        return {f"{module}.{suffix}": info for suffix, info in int4_infos(spec.shape).items()}
    return {full_name(_PREFIX, spec.name): TensorInfo("BF16", spec.shape)}


def _pieces(config: ModelConfig, plan: dict[TensorSpec, dict[str, TensorInfo]]) -> Iterator[Array]:
    """The data of all tensors, in the order of the plan, in pieces of at most one period of the noise."""
    noise = _Noise()
    for spec, infos in plan.items():
        if len(spec.shape) == 1:
            yield np.full(spec.shape, _vector_value(config, spec), ml_dtypes.bfloat16)
        elif len(infos) == 1:
            # A row of the per-layer table holds a vector for each layer; all else has inputs along its rows.
            width = config.ple_dim if spec.path == ("ple_embed",) else spec.shape[1]
            yield from noise.normal(spec.shape[0] * spec.shape[1], width**-0.5)
        else:
            rows, columns = spec.shape
            yield from noise.words(rows * columns // 8)
            scale = columns**-0.5 / _LEVEL_SPREAD
            yield np.full((rows, columns // GROUP), scale, ml_dtypes.bfloat16)
            yield np.array(spec.shape, dtype=np.int64)


def _vector_value(config: ModelConfig, spec: TensorSpec) -> float:
    """A norm's weight, or a layer's scalar, as stored: under these the hidden state keeps size 1 (or grows
    slowly, where neither norms nor a scalar follow a layer) and logits spread.
    """
    return _effective_value(config, spec) - (config.block.norm_offset if spec.path[-1] != "scalar" else 0)


def _effective_value(config: ModelConfig, spec: TensorSpec) -> float:
    key = spec.path[-1]
    if key in ("q_norm", "k_norm"):
        return float((_SCORE_SPREAD / config.attention_scale) ** 0.5 * spec.shape[0] ** -0.25)
    if key in ("post_attn_norm", "post_ffn_norm", "ple_post_norm"):
        return _POST_NORM
    if key == "scalar":
        branches = 3 if config.ple_dim else 2
        return float((1 + branches * _POST_NORM**2) ** -0.5)
    return _LOGIT_SPREAD if spec.path == ("norm",) else 1.0


class _Noise:
    """One period of random numbers, given out round and round; far cheaper than drawing 5 billion."""

    def __init__(self) -> None:
        self._rng = np.random.default_rng(_SEED)
        self._normal = self._rng.standard_normal(_PERIOD, dtype=np.float32)
        self._scaled: dict[float, Array] = {}
        self._next = 0

    def normal(self, count: int, std: float) -> Iterator[Array]:
        """`count` bf16 numbers of standard deviation `std`."""
        if std not in self._scaled:
            self._scaled[std] = (self._normal * np.float32(std)).astype(ml_dtypes.bfloat16)
        return self._turn(self._scaled[std], count)

    def words(self, count: int) -> Iterator[Array]:
        """`count` int32 words of eight packed levels."""
        return self._turn(self._packed, count)

    @cached_property
    def _packed(self) -> Array:
        levels = self._rng.integers(-_TOP_LEVEL, _TOP_LEVEL + 1, (_PERIOD, 8), dtype=np.int8)
        words: Array = pack(levels)[:, 0]
        return words

    def _turn(self, period: Array, count: int) -> Iterator[Array]:
        while count:
            piece = period[self._next : self._next + count]
            yield piece
            count -= len(piece)
            self._next = (self._next + len(piece)) % _PERIOD


def _counted(pieces: Iterable[Array], total: int, progress: Progress | None) -> Iterator[Array]:
    done = 0
    for piece in pieces:
        yield piece
        done += piece.nbytes
        if progress is not None:
            progress(done, total)
