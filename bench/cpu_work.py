"""What a decode step and a prompt cost at least, for any engine: a model's config and an arm in, bytes and
operations out, and with the machine's bounds the most tokens a second.

Counted are the weights of all products, each read once a step, and their multiplications; of a prompt also
attention's. Rows of tables, cache reads of short requests, norms and the choice of tokens are left out, so
what is given here is never too low.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

from bench.bounds import Bounds

from onechip.ladder.records import Arm
from onechip.models.architecture import LayerSpec, ModelConfig
from onechip.models.layout import TensorSpec, expected_tensors

BITS: Mapping[str, tuple[float, float]] = {
    "bf16": (16, 16),
    "w4a16": (4.5, 16),
    "w4a16-emb4": (4.5, 4.5),
    "gguf-bf16": (16, 16),
    "gguf-f16": (16, 16),
    "gguf-f32": (32, 32),
    "gguf-q8_0": (8.5, 8.5),
    "gguf-q4_0": (4.5, 16),
    "gguf-q4_0-q6_k": (4.5, 6.5625),
    "gguf-q4_0-emb4": (4.5, 4.5),
}
"""Form of an arm's weights (ladder.weights.FORMS) -> bits of a linear weight, and of the tied table that is
the head; shares of scales included."""
EXACT = (("--dtype", "w4a16"), ("VLLM_CPU_INT4_W4A8=0",))
"""Flags of arms whose 4-bit weights meet bf16 activations."""
ATTENTION = "bf16"
"""What keys and values are kept and multiplied in."""


@dataclass(frozen=True)
class Precision:
    """Attributes: linear_bits, head_bits as in BITS; activations: of products, a kind of Bounds.peak."""

    linear_bits: float
    head_bits: float
    activations: str


def precision(arm: Arm) -> Precision:
    """How an arm's engine reads and multiplies weights.

    Raises:
        ValueError: the arm does not say in which form its weights are.
    """
    if arm.form not in BITS:
        raise ValueError(
            f"{arm.name} serves MODEL as it is: take a word that names a form, as onechip:int4-emb4."
        )
    linear, head = BITS[arm.form]
    if linear == 32 or arm.form == "gguf-f16":
        return Precision(linear, head, "f32")
    words = set(arm.flags)
    exact = linear == 16 or any(words.issuperset(flags) for flags in EXACT)
    return Precision(linear, head, "bf16" if exact else "int8")


@dataclass(frozen=True)
class Work:
    """One model in one precision."""

    config: ModelConfig
    precision: Precision

    @property
    def step_bytes(self) -> float:
        """Weights that a step reads, however many rows it has."""
        bits = self._linear() * self.precision.linear_bits + self._tied_head() * self.precision.head_bits
        return bits / 8

    def step_operations(self, rows: int) -> dict[str, float]:
        """Of a decode step."""
        return {self.precision.activations: 2.0 * rows * (self._linear() + self._tied_head())}

    def prompt_operations(self, tokens: int) -> dict[str, float]:
        """Of a prompt up to its first token.

        All rows matter in layers that write keys and values which a later layer or token reads; of the last
        of these only its keys and values. In all others, and in the head, only the last row does.
        """
        last = self.config.first_shared - 1
        every = sum(_size(spec) for spec in self._specs() if _every_row(self.config, spec, last))
        once = self._linear() + self._tied_head() - every
        share = self._ple_projection() * (1 - last / len(self.config.layers))
        found = {self.precision.activations: 2.0 * (tokens * (every - share) + once + share)}
        seen = sum(_attention(self.config, layer, tokens) for layer in self.config.layers[:last])
        return found | {ATTENTION: found.get(ATTENTION, 0.0) + seen}

    def decode_tok_s(self, bounds: Bounds, requests: int) -> float:
        """The most tokens a second of so many requests together."""
        return requests / bounds.seconds(self.step_bytes, self.step_operations(requests))

    def prefill_tok_s(self, bounds: Bounds, tokens: int) -> float:
        """The most prompt tokens a second."""
        return tokens / bounds.seconds(self.step_bytes, self.prompt_operations(tokens))

    def _specs(self) -> list[TensorSpec]:
        return [spec for spec in expected_tensors(self.config) if spec.linear]

    def _linear(self) -> int:
        return sum(map(_size, self._specs()))

    def _tied_head(self) -> int:
        """The head where it is the table; an untied one is among the linear weights."""
        return self.config.vocab * self.config.hidden if self.config.tied else 0

    def _ple_projection(self) -> int:
        return sum(_size(spec) for spec in self._specs() if spec.path == ("ple_proj",))


def _size(spec: TensorSpec) -> int:
    return math.prod(spec.shape)


def _every_row(config: ModelConfig, spec: TensorSpec, last: int) -> bool:
    """Whether all rows of a prompt go through a weight; `last` is the last layer that writes a cache."""
    if spec.path[0] != "layers":
        return spec.path == ("ple_proj",)
    index, name = int(spec.path[1]), spec.path[2]
    return index < last or (index == last and name in ("k", "v"))


def _attention(config: ModelConfig, layer: LayerSpec, tokens: int) -> float:
    """Multiplications and additions of queries with keys, and of what they give with values."""
    window = config.sliding_window if layer.kind == "sliding" else tokens
    full = min(window, tokens)
    seen = full * (full + 1) / 2 + (tokens - full) * full
    return 4.0 * layer.heads * layer.head_dim * seen
