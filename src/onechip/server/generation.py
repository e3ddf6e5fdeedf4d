"""One request from its submission to its last delta, with its count and its times."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager

from msgspec import UNSET
from starlette.types import Receive

from onechip.engine.types import Request
from onechip.errors import EngineError
from onechip.models.chat_parser import Delta
from onechip.server.answer import Answer
from onechip.server.metrics import RequestTimer
from onechip.server.replies import CompletionDetails, PromptDetails, Usage
from onechip.server.service import Model, Service
from onechip.server.streams import ClientGone


class Generation:
    """A request that the engine works on.

    Attributes:
        answer: what came of it so far.
        timer: when it came.
    """

    def __init__(self, service: Service, model: Model, request: Request, answer: Answer) -> None:
        """Submit `request`.

        Raises:
            QueueFullError, RequestError, EngineError: the engine does not take it.
        """
        self.answer = answer
        self.request = request
        self._engine = model.engine
        self._streams = service.streams
        self.timer = RequestTimer(service.metrics)
        self._mailbox = self._streams.open(request.id)
        self._over = False  # the engine has sent its last event
        try:
            self._engine.submit(request)
        except BaseException:
            self._streams.close(request.id)
            raise

    @property
    def usage(self) -> Usage:
        """Tokens so far."""
        prompt, output = len(self.request.prompt), self.answer.tokens
        thoughts = self.answer.reasoning_tokens
        details = CompletionDetails(thoughts) if thoughts else UNSET
        return Usage(prompt, prompt + output, output, PromptDetails(self.answer.cached_tokens), details)

    async def whole(self, receive: Receive) -> list[Delta]:
        """The answer in one piece.

        Args:
            receive: of the HTTP request, whose body has been read.

        Raises:
            ClientGone: the client went away.
            EngineError: the engine failed or is stopped.
        """
        deltas: list[Delta] = []
        with self.watched(receive):
            while self.answer.finish is None:
                deltas += await self.step()
        return deltas

    @contextmanager
    def watched(self, receive: Receive) -> Iterator[None]:
        """Take the answer inside of this: `step` then gives up when the client goes away.

        Leaving early, for whatever reason, frees the request's slot within a window of decode steps.

        Args:
            receive: of the HTTP request, whose body has been read.
        """
        watch = asyncio.create_task(_disconnected(receive))
        watch.add_done_callback(lambda _: self._mailbox.abandon())
        reason = "error"
        try:
            yield
            reason = self.answer.finish or "error"
        except (ClientGone, asyncio.CancelledError):
            reason = "abort"
            raise
        finally:
            watch.cancel()
            self._close(reason)

    async def step(self) -> list[Delta]:
        """What the next window adds to the answer; `answer.finish` is set with the last.

        Raises:
            ClientGone: the client went away.
            EngineError: the engine failed or is stopped.
        """
        event = await self._mailbox.take()
        self._over = event.finish is not None
        if event.finish in ("error", "cancelled"):
            raise EngineError(event.error or "The server stopped before the answer was complete.")
        self.timer.on_tokens(len(event.tokens))
        return self.answer.take(event)

    def _close(self, reason: str) -> None:
        self._streams.close(self.request.id)
        if not self._over:
            self._engine.cancel(self.request.id)
        self.timer.on_end(reason, len(self.request.prompt), self.answer.tokens)


async def _disconnected(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
