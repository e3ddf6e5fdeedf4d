"""Config, chip and wishes in; how many requests of which context fit, and in which shapes they run, out.

Everything is counted before anything is allocated. What does not fit is refused with the numbers.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import jax
import jax.numpy as jnp

from onechip.engine import cache, sampling
from onechip.engine.chip import Chip
from onechip.engine.placement import Precision, fetched_bytes
from onechip.engine.prefixes import Reuse
from onechip.engine.turns import Limits
from onechip.engine.types import EngineConfig
from onechip.errors import CapacityError, UsageError
from onechip.kernels.api import SPAN_BLOCK
from onechip.models.architecture import ModelConfig
from onechip.models.layout import EMBED, HEAD

GIB = 2**30
MAX_REQUESTS = 64
DEFAULT_CONTEXT = 4096
WINDOWS = (8, 4, 2, 1)
WINDOW_SECONDS = 0.02
"""A window of decode steps may last about this long: it is what a new request waits for."""
KEPT_RINGS_SHARE = 0.125
"""Rings that are kept for prompts to come may take so much beside those of the requests, if there is room."""
MOST_KEPT_RINGS = 64
KEPT_FREE = 0.05
"""Share of the free memory that stays unplanned (the allocator's own, fragmentation, the tokenizer)."""


@dataclass(frozen=True, slots=True)
class Plan:
    """What an engine will allocate and compile.

    Attributes:
        context: tokens of one request, prompt and output together.
        slots: requests at once.
        activation_dtype: of activations and of the cache.
        row_buckets, chunk_buckets, shared_chunks, window: see scheduler.Limits.
        weight_bytes, cache_bytes, scratch_bytes: what each takes; scratch is an upper estimate of
            temporaries.
        free_bytes: what the chip had before.
        reuse: what prompts to come can use of earlier ones, None if nothing.
        kept_bytes: what its rings take.
    """

    context: int
    slots: int
    activation_dtype: Any
    row_buckets: tuple[int, ...]
    chunk_buckets: tuple[int, ...]
    shared_chunks: bool
    window: int
    weight_bytes: int
    cache_bytes: int
    scratch_bytes: int
    free_bytes: int
    reuse: Reuse | None = None
    kept_bytes: int = 0

    @property
    def needed_bytes(self) -> int:
        return self.weight_bytes + self.cache_bytes + self.kept_bytes + self.scratch_bytes

    @property
    def fits(self) -> bool:
        return self.needed_bytes <= self.free_bytes * (1 - KEPT_FREE)

    @property
    def limits(self) -> Limits:
        """What the scheduler must keep to.

        A turn takes one full chunk of prompts for each of its decode steps: fewer would leave slots empty
        that 64 requests could fill (a request of 512 tokens in and 128 out lives for 16 windows of 8 steps).
        """
        budget = self.chunk_buckets[-1]
        buckets = self.row_buckets, self.chunk_buckets
        return Limits(*buckets, self.shared_chunks, self.window, budget, self.reuse)

    def describe(self) -> str:
        """The plan in one line, for the terminal and the log."""
        kept = self.reuse.kept if self.reuse else 0
        rings = f"+ {kept} rings for prompts to come {self.kept_bytes / GIB:.2f} " if kept else ""
        return (
            f"memory: weights {self.weight_bytes / GIB:.2f} GiB + cache {self.cache_bytes / GIB:.2f} "
            f"({self.slots} requests x {self.context} tokens) {rings}"
            f"+ scratch {self.scratch_bytes / GIB:.2f} = {self.needed_bytes / GIB:.2f} "
            f"of {self.free_bytes / GIB:.2f} GiB free"
        )


def tree_bytes(tree: Any) -> int:
    """Bytes of all arrays (or shapes) of a pytree."""
    return sum(int(leaf.size) * jnp.dtype(leaf.dtype).itemsize for leaf in jax.tree.leaves(tree))


def cache_bytes(config: ModelConfig, slots: int, context: int, dtype: Any) -> int:
    """Rings and spans of all slots, K and V."""
    return 2 * tree_bytes(cache.shapes(config, slots, context, dtype))


def ring_bytes(config: ModelConfig, dtype: Any) -> int:
    """The rings of one request, K and V."""
    return 2 * tree_bytes(cache.kept_shapes(config, 1, dtype))


def _with_kept_rings(plan: Plan, config: ModelConfig) -> Plan:
    """The plan with room for prompts to come, as much as there is."""
    ring = ring_bytes(config, plan.activation_dtype)
    if not ring:
        return replace(plan, reuse=Reuse(window=0, kept=0))
    room = int(plan.free_bytes * (1 - KEPT_FREE)) - plan.needed_bytes
    share = max(int(KEPT_RINGS_SHARE * plan.cache_bytes), 2 * ring)
    kept = min(max(0, min(share, room)) // ring, MOST_KEPT_RINGS)
    return replace(plan, reuse=Reuse(config.sliding_window, kept), kept_bytes=kept * ring)


def scratch_bytes(config: ModelConfig, slots: int, precision: Precision) -> int:
    """Upper estimate of the largest program's temporaries, a prefill chunk's or a decode step's."""
    size = 4  # XLA may hold any intermediate in float32
    chunk = precision.kernels.buckets.chunks[-1]
    rows = max(slots, chunk)
    mlp = max(2 * layer.intermediate for layer in config.layers)
    heads = max(layer.heads for layer in config.layers)
    attention = max((layer.heads + 4 * layer.kv_heads) * layer.head_dim for layer in config.layers)
    ple = 3 * len(config.layers) * config.ple_dim
    keys = max(config.sliding_window + chunk, 3 * SPAN_BLOCK)
    scores = 3 * heads * keys
    blocks = 2 * slots * SPAN_BLOCK * max(layer.kv_heads * layer.head_dim for layer in config.layers)
    steered = sampling.BLOCK_ROWS * config.vocab * 4  # rows that are changed, masked and sorted at a time
    logits = 4 * max(slots, sampling.SCORED_ROWS) * config.vocab + steered
    # Plain JAX expands a quantised weight where it is used; a float32 head is laid out once more for its
    # product.
    packs = precision.kernels.packs
    expanded = mlp * config.hidden if precision.kinds and not packs else 0
    if not packs and (EMBED if config.tied else HEAD) in precision.kinds:
        expanded = max(expanded, config.hidden * config.vocab)
    head = config.hidden * config.vocab if precision.activations == jnp.float32 else 0
    per_row = mlp + attention + ple + scores + 6 * config.hidden
    return size * (rows * per_row + blocks + logits + expanded + head)


def _window(streamed_bytes: int, chip: Chip) -> int:
    step = streamed_bytes / chip.bandwidth_bytes_s
    return next((window for window in WINDOWS if window * step <= WINDOW_SECONDS), WINDOWS[-1])


def _row_buckets(slots: int, buckets: tuple[int, ...]) -> tuple[int, ...]:
    """Those of `buckets` that are needed up to the one that covers `slots`; the last is cut to it."""
    top = max(slots, buckets[0])
    return (*(bucket for bucket in buckets if bucket < top), top)


def _check_wishes(config: ModelConfig, wishes: EngineConfig) -> None:
    if wishes.context is not None and not 2 <= wishes.context <= config.max_position:
        raise UsageError(
            f"--context is {wishes.context}: this model takes 2 to {config.max_position} tokens "
            "(max_position_embeddings in its config.json)."
        )
    if wishes.max_requests is not None and not 1 <= wishes.max_requests <= MAX_REQUESTS:
        raise UsageError(f"--max-requests is {wishes.max_requests}: it must be from 1 to {MAX_REQUESTS}.")


def make_plan(
    config: ModelConfig, wishes: EngineConfig, chip: Chip, precision: Precision, weight_bytes: int
) -> Plan:
    """The plan for what was asked; where nothing was asked, the most that fits up to 64 requests of 4,096
    tokens.

    Args:
        precision, weight_bytes: how the weights will stand on the device.

    Raises:
        UsageError: a wish that the model or the engine cannot have.
        CapacityError: it does not fit, with the numbers and with what would.
    """
    _check_wishes(config, wishes)
    dtype, buckets = precision.activations, precision.kernels.buckets

    def planned(slots: int, context: int) -> Plan:
        rows = _row_buckets(slots, buckets.rows)
        streamed = weight_bytes - fetched_bytes(config, precision)
        return Plan(
            context=context,
            slots=rows[-1],
            activation_dtype=dtype,
            row_buckets=rows,
            chunk_buckets=buckets.chunks,
            shared_chunks=precision.kernels.attend_rows(config.head_dims) is not None,
            window=_window(streamed, chip),
            weight_bytes=weight_bytes,
            cache_bytes=cache_bytes(config, rows[-1], context, dtype),
            scratch_bytes=scratch_bytes(config, rows[-1], precision),
            free_bytes=chip.free_bytes,
        )

    contexts = _choices(wishes.context, min(config.max_position, DEFAULT_CONTEXT), 512)
    requests = _choices(wishes.max_requests, MAX_REQUESTS, 1)
    candidates = [planned(slots, context) for context in contexts for slots in requests]
    for candidate in candidates:
        if candidate.fits:
            return _with_kept_rings(candidate, config) if wishes.reuse else candidate
    raise CapacityError(_refusal(candidates[0], planned))


def _choices(wish: int | None, largest: int, smallest: int) -> list[int]:
    """The wish alone, or the largest value and its halves down to the smallest."""
    if wish is not None:
        return [wish]
    values = [largest]
    while values[-1] // 2 >= smallest:
        values.append(values[-1] // 2)
    return values


def _refusal(wanted: Plan, planned: Any) -> str:
    """Why the wish does not fit, and the largest number of requests or the largest context that does."""
    says = (
        f"{wanted.slots} requests of {wanted.context} tokens do not fit: {wanted.describe()}, "
        f"of which {KEPT_FREE:.0%} stays unplanned"
    )
    fewer = [slots for slots in range(wanted.slots - 1, 0, -1) if planned(slots, wanted.context).fits]
    shorter = [
        blocks * 256
        for blocks in range(wanted.context // 256, 0, -1)
        if planned(wanted.slots, blocks * 256).fits
    ]
    mends = [f"--max-requests {fewer[0]}"] if fewer else []
    mends += [f"--context {shorter[0]}"] if shorter else []
    if not mends:
        return f"{says}. Not even one request of 256 tokens fits: take a smaller model or --dtype w4a16."
    return f"{says}. What fits: {' or '.join(mends)}."
