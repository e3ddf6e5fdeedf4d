"""Which kernels a chip gets."""

from __future__ import annotations

from onechip.kernels.api import Kernels
from onechip.kernels.xla import PlainKernels


def choose(platform: str, *, plain: bool = False) -> tuple[Kernels, str | None]:
    """The fastest kernels for the chip, or plain JAX if that is asked for.

    Returns:
        The kernels, and one sentence on what keeps faster ones from being used (None: nothing does).
    """
    if platform != "cpu" or plain:
        return PlainKernels(), None
    from onechip.kernels.cpu import library

    why_not = library.available()
    if why_not is not None:
        return PlainKernels(), why_not
    from onechip.kernels.cpu.ops import CpuKernels

    return CpuKernels(), None
