"""A mailbox hands out all that came, in order: one event for a request."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from onechip.engine.types import Event, Logprobs
from onechip.server.streams import ClientGone, Mailbox, Streams, by_token


@st.composite
def sent(draw: st.DrawFn) -> list[Event]:
    """Events of three requests, of which one asked for log-probabilities, in any order; some of them end."""
    events = []
    for name in ("a", "b", "told"):
        windows = draw(st.lists(st.lists(st.integers(0, 9), max_size=4), max_size=4))
        for window in windows:
            told = tuple(Logprobs(-id, 1) for id in window) if name == "told" else ()
            events.append(Event(name, tuple(window), None, draw(st.integers(0, 3)), None, told))
        if draw(st.booleans()):
            finish = draw(st.sampled_from(["stop", "length", "error", "cancelled"]))
            tokens = () if finish in ("error", "cancelled") else (7,)
            told = tuple(Logprobs(-id, 1) for id in tokens) if name == "told" else ()
            events.append(
                Event(name, tokens, finish, error="no" if finish == "error" else None, logprobs=told)
            )
    order = draw(st.permutations(range(len(events))))
    names = iter([events[place].request_id for place in order])
    queues = {
        name: iter([event for event in events if event.request_id == name]) for name in ("a", "b", "told")
    }
    return [next(queues[name]) for name in names]


@given(sent())
def test_nothing_is_lost_or_out_of_order(events: list[Event]) -> None:
    async def take() -> list[Event]:
        mailbox = Mailbox(asyncio.get_running_loop())
        for event in events:
            mailbox.put(event)
        return await mailbox.take()

    if not events:
        return
    taken = asyncio.run(take())
    for name in ("a", "b", "told"):
        before = [event for event in events if event.request_id == name]
        after = [event for event in taken if event.request_id == name]
        assert [id for event in after for id in event.tokens] == [
            id for event in before for id in event.tokens
        ]
        assert [told for event in after for told in event.logprobs] == [
            told for event in before for told in event.logprobs
        ]
        assert [event.finish for event in after if event.finish] == [e.finish for e in before if e.finish]
        assert all(event.finish is None for event in after[:-1])
        assert [event.error for event in after if event.error] == [e.error for e in before if e.error]
        most = [max((event.cached_tokens for event in some), default=0) for some in (before, after)]
        assert most[0] == most[1]
        assert len(after) == bool(before)


@given(sent())
def test_parts_of_one_token_join_to_the_event(events: list[Event]) -> None:
    for event in (event for event in events if event.logprobs):
        parts = by_token(event)
        assert all(len(part.tokens) == len(part.logprobs) == 1 for part in parts)
        assert [part.tokens[0] for part in parts] == list(event.tokens)
        assert [part.logprobs[0] for part in parts] == list(event.logprobs)
        assert all(part.finish is None and part.error is None for part in parts[:-1])
        assert replace(parts[-1], tokens=event.tokens, logprobs=event.logprobs) == event


def test_requests_of_one_client_share_a_mailbox_and_others_have_theirs() -> None:
    async def run() -> None:
        streams = Streams(asyncio.get_running_loop())
        shared, own = streams.mailbox(), streams.mailbox()
        for name, mailbox in (("a", shared), ("b", shared), ("c", own)):
            streams.open(name, mailbox)
        assert len(streams) == 3
        streams.deliver([Event(name, (1,)) for name in ("a", "b", "c", "unknown")])
        assert [event.request_id for event in await shared.take()] == ["a", "b"]
        assert [event.request_id for event in await own.take()] == ["c"]
        streams.close("b")
        streams.deliver([Event("a", (2,)), Event("b", (2,))])
        assert [event.request_id for event in await shared.take()] == ["a"]
        shared.abandon()
        with pytest.raises(ClientGone):
            await shared.take()

    asyncio.run(run())
