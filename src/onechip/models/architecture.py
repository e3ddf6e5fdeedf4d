"""What a decoder is, whichever family it comes from: frozen dataclasses that config.json is read into."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from onechip.kernels.api import Activation

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
    k_eq_v: bool = False

    @property
    def owns_kv(self) -> bool:
        return self.kv_source == self.index


@dataclass(frozen=True, slots=True)
class Block:
    """How one family builds every layer; a family has one of these, a model's sizes are in ModelConfig.

    Attributes:
        activation: of the MLP's gate.
        norm_offset: what is added to a stored norm weight before it is used: 1 where files keep w - 1.
        qk_norm: queries and keys are normalised per head, with a weight, before RoPE.
        v_norm: values are normalised per head, without a weight.
        post_norms: what attention and MLP give is normalised before it joins the residual.
        layer_scalar: the residual is multiplied by a stored number at the end of a layer.
    """

    activation: Activation
    norm_offset: float
    qk_norm: bool
    v_norm: bool
    post_norms: bool
    layer_scalar: bool


@dataclass(frozen=True, slots=True)
class Rope:
    """Rotary embedding of one kind of layer: pair i of D/2 turns by position * theta^(-2i/D) / divisors[i].

    Attributes:
        fraction: only the first so many of the pairs turn ("proportional" RoPE, Gemma 4's full layers).
        divisors: D/2 numbers, or none where nothing is stretched ("linear" and "llama3" scaling give them).
    """

    theta: float
    fraction: float = 1.0
    divisors: tuple[float, ...] = ()


@dataclass(frozen=True, slots=True)
class ModelConfig:
    """A decoder of one of the served families (models/families).

    Attributes:
        layers: one LayerSpec a layer.
        sliding_window: positions that sliding layers see; 0 if there are none.
        ple_dim: width of the per-layer embeddings, 0 if the model has none.
        ple_vocab: rows of the per-layer table, 0 if the model has none.
        softcap: final logit softcapping, None if there is none.
        attention_scale: what q.k is multiplied by before the softmax.
        embedding_scale: what a token's embedding is multiplied by.
        rope_sliding, rope_full: of the layers of that kind.
        tied: the output head is the embedding table.
        eos_ids: stop ids of config.json (the tokenizer side adds generation_config's).
    """

    model_type: str
    block: Block
    vocab: int
    hidden: int
    layers: tuple[LayerSpec, ...]
    sliding_window: int
    ple_dim: int
    ple_vocab: int
    max_position: int
    norm_eps: float
    softcap: float | None
    attention_scale: float
    embedding_scale: float
    rope_sliding: Rope
    rope_full: Rope
    tied: bool
    bos_id: int
    pad_id: int
    eos_ids: tuple[int, ...]

    @property
    def own_layers(self) -> tuple[LayerSpec, ...]:
        """The layers that write a cache, in order."""
        return tuple(layer for layer in self.layers if layer.owns_kv)

    @property
    def head_dims(self) -> frozenset[int]:
        """Widths of heads that occur."""
        return frozenset(layer.head_dim for layer in self.layers)

    @property
    def first_shared(self) -> int:
        """Index of the first layer after which nothing writes a cache; len(layers) if all do."""
        return max(layer.index for layer in self.layers if layer.owns_kv) + 1

    def rope(self, layer: LayerSpec) -> Rope:
        """The rotary embedding of `layer`."""
        return self.rope_sliding if layer.kind == "sliding" else self.rope_full
