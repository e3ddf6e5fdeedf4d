"""Muon for the linear weights of the layers, AdamW for tables and norms, nothing for the layer scalars."""

from __future__ import annotations

import jax
import optax
from optax import contrib

from onechip.models.layout import Params

MUON_RATE = 0.02
ADAM_RATE = 6e-3
WARM_UP_STEPS = 20
DECAY_SHARE = 0.5
"""The last part of the steps, over which both rates fall to zero in a line."""

TABLES = ("embed", "ple_embed")


def optimizer(steps: int) -> optax.GradientTransformation:
    """For a run of `steps` steps (Muon: Jordan et al. 2024, https://kellerjordan.github.io/posts/muon/)."""
    muon = contrib.muon(
        _schedule(MUON_RATE, steps),
        beta=0.95,
        weight_decay=0.02,
        # Our weights are [out, in]; optax takes [in, out] if it is not told.
        muon_weight_dimension_numbers=lambda tree: jax.tree.map(
            lambda _: contrib.MuonDimensionNumbers(1, 0), tree
        ),
    )
    adam = optax.adamw(_schedule(ADAM_RATE, steps), b1=0.9, b2=0.95, weight_decay=0.0)
    return optax.partition({"muon": muon, "adam": adam, "fixed": optax.set_to_zero()}, _labels)


def _labels(params: Params) -> Params:
    def label(path: tuple[jax.tree_util.KeyEntry, ...], leaf: jax.Array) -> str:
        key = path[-1].key if isinstance(path[-1], jax.tree_util.DictKey) else None
        if key == "scalar":
            return "fixed"
        return "muon" if leaf.ndim == 2 and key not in TABLES else "adam"

    return jax.tree_util.tree_map_with_path(label, params)


def _schedule(rate: float, steps: int) -> optax.Schedule:
    decay = int(steps * DECAY_SHARE)
    return optax.join_schedules(
        [
            optax.linear_schedule(0.0, rate, WARM_UP_STEPS),
            optax.constant_schedule(rate),
            optax.linear_schedule(rate, 0.0, decay),
        ],
        [WARM_UP_STEPS, steps - decay],
    )
