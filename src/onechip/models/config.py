"""What a checkpoint's config.json says, as a frozen dataclass that the rest of the code can rely on."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

LayerKind = Literal["sliding", "full"]


@dataclass(frozen=True, slots=True)
class LayerSpec:
    """The shape of one layer.

    Attributes:
        index: 0-based position in the stack.
        kind: "sliding" (attends to the last `sliding_window` positions, itself included) or "full".
        heads, kv_heads, head_dim: of this layer; Q has the same head_dim as K and V.
        intermediate: width of the MLP.
        kv_source: the layer whose cache it attends to; its own index if it computes K and V.
        k_eq_v: V is the raw K projection, normalised; there is no v_proj.
    """

    index: int
    kind: LayerKind
    heads: int
    kv_heads: int
    head_dim: int
    intermediate: int
    kv_source: int
    k_eq_v: bool

    @property
    def owns_kv(self) -> bool:
        return self.kv_source == self.index


@dataclass(frozen=True, slots=True)
class ModelConfig:
    """A Gemma 4 text model (spec: the published config.json of google/gemma-4-E2B-it and its family).

    Attributes:
        ple_dim: width of the per-layer embeddings, 0 if the model has none.
        ple_vocab: rows of the per-layer table.
        layers: one LayerSpec a layer.
        softcap: final logit softcapping, None if there is none.
        rope_theta_sliding, rope_theta_full: RoPE bases; the full layers use "proportional" RoPE, in which only
            the first `rope_fraction_full` of the frequency pairs turn.
        eos_ids: stop ids of config.json (the tokenizer side adds generation_config's).
        embed_scale: sqrt(hidden), rounded to bfloat16 as the published model does.
    """

    model_type: str
    vocab: int
    hidden: int
    layers: tuple[LayerSpec, ...]
    sliding_window: int
    ple_dim: int
    ple_vocab: int
    max_position: int
    norm_eps: float
    softcap: float | None
    rope_theta_sliding: float
    rope_theta_full: float
    rope_fraction_full: float
    tied: bool
    bos_id: int
    pad_id: int
    eos_ids: tuple[int, ...]

    @property
    def own_layers(self) -> tuple[LayerSpec, ...]:
        """The layers that write a cache, in order."""
        return tuple(layer for layer in self.layers if layer.owns_kv)

    @property
    def first_shared(self) -> int:
        """Index of the first layer after which nothing writes a cache; len(layers) if all do."""
        return max(layer.index for layer in self.layers if layer.owns_kv) + 1
