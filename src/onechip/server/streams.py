"""Events from the engine's thread -> the mailbox of the client that waits for them, on the loop.

One hand-over a window: the engine's thread wakes the loop once for all events of a window.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import replace

from starlette.types import Receive

from onechip.engine.types import Event


class ClientGone(Exception):
    """The client closed its connection before the answer was complete."""


async def disconnected(receive: Receive) -> None:
    """Wait until the client of an HTTP request, whose body has been received, goes away."""
    while (await receive())["type"] != "http.disconnect":
        pass


class Mailbox:
    """Events of one client's requests that its coroutine has not taken yet. Lives on the loop's thread."""

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

    async def take(self) -> list[Event]:
        """All that has come, at least one event.

        What came of one request meanwhile is one event, so a client that reads slowly gets larger ones.

        Raises:
            ClientGone: nobody wants it any more.
        """
        while not self._events and not self._abandoned:
            self._waiter = self._loop.create_future()
            await self._waiter
        if self._abandoned:
            raise ClientGone
        events, self._events = self._events, []
        return events if len(events) == 1 else _joined(events)

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)


def _joined(events: Sequence[Event]) -> list[Event]:
    """One event for each request."""
    joined: dict[str, Event] = {}
    for event in events:
        before = joined.get(event.request_id)
        if before is not None:
            event = replace(
                event,
                tokens=before.tokens + event.tokens,
                cached_tokens=max(before.cached_tokens, event.cached_tokens),
                logprobs=before.logprobs + event.logprobs,
            )
        joined[event.request_id] = event
    return list(joined.values())


def by_token(event: Event) -> list[Event]:
    """`event`, whose tokens have log-probabilities, in parts of one token; the last one has its end."""
    parts = [
        replace(event, tokens=(token,), finish=None, error=None, logprobs=(told,))
        for token, told in zip(event.tokens, event.logprobs, strict=True)
    ]
    parts[-1] = replace(parts[-1], finish=event.finish, error=event.error)
    return parts


class Streams:
    """The mailboxes of all requests that are being answered."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._mailboxes: dict[str, Mailbox] = {}

    def deliver(self, events: Sequence[Event]) -> None:
        """Take all events of a window; called from the engine's thread."""
        self._loop.call_soon_threadsafe(self._sort, events)

    def mailbox(self) -> Mailbox:
        """A new one, which no events come to yet."""
        return Mailbox(self._loop)

    def open(self, request_id: str, mailbox: Mailbox) -> None:
        """What comes of `request_id`, which is not submitted yet, goes to `mailbox`."""
        self._mailboxes[request_id] = mailbox

    def close(self, request_id: str) -> None:
        """Events of `request_id` that still come are dropped."""
        self._mailboxes.pop(request_id, None)

    def __len__(self) -> int:
        """Requests that are being answered."""
        return len(self._mailboxes)

    def _sort(self, events: Sequence[Event]) -> None:
        for event in events:
            mailbox = self._mailboxes.get(event.request_id)
            if mailbox is not None:
                mailbox.put(event)
