"""RoPE parameters of config.json, of the kinds that Gemma 3 and Llama share, in; out comes a Rope.

Linear interpolation is that of arXiv:2306.15595; Llama 3.1's division by wavelength stands in its released
code, which transformers follows (modeling_rope_utils.py).
"""

from __future__ import annotations

import math

from onechip.errors import CheckpointError
from onechip.models.architecture import Rope
from onechip.models.families.fields import Fields

TYPES = ("default", "linear", "llama3")


def scaled_rope(fields: Fields, theta: float, head_dim: int, max_position: int) -> Rope:
    """The Rope that `fields` (rope_parameters or rope_scaling; empty for none) make of a base `theta`.

    Raises CheckpointError naming the field.
    """
    kind_name = "rope_type" if fields.has("rope_type") else "type"  # "type" until 2024
    kind = fields.values.get(kind_name) or "default"
    if kind not in TYPES:
        raise fields.wrong(kind_name, f"one of {', '.join(TYPES)}")
    if fields.positive("partial_rotary_factor", 1.0) != 1:
        raise fields.wrong("partial_rotary_factor", "absent or 1: RoPE on a part of a head is not served")
    if fields.positive("attention_factor", 1.0) != 1:
        raise fields.wrong("attention_factor", "absent or 1")
    pairs = head_dim // 2
    if kind == "linear":
        return Rope(theta, divisors=(fields.positive("factor"),) * pairs)
    if kind == "llama3":
        waves = [2 * math.pi * theta ** (2 * pair / head_dim) for pair in range(pairs)]
        return Rope(theta, divisors=_llama3(fields, waves, max_position))
    return Rope(theta)


def _llama3(fields: Fields, wavelengths: list[float], max_position: int) -> tuple[float, ...]:
    """Short waves stay, long ones are stretched by `factor`, and those between by something between."""
    factor = fields.positive("factor")
    low, high = fields.positive("low_freq_factor"), fields.positive("high_freq_factor")
    if high <= low:
        raise CheckpointError(
            f"{fields.prefix}high_freq_factor is {high:g}: it must be above low_freq_factor, {low:g}."
        )
    trained = fields.size("original_max_position_embeddings", max_position)

    def divisor(wavelength: float) -> float:
        # How far a wave is from the long end (0) to the short one (1); frequencies are mixed in that share.
        share = min(max((trained / wavelength - low) / (high - low), 0.0), 1.0)
        return 1 / ((1 - share) / factor + share)

    return tuple(map(divisor, wavelengths))
