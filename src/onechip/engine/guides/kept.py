"""What was made -> kept while there is room for it, the longest unused given up first."""

from __future__ import annotations

import threading
from collections import OrderedDict
from typing import Generic, TypeVar

T = TypeVar("T")


class Kept(Generic[T]):
    """Keeps values by a text, within a number of bytes. Every method may be called from any thread."""

    def __init__(self, most: int, count: int) -> None:
        """Args: most: bytes; a value of more than a quarter of them is not kept. count: values."""
        self._most = most
        self._count = count
        self._lock = threading.Lock()
        self._values: OrderedDict[str, tuple[T, int]] = OrderedDict()
        self.size = 0

    def get(self, key: str) -> T | None:
        with self._lock:
            if key not in self._values:
                return None
            self._values.move_to_end(key)
            return self._values[key][0]

    def put(self, key: str, value: T, size: int) -> None:
        """Args: size: bytes of the value and its key."""
        if size > self._most // 4:
            return
        with self._lock:
            _, before = self._values.pop(key, (value, 0))
            self._values[key] = value, size
            self.size += size - before
            while self.size > self._most or len(self._values) > self._count:
                _, (_, given_up) = self._values.popitem(last=False)
                self.size -= given_up
