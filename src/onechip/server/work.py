"""Work that would hold up the loop -> threads beside it.

What answering takes before the engine is asked is in proportion to the request's body, so the body's size
says where it is done.
"""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Callable
from concurrent.futures import Future
from contextvars import ContextVar
from functools import partial
from queue import SimpleQueue
from typing import Any, ParamSpec, TypeVar

from starlette.types import Receive

from onechip.server.streams import ClientGone, disconnected

P = ParamSpec("P")
T = TypeVar("T")

LONG_BODY = 16_384
"""Bytes from which on the loop would stand still for milliseconds."""

_long: ContextVar[bool] = ContextVar("long", default=False)
_client: ContextVar[Receive | None] = ContextVar("client", default=None)


class Workers:
    """Threads that end with the process, whatever they are at: some work takes minutes, and nothing can
    interrupt it.
    """

    def __init__(self, name: str, most: int) -> None:
        """Args: most: threads; each is started when there first is work for it."""
        self._name, self._most = name, most
        self._started = 0
        self._lock = threading.Lock()
        self._undone: set[Future[Any]] = set()
        self._jobs: SimpleQueue[tuple[Future[Any], Callable[[], Any]]] = SimpleQueue()

    async def run(self, function: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> T:
        """`function(*args, **kwargs)` in one of the threads, those first who came first.

        Raises:
            ClientGone: the client went away. What no thread has begun by then is not done at all.
        """
        result: Future[T] = Future()
        self._undone.add(result)
        result.add_done_callback(self._undone.discard)
        self._jobs.put((result, partial(function, *args, **kwargs)))
        with self._lock:
            if self._started < self._most:
                threading.Thread(target=self._work, name=self._name, daemon=True).start()
                self._started += 1
        try:
            return await _unless_gone(asyncio.wrap_future(result))
        finally:
            result.cancel()  # before anybody can know that it is over: asyncio would do it a step later

    @property
    def busy(self) -> bool:
        """Whether a thread is at work, or soon will be."""
        return bool(self._undone)

    def _work(self) -> None:
        while True:
            _do(*self._jobs.get())


def _do(result: Future[Any], function: Callable[[], Any]) -> None:
    if not result.set_running_or_notify_cancel():
        return
    try:
        result.set_result(function())
    except BaseException as error:
        result.set_exception(error)


async def _unless_gone(job: asyncio.Future[T]) -> T:
    """What `job` gives; it is cancelled if nobody waits for it any more."""
    receive = _client.get()
    if receive is None:
        return await job
    gone = asyncio.create_task(disconnected(receive))
    try:
        await asyncio.wait((job, gone), return_when=asyncio.FIRST_COMPLETED)
        if not job.done():
            raise ClientGone
        return await job
    finally:
        gone.cancel()
        job.cancel()


BODIES = Workers("onechip-body", 2)
"""For what is in proportion to a long body."""

GRAMMARS = Workers("onechip-grammar", 2)
"""For compiling grammars, which takes up to two seconds for a short body too."""

SCORING = Workers("onechip-scoring", 1)
"""For compiling what scores prompts, when it is first needed."""


def end_if_busy() -> None:
    """Ends the process, with code 0, if a thread is still at work: a library that comes back from a long
    computation while Python is being taken down crashes.
    """
    if any(workers.busy for workers in (BODIES, GRAMMARS, SCORING)):
        os._exit(0)


def expect(size: int, receive: Receive) -> None:
    """The request that this coroutine answers has a body of `size` bytes, which have been received."""
    _long.set(size >= LONG_BODY)
    _client.set(receive)


async def apart(function: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> T:
    """`function(*args, **kwargs)`, whose time is in proportion to the body: beside the loop if that is long.

    Args:
        function: touches nothing that belongs to the loop.
    """
    if _long.get():
        return await BODIES.run(function, *args, **kwargs)
    return function(*args, **kwargs)
