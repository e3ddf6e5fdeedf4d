"""A GGUF file's rope_freqs.weight in; out comes what a config.json says of it, for Gemma 4 and Llama 3.

Llama 3's four numbers are not in the file; what it has is by how much each frequency is divided. Of the four
only the factor and two ratios matter, and those can be read back: between the two wavelengths the share of
the undivided frequency is a straight line in the frequency.
"""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np

from onechip.errors import CheckpointError
from onechip.models.families.fields import Fields
from onechip.models.families.rope import scaled_rope

_STILL = 1e20
"""From here on a divisor means that the pair does not turn; llama.cpp's converter writes 1e30."""
_PUBLISHED = {"low_freq_factor": 1.0, "high_freq_factor": 4.0, "original_max_position_embeddings": 8192}
_TOLERANCE = 1e-4


def turning_fraction(divisors: list[float], path: Path) -> float:
    """The part of the pairs that turn: those first in the list, by one; the others stand still."""
    turning = sum(divisor == 1 for divisor in divisors)
    expected = [
        divisor == 1 if pair < turning else divisor >= _STILL for pair, divisor in enumerate(divisors)
    ]
    if not turning or not all(expected):
        raise CheckpointError(
            f"rope_freqs.weight in {path} is not served: pairs must turn unchanged, up to one from which on "
            "all stand still."
        )
    return turning / len(divisors)


def llama3_scaling(divisors: list[float], theta: float, path: Path) -> dict[str, Any]:
    """The parameters that give these divisors: Llama 3's published ones where they do, else fitted ones.

    Raises CheckpointError if none do.
    """
    if all(divisor == 1 for divisor in divisors):
        return {"rope_type": "default"}
    factor = max(divisors)
    for numbers in (_PUBLISHED, _fitted(divisors, theta, factor)):
        if numbers is not None:
            scaling = {"rope_type": "llama3", "factor": factor} | numbers
            made = scaled_rope(Fields(scaling), theta, 2 * len(divisors), 1).divisors
            if np.allclose(made, divisors, rtol=_TOLERANCE, atol=0):
                return scaling
    raise CheckpointError(f"rope_freqs.weight in {path} is not served: it is no scaling of Llama 3's kind.")


def _fitted(divisors: list[float], theta: float, factor: float) -> dict[str, Any] | None:
    """From the pairs between the two ends and those next to them; None if the pairs are in no such order."""
    count = len(divisors)
    frequency = [theta ** (-pair / count) / (2 * math.pi) for pair in range(count)]
    # 1 / divisor = (1 - share) / factor + share, and share = (length * frequency - low) / (high - low).
    share = [(1 / divisor - 1 / factor) / (1 - 1 / factor) for divisor in divisors]
    between = [pair for pair in range(count) if 0 < share[pair] < 1]
    if len(between) > 1:
        slope, start = np.polyfit([frequency[pair] for pair in between], [share[pair] for pair in between], 1)
    else:
        # One line of many: through the pair between, or the first at the long end, steep enough for the next.
        at = between[0] if between else share.index(0)
        neighbours = [pair for pair in (at - 1, at + 1) if 0 <= pair < count and frequency[pair]]
        slope = max(
            (share[pair] - share[at]) / (frequency[pair] - frequency[at])
            for pair in neighbours
            if share[pair] != share[at]
        )
        start = share[at] - slope * frequency[at]
    if slope <= 0 or start >= 0:
        return None
    length = 1 << 20  # any: only its ratios to the two factors matter
    return {
        "low_freq_factor": float(-start / slope * length),
        "high_freq_factor": float((1 - start) / slope * length),
        "original_max_position_embeddings": length,
    }
