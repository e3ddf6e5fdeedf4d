"""ModelConfig in; out comes every tensor of the text model: name in a checkpoint, place in Params, shape.

Loading, writing, quantising and inventing checkpoints all walk this one list.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from onechip.models.architecture import LayerSpec, ModelConfig

Params = dict[str, Any]
"""The weights as a pytree of arrays; a linear weight W [out, in] and a table T are an array or an `Int4`.

::

    embed T [V, H]   norm [H]   lm_head W [V, H] if not tied
    ple_embed T [Vp, L*P]   ple_proj W [L*P, H]   ple_norm [P]     if ple_dim; L-major blocks of P
    layers: a list, one dict a layer:
      input_norm, pre_ffn_norm [H]
      post_attn_norm, post_ffn_norm [H]   if the block has post_norms
      scalar []                           if it has layer_scalar
      q W [heads*hd, H]   o W [H, heads*hd]   q_norm [hd] if the block has qk_norm
      k, v W [kv_heads*hd, H]   k_norm [hd]      if the layer owns its K and V; no v if k_eq_v
      gate, up W [F, H]   down W [H, F]
      ple_gate W [P, H]   ple_out W [H, P]   ple_post_norm [H]      if ple_dim
"""

EMBED, PLE_EMBED, HEAD = "embed_tokens.weight", "embed_tokens_per_layer.weight", "lm_head.weight"
"""Names of the tensors that have a row for each token id."""

TreePath = tuple[str | int, ...]
"""Keys into Params, from the root."""


@dataclass(frozen=True, slots=True)
class TensorSpec:
    """One tensor of the text model.

    Attributes:
        name: in a checkpoint, after the prefix.
        path: keys into Params, from the root.
        shape: in the checkpoint.
        linear: a linear weight [out, in] of a layer or of the whole model, which int4 may replace.
        table: an embedding table [ids, width], of which rows are fetched; int4 may replace it too.
    """

    name: str
    path: TreePath
    shape: tuple[int, ...]
    linear: bool = False
    table: bool = False

    @property
    def module_class(self) -> str:
        """The class by which the `targets` of a quantised checkpoint name modules like this; "" if none."""
        return "Linear" if self.linear else "Embedding" if self.table else ""

    @property
    def module(self) -> str:
        """The module that holds the tensor, as the `ignore` list of a quantised checkpoint names it."""
        return self.name.removesuffix(".weight")


Read = Callable[[TensorSpec], Any]
"""A tensor's array, Int4 or Int8 on the host."""


def expected_tensors(config: ModelConfig) -> list[TensorSpec]:
    """Every tensor that a checkpoint of this model must have, in the order of the forward pass."""
    specs = [TensorSpec(EMBED, ("embed",), (config.vocab, config.hidden), table=True)]
    if config.ple_dim:
        width = len(config.layers) * config.ple_dim
        specs += [
            TensorSpec(PLE_EMBED, ("ple_embed",), (config.ple_vocab, width), table=True),
            TensorSpec(
                "per_layer_model_projection.weight", ("ple_proj",), (width, config.hidden), linear=True
            ),
            TensorSpec("per_layer_projection_norm.weight", ("ple_norm",), (config.ple_dim,)),
        ]
    for layer in config.layers:
        specs += _layer_tensors(config, layer)
    specs.append(TensorSpec("norm.weight", ("norm",), (config.hidden,)))
    if not config.tied:
        specs.append(TensorSpec(HEAD, ("lm_head",), (config.vocab, config.hidden), linear=True))
    return specs


def _layer_tensors(config: ModelConfig, layer: LayerSpec) -> Iterator[TensorSpec]:
    hidden, head_dim, ple = config.hidden, layer.head_dim, config.ple_dim
    block = config.block

    def tensor(key: str, module: str, *shape: int) -> TensorSpec:
        name = f"layers.{layer.index}.{module}.weight"
        return TensorSpec(name, ("layers", layer.index, key), shape, linear=len(shape) == 2)

    yield tensor("input_norm", "input_layernorm", hidden)
    yield tensor("q", "self_attn.q_proj", layer.heads * head_dim, hidden)
    if block.qk_norm:
        yield tensor("q_norm", "self_attn.q_norm", head_dim)
    if layer.owns_kv:
        yield tensor("k", "self_attn.k_proj", layer.kv_heads * head_dim, hidden)
        if block.qk_norm:
            yield tensor("k_norm", "self_attn.k_norm", head_dim)
        if not layer.k_eq_v:
            yield tensor("v", "self_attn.v_proj", layer.kv_heads * head_dim, hidden)
    yield tensor("o", "self_attn.o_proj", hidden, layer.heads * head_dim)
    if block.post_norms:
        yield tensor("post_attn_norm", "post_attention_layernorm", hidden)
        yield tensor("pre_ffn_norm", "pre_feedforward_layernorm", hidden)
    else:
        yield tensor("pre_ffn_norm", "post_attention_layernorm", hidden)  # Llama's name: it comes after
    yield tensor("gate", "mlp.gate_proj", layer.intermediate, hidden)
    yield tensor("up", "mlp.up_proj", layer.intermediate, hidden)
    yield tensor("down", "mlp.down_proj", hidden, layer.intermediate)
    if block.post_norms:
        yield tensor("post_ffn_norm", "post_feedforward_layernorm", hidden)
    if ple:
        yield tensor("ple_gate", "per_layer_input_gate", ple, hidden)
        yield tensor("ple_out", "per_layer_projection", hidden, ple)
        yield tensor("ple_post_norm", "post_per_layer_input_norm", hidden)
    if block.layer_scalar:
        yield TensorSpec(f"layers.{layer.index}.layer_scalar", ("layers", layer.index, "scalar"), (1,))


def dead_modules(config: ModelConfig) -> set[str]:
    """Modules that some exports carry and nothing reads: K and V of the layers that share another's cache."""
    return {
        f"layers.{layer.index}.self_attn.{module}"
        for layer in config.layers
        if not layer.owns_kv
        for module in ("k_proj", "v_proj", "k_norm")
    }


def empty_params(config: ModelConfig) -> Params:
    """Params without a tensor in it: what `put` fills."""
    return {"layers": [{} for _ in config.layers]}


def get(params: Params, path: TreePath) -> Any:
    """The leaf at `path`. Raises KeyError if there is none."""
    node: Any = params
    for key in path:
        node = node[key]
    return node


def put(params: Params, path: TreePath, value: Any) -> None:
    """Set the leaf at `path`; its parents exist."""
    get(params, path[:-1])[path[-1]] = value
