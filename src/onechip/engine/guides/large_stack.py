"""Work that goes deep -> a thread with room for it."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import TypeVar

T = TypeVar("T")

STACK = 512 << 20
"""Bytes. llguidance takes up to 16 kB for each schema that a chain of references goes through, and 4 kB for
each rule. Only what is used takes memory, until the thread ends.
"""

_starting = threading.Lock()


def on_large_stack(function: Callable[[], T]) -> T:
    """`function()`, in a thread that ends with it; what it raises is raised here."""
    result: Future[T] = Future()

    def work() -> None:
        try:
            result.set_result(function())
        except BaseException as error:
            result.set_exception(error)

    thread = threading.Thread(target=work, name="onechip-large-stack", daemon=True)
    with _starting:  # the size is that of all threads that start meanwhile
        before = threading.stack_size(STACK)
        try:
            thread.start()
        finally:
            threading.stack_size(before)
    return result.result()
