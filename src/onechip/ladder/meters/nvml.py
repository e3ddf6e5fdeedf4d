"""NVIDIA's GPUs through their management library: memory in use and energy drawn.

Needs the package nvidia-ml-py (module pynvml) and the driver's library; without either there is no GPU to
ask. It makes no CUDA context, so it takes no memory of the GPU.
"""

from __future__ import annotations

import functools
from typing import Any


class Gpus:
    """All GPUs that the driver shows."""

    def __init__(self, library: Any) -> None:
        """Args:
            library: the module pynvml, or an object with its functions.

        Raises:
            library.NVMLError: there is no driver, or it does not answer.
        """
        self._library = library
        library.nvmlInit()
        count = library.nvmlDeviceGetCount()
        self._handles = [library.nvmlDeviceGetHandleByIndex(index) for index in range(count)]

    def used_bytes(self) -> int | None:
        """Memory taken on all GPUs together, by whomever, whether reserved or in use."""
        try:
            return sum(int(self._library.nvmlDeviceGetMemoryInfo(h).used) for h in self._handles)
        except self._library.NVMLError:
            return None

    def energy_j(self) -> float | None:
        """Energy that all GPUs together have drawn since the driver was loaded, in joules.

        The counter is the board's own, in millijoules; GPUs before Volta, and some laptops', have none.
        """
        read = self._library.nvmlDeviceGetTotalEnergyConsumption
        try:
            return sum(int(read(handle)) for handle in self._handles) / 1e3
        except self._library.NVMLError:
            return None


@functools.cache
def gpus() -> Gpus | None:
    """This machine's, looked for once; None without any."""
    try:
        import pynvml
    except ImportError:
        return None
    try:
        found = Gpus(pynvml)
    except pynvml.NVMLError:
        return None
    return found if found.used_bytes() is not None else None
