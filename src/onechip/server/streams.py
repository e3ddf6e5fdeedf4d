"""Events from the engine's thread -> the mailbox of the request that they belong to, on the loop.

One hand-over a window: the engine's thread wakes the loop once for all events of a window.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import replace

from onechip.engine.types import Event


class ClientGone(Exception):
    """The client closed its connection before the answer was complete."""


class Mailbox:
    """Events of one request that its coroutine has not taken yet. Lives on the loop's thread."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._events: list[Event] = []
        self._waiter: asyncio.Future[None] | None = None
        self._abandoned = False

    def put(self, event: Event) -> None:
        self._events.append(event)
        self._wake()

    def abandon(self) -> None:
        """The client is gone: whoever waits, or comes to wait, gets ClientGone."""
        self._abandoned = True
        self._wake()

    async def take(self) -> Event:
        """All that has come, as one event; so a client that reads slowly gets larger ones.

        Raises:
            ClientGone: nobody wants it any more.
        """
        while not self._events and not self._abandoned:
            self._waiter = self._loop.create_future()
            await self._waiter
        if self._abandoned:
            raise ClientGone
        events, self._events = self._events, []
        if len(events) == 1:
            return events[0]
        tokens = tuple(id for event in events for id in event.tokens)
        return replace(events[-1], tokens=tokens, cached_tokens=max(event.cached_tokens for event in events))

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)


class Streams:
    """The mailboxes of all requests that are being answered."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._mailboxes: dict[str, Mailbox] = {}

    def deliver(self, events: Sequence[Event]) -> None:
        """Take all events of a window; called from the engine's thread."""
        self._loop.call_soon_threadsafe(self._sort, events)

    def open(self, request_id: str) -> Mailbox:
        """A mailbox for `request_id`, before the request is submitted."""
        mailbox = self._mailboxes[request_id] = Mailbox(self._loop)
        return mailbox

    def close(self, request_id: str) -> None:
        """Forget the mailbox; events that still come are dropped."""
        self._mailboxes.pop(request_id, None)

    def __len__(self) -> int:
        """Requests that are being answered."""
        return len(self._mailboxes)

    def _sort(self, events: Sequence[Event]) -> None:
        for event in events:
            mailbox = self._mailboxes.get(event.request_id)
            if mailbox is not None:
                mailbox.put(event)
