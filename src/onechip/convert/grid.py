"""Dense weights in whose values already are level * scale in groups of 32; the levels and scales out.

So are checkpoints trained for Q4_0 and saved dense ("qat-q4_0-unquantized"): each group is a handful of
multiples of one step, rounded to the file's dtype. Nothing is rounded to a grid here: a group on none is
named.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from onechip.kernels.api import GROUP
from onechip.models.quant import BFLOAT16, LEVELS, pack

Array = NDArray[Any]

_TOP = 8  # the greatest magnitude of a level
# A stored value is off by 2^-8 of itself at most (bfloat16), and so is the greatest, by which it is divided:
# of at most 8 steps that is 1/16. Half as much again is far from the half at which levels would be mixed up.
_NEAR = 0.095
_INWARD = 2.0**-48  # relative: keeps a bound out, and is far below what separates the steps


@dataclass(frozen=True)
class OnGrid:
    """What `find_grid` found.

    Attributes:
        packed: [rows, in/8] int32.
        scale: [rows, in/32] float16.
        off: [rows, in/32] bool, the groups that are on no grid; their levels and scales are zeros.
        between: groups whose step lies between two float16 numbers, so that the nearer one stands for it.
    """

    packed: Array
    scale: Array
    off: Array
    between: int


def find_grid(weight: Array) -> OnGrid:
    """Levels and float16 scales of a dense weight [rows, in] (bfloat16, float16 or float32).

    For m = 1 to 8 in turn, the greatest magnitude of a group is taken for m steps; the first m is taken for
    which one step, as a real number, gives every value of the group after rounding to the weight's dtype. So
    levels come back divided by their greatest common divisor, and are otherwise those that made the values.
    Of the steps that fit, a bfloat16 is taken where there is one, else a float16, else the float16 next to
    them (`between`).
    """
    rows, columns = weight.shape
    groups = np.ascontiguousarray(weight).reshape(-1, GROUP)
    levels = np.zeros(groups.shape, dtype=np.int8)
    scale = np.zeros(len(groups), dtype=np.float16)
    values = groups.astype(np.float32)
    peak = np.abs(values).max(axis=1)
    open_ = np.flatnonzero(peak)  # without the groups of zeros, and with those that hold a NaN
    between = 0
    for top in range(1, _TOP + 1):
        near = open_[_near(values, peak, open_, top)]
        found, fit = _fit(groups[near], values[near], peak[near], top)
        chosen = near[fit.ok]
        levels[chosen], scale[chosen] = found[fit.ok], fit.scale[fit.ok]
        between += int(fit.between[fit.ok].sum())
        open_ = np.setdiff1d(open_, chosen, assume_unique=True)
    off = np.zeros(len(groups), dtype=bool)
    off[open_] = True
    words = pack(levels.reshape(rows, columns))
    return OnGrid(words, scale.reshape(rows, -1), off.reshape(rows, -1), between)


def _near(values: Array, peak: Array, chosen: Array, top: int) -> Array:
    """Whether the values of each chosen group, with the peak at `top` steps, are all near whole steps."""
    with np.errstate(invalid="ignore", over="ignore"):
        steps = values[chosen] * (top / peak[chosen])[:, None]
        near: Array = np.abs(steps - np.rint(steps)).max(axis=1) < _NEAR  # a NaN is not
    return near


@dataclass(frozen=True)
class _Fit:
    ok: Array
    scale: Array
    between: Array


def _fit(groups: Array, values: Array, peak: Array, top: int) -> tuple[Array, _Fit]:
    """Levels [n, 32]; and for each group whether a step fits, its scale, and whether that is only near."""
    levels = np.rint(values * (top / peak)[:, None]).astype(np.int8)
    if top > LEVELS[1]:  # there is no level 8: a group that needs it has a negative scale
        turned = levels.max(axis=1, initial=0) > LEVELS[1]
        levels[turned] *= -1
    else:
        turned = np.zeros(len(levels), dtype=bool)
    least, most = _bounds(groups)
    steps = np.abs(levels).astype(np.float64)
    used = levels != 0
    low = np.divide(least, steps, out=np.zeros_like(least), where=used).max(axis=1, initial=0)
    high = np.divide(most, steps, out=np.full_like(most, np.inf), where=used).min(axis=1, initial=np.inf)
    ok = (low <= high) & ((values == 0) | used).all(axis=1) & (levels.max(axis=1, initial=0) <= LEVELS[1])
    scale, inside = _storable(low, high)
    ok &= (scale > 0) & np.isfinite(scale)
    return levels, _Fit(ok, np.where(turned, -scale, scale), ~inside)


def _bounds(groups: Array) -> tuple[Array, Array]:
    """Between which float64 magnitudes a number rounds to each value's: halfway to its neighbours.

    A number that is exactly halfway goes to the even neighbour, and products with a float16 often are.
    """
    bits = f"u{groups.dtype.itemsize}"
    magnitude = np.abs(groups)
    code = magnitude.view(bits)
    with np.errstate(over="ignore"):
        below = (code - (code > 0).astype(bits)).view(groups.dtype).astype(np.float64)
        above = (code + np.ones(1, bits)).view(groups.dtype).astype(np.float64)
    exact = magnitude.astype(np.float64)
    inward = np.where(code & 1, _INWARD, 0.0)
    return (below + exact) / 2 * (1 + inward), (above + exact) / 2 * (1 - inward)


def _storable(low: Array, high: Array) -> tuple[Array, Array]:
    """(float16 scale, whether it lies between low and high); a bfloat16 that does is preferred."""
    with np.errstate(over="ignore", invalid="ignore"):
        middle = ((low + high) / 2).astype(np.float32)
        fine = middle.astype(np.float16)
        coarse = middle.astype(BFLOAT16).astype(np.float16)
        rounded = middle.astype(BFLOAT16).astype(np.float64)
    # The bfloat16 nearest to the middle is between the two if any is; likewise the float16.
    shared = (rounded >= low) & (rounded <= high) & (coarse.astype(np.float64) == rounded)
    scale = np.where(shared, coarse, fine)
    exact = scale.astype(np.float64)
    return scale, (exact >= low) & (exact <= high)
