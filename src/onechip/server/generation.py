"""One request from its submission to its last delta, with its count and its times."""

from __future__ import annotations

from dataclasses import replace

from onechip.engine.types import Event
from onechip.errors import EngineError, OnechipError, RequestError
from onechip.models.chat_parser import Delta
from onechip.server.metrics import RequestTimer
from onechip.server.orders import Order
from onechip.server.replies import Usage
from onechip.server.service import Model, Service
from onechip.server.streams import Mailbox


class Generation:
    """A request that the engine works on.

    Attributes:
        answer: what came of it so far.
        failure: why nothing more comes of it, None if all is well.
        timer: when it came.
    """

    def __init__(self, service: Service, model: Model, order: Order, mailbox: Mailbox) -> None:
        """Submit the request of `order`, whose events come into `mailbox`.

        Raises:
            QueueFullError, RequestError, EngineError: the engine does not take it.
        """
        self.answer, self.request = order.answer, order.request
        self.failure: OnechipError | None = None
        self._engine = model.engine
        self._streams = service.streams
        self.timer = RequestTimer(service.metrics if order.measured else None)
        self._over = False  # the engine has sent its last event
        self._closed = False
        self._streams.open(self.request.id, mailbox)
        try:
            self._engine.submit(self.request)
        except BaseException:
            self._streams.close(self.request.id)
            raise

    @property
    def running(self) -> bool:
        """Whether more may come."""
        return self.answer.finish is None and self.failure is None

    @property
    def usage(self) -> Usage:
        """Tokens so far."""
        answer = self.answer
        return Usage.of(
            len(self.request.prompt), answer.cached_tokens, answer.tokens, answer.reasoning_tokens
        )

    def take(self, event: Event) -> list[Delta]:
        """What `event` adds to the answer; sets `answer.finish` or `failure` with the last."""
        if self._closed:
            return []
        self._over = event.finish is not None
        failed = event.finish in ("error", "cancelled")
        deltas = self.answer.take(replace(event, finish=None) if failed else event)
        if failed and self.answer.finish is None:
            kind = RequestError if event.refused else EngineError
            self.failure = kind(event.error or "The server stopped before the answer was complete.")
        if not self.running:
            self.close("error")
        return deltas

    def close(self, reason: str) -> None:
        """Nobody waits for more: free the slot, within a window of decode steps.

        Args:
            reason: why there is no more, if the answer does not say it.
        """
        if self._closed:
            return
        self._closed = True
        self._streams.close(self.request.id)
        if not self._over:
            self._engine.cancel(self.request.id)
        ended = "error" if self.failure else self.answer.finish or reason
        self.timer.on_end(ended, len(self.request.prompt), self.answer.tokens)
