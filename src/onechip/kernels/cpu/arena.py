"""Memory for weights: huge pages, since reading from small ones is two to three times slower on the CPU, and
aligned so that JAX takes an array over without a copy.
"""

from __future__ import annotations

import contextlib
import math
import mmap
import threading
from typing import Any

import numpy as np
from numpy.typing import NDArray

ALIGNMENT = 64
HUGE_PAGE = 2 << 20
CHUNK_BYTES = 64 << 20


class Arena:
    """Hands out memory of anonymous mappings. A mapping lives as long as an array in it."""

    def __init__(self, chunk_bytes: int = CHUNK_BYTES) -> None:
        """Args: chunk_bytes: mapped at a time; what no array uses takes no memory."""
        self._chunk_bytes = chunk_bytes
        self._chunk = np.empty(0, np.uint8)
        self._used = 0
        self._lock = threading.Lock()

    def take(self, shape: tuple[int, ...], dtype: Any = np.uint8) -> NDArray[Any]:
        """An array of zeros, at an address that is a multiple of 64.

        Raises:
            MemoryError: the system has not enough.
        """
        array_bytes = math.prod(shape) * np.dtype(dtype).itemsize
        with self._lock:
            if self._used + array_bytes > len(self._chunk):
                self._chunk, self._used = _huge_pages(max(array_bytes, self._chunk_bytes)), 0
            memory = self._chunk[self._used : self._used + array_bytes]
            self._used += -(-array_bytes // ALIGNMENT) * ALIGNMENT
        array: NDArray[Any] = memory.view(dtype).reshape(shape)
        return array


def _huge_pages(nbytes: int) -> NDArray[np.uint8]:
    """At least so many bytes, from where a huge page begins to where one ends."""
    nbytes = -(-nbytes // HUGE_PAGE) * HUGE_PAGE
    try:
        # Shared memory, mmap's default, has no huge pages.
        mapping = mmap.mmap(-1, nbytes + HUGE_PAGE, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    except OSError as error:
        raise MemoryError(f"no {nbytes} bytes for weights: {error.strerror or error}") from None
    with contextlib.suppress(OSError):  # a system without huge pages: slower, not wrong
        mapping.madvise(mmap.MADV_HUGEPAGE)
    memory = np.frombuffer(mapping, np.uint8)
    start = -memory.ctypes.data % HUGE_PAGE
    return memory[start : start + nbytes]
