"""The scheduler against every order in which requests can come, go and end (hypothesis), without JAX."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from onechip.engine import scheduler
from onechip.engine.turns import DecodeWindow, Limits, PrefillChunk, PrefillPart, Result, State, Turn
from onechip.engine.types import NO_TOKEN, Event, Request, SamplingParams

STOP = 7
LIMITS = Limits((2, 4, 6), chunk_buckets=(4, 16), shared_chunks=False, window=3, prefill_budget=11)


def request(name: str, prompt: int = 5, max_tokens: int = 4) -> Request:
    return Request(name, tuple(range(100, 100 + prompt)), SamplingParams(max_tokens=max_tokens))


def scored(name: str, prompt: int) -> Request:
    return replace(request(name, prompt, prompt - 1), scored=True)


def submitted(*requests: Request, limits: Limits = LIMITS) -> State:
    state = scheduler.initial(limits)
    for entry in requests:
        state = scheduler.submit(state, entry, frozenset({STOP}))
    return state


def results_of(work: DecodeWindow | PrefillChunk, token: int) -> list[Result]:
    if isinstance(work, PrefillChunk):
        [part] = work.parts
        tokens = part.request.prompt[part.start + 1 : part.start + 1 + part.valid]
        return [Result(part.slot, part.request.id, tokens)]
    return [Result(slot, name, (token,) * work.steps) for slot, name in work.rows]


def test_one_request_from_prompt_to_length() -> None:
    entry = request("a", prompt=5, max_tokens=4)
    state, turn = scheduler.plan(submitted(entry))
    assert turn.prefills == (PrefillChunk((PrefillPart(0, entry, 0, 4),), bucket=4),)
    assert turn.joins == ((0, entry),), "the last token of the prompt goes with the first decode step"
    assert turn.decode == DecodeWindow(rows=((0, "a"),), bucket=2, steps=3)
    state, turn = scheduler.plan(state)
    assert (turn.prefills, turn.joins) == ((), ())
    assert turn.decode is not None
    state, events = scheduler.apply(state, [Result(0, "a", (1, 2, 3))])
    assert events == [Event("a", (1, 2, 3))]
    state, turn = scheduler.plan(state)
    assert turn.empty, "four tokens were asked for, and six have been sent for"
    state, events = scheduler.apply(state, [Result(0, "a", (4, 5, 6))])
    assert events == [Event("a", (4,), "length")]
    assert state.idle


def test_a_prompt_of_one_token_needs_no_chunk() -> None:
    entry = request("a", prompt=1)
    _, turn = scheduler.plan(submitted(entry))
    assert (turn.prefills, turn.joins) == ((), ((0, entry),))
    assert turn.decode is not None


def parts_of(turn: Turn) -> list[tuple[str, int, int]]:
    return [(part.request.id, part.start, part.valid) for chunk in turn.prefills for part in chunk.parts]


def test_a_prompt_that_is_scored_ends_with_its_chunks() -> None:
    entry, other = scored("a", 20), scored("b", 3)
    state, turn = scheduler.plan(submitted(entry, other, limits=replace(LIMITS, shared_chunks=True)))
    assert parts_of(turn) == [("a", 0, 16), ("a", 16, 3)], "never in a chunk with others"
    assert [chunk.bucket for chunk in turn.prefills] == [16, 16], "which has one size"
    assert (turn.joins, turn.decode) == ((), None)
    for chunk, finish in zip(turn.prefills, (None, "length"), strict=True):
        state, [event] = scheduler.apply(state, results_of(chunk, 0))
        assert (event.request_id, event.finish) == ("a", finish)
    _, turn = scheduler.plan(state)
    assert parts_of(turn) == [("b", 0, 2)]


def test_prompts_that_are_scored_hold_nobody_up() -> None:
    """They hold a part of the slots, others pass them, and their chunks are short while others decode."""
    crowd = [scored(f"s{n}", 60) for n in range(30)]
    state, turn = scheduler.plan(submitted(*crowd, limits=replace(LIMITS, shared_chunks=True)))
    assert [name for name, _, _ in parts_of(turn)] == ["s0", "s0"]
    assert (state.running, len(state.waiting)) == (LIMITS.scored_slots, 30 - LIMITS.scored_slots)
    state = scheduler.submit(state, request("chat", 10, 50), frozenset())
    state, turn = scheduler.plan(state)
    assert parts_of(turn)[0] == ("chat", 0, 9)
    assert turn.decode is not None
    state, turn = scheduler.plan(state)
    assert set(parts_of(turn)) >= {("s0", 48, 4)}
    assert all(valid <= LIMITS.scored_beside for _, _, valid in parts_of(turn))


@pytest.mark.parametrize("shared", [True, False])
def test_prompts_share_chunks_where_programs_can(shared: bool) -> None:
    """7 + 4 + 1 + 20 tokens besides the last ones, 16 at once, 33 in a turn."""
    limits = replace(LIMITS, shared_chunks=shared)
    entries = [request(f"r{n}", prompt + 1, 90) for n, prompt in enumerate((7, 4, 1, 20))]
    _, turn = scheduler.plan(submitted(*entries, limits=limits))
    sizes = [[(part.request.id, part.start, part.valid) for part in chunk.parts] for chunk in turn.prefills]
    if shared:
        assert sizes == [[("r0", 0, 7), ("r1", 0, 4), ("r2", 0, 1), ("r3", 0, 4)], [("r3", 4, 16)]]
        assert len(turn.joins) == 4
    else:
        assert sizes == [[("r0", 0, 7)], [("r1", 0, 4)], [("r2", 0, 1)]]
        assert [name for name, _ in turn.joins] == [0, 1, 2]
    assert sum(chunk.bucket for chunk in turn.prefills) <= LIMITS.prefill_budget * LIMITS.window


def test_stop_token_ends_inside_a_window_and_the_late_window_is_thrown_away() -> None:
    state, _ = scheduler.plan(submitted(request("a", max_tokens=50)))
    state, _ = scheduler.apply(state, [Result(0, "a", (1,))])
    state, _late = scheduler.plan(state)
    state, events = scheduler.apply(state, [Result(0, "a", (2, STOP, 9))])
    assert events == [Event("a", (2, STOP), "stop")]
    state = scheduler.submit(state, request("b"), frozenset({STOP}))
    state, turn = scheduler.plan(state)
    assert turn.joins[0][0] == 0, "the slot is free at once"
    state, events = scheduler.apply(state, [Result(0, "a", (5, 5, 5))])
    assert events == []


def test_logits_that_are_no_numbers_end_one_request_with_an_error() -> None:
    state, _ = scheduler.plan(submitted(request("a", max_tokens=50), request("b", max_tokens=50)))
    state, events = scheduler.apply(state, [Result(0, "a", (1, NO_TOKEN, 3)), Result(1, "b", (1,))])
    assert events == [Event("a", (1,), "error", error=scheduler.NOT_FINITE), Event("b", (1,))]
    assert state.slots[0] is None


def test_long_prompt_is_cut_into_chunks_within_the_budget_while_others_run() -> None:
    state, _ = scheduler.plan(submitted(request("short", prompt=3, max_tokens=40)))
    state = scheduler.submit(state, request("long", prompt=70), frozenset())
    starts, joined = [], []
    for _ in range(3):
        state, turn = scheduler.plan(state)
        assert sum(chunk.bucket for chunk in turn.prefills) <= LIMITS.prefill_budget * LIMITS.window
        assert turn.decode is not None
        assert (0, "short") in turn.decode.rows
        starts += [(part.start, part.valid) for chunk in turn.prefills for part in chunk.parts]
        joined += [entry.id for _, entry in turn.joins]
    assert starts == [(0, 16), (16, 16), (32, 16), (48, 16), (64, 5)]
    assert joined == ["long"]


def test_row_bucket_covers_the_highest_slot() -> None:
    state, turn = scheduler.plan(submitted(*(request(f"r{i}", prompt=2, max_tokens=90) for i in range(3))))
    assert turn.decode is not None
    assert turn.decode.bucket == 4
    state, _ = scheduler.cancel(state, "r0")
    state, turn = scheduler.plan(state)
    assert turn.decode is not None
    assert (turn.decode.rows, turn.decode.bucket) == (((1, "r1"), (2, "r2")), 4)


def test_cancel_waiting_running_and_unknown() -> None:
    state, _ = scheduler.plan(submitted(*(request(f"r{i}") for i in range(8))))
    for name in ("r7", "r2"):
        state, events = scheduler.cancel(state, name)
        assert events == [Event(name, finish="cancelled")]
        assert scheduler.cancel(state, name) == (state, [])


@dataclass
class World:
    """The engine's loop with a device that answers by script, and what every request must have seen."""

    state: State
    stop_at: dict[str, int]
    in_flight: list[DecodeWindow | PrefillChunk] = field(default_factory=list)
    emitted: dict[str, int] = field(default_factory=dict)
    finished: dict[str, str] = field(default_factory=dict)
    produced: dict[str, int] = field(default_factory=dict)

    def hear(self, events: list[Event]) -> None:
        for event in events:
            assert event.request_id not in self.finished, "nothing follows a finish"
            self.emitted[event.request_id] = self.emitted.get(event.request_id, 0) + len(event.tokens)
            if event.finish:
                self.finished[event.request_id] = event.finish

    def read(self, work: DecodeWindow | PrefillChunk) -> None:
        results = []
        for result in results_of(work, token=1):
            done = self.produced.get(result.request_id, 0)
            self.produced[result.request_id] = done + len(result.tokens)
            stop_at = self.stop_at.get(result.request_id, 10**9)
            tokens = tuple(
                STOP if done + i + 1 == stop_at else token for i, token in enumerate(result.tokens)
            )
            results.append(Result(result.slot, result.request_id, tokens))
        self.state, events = scheduler.apply(self.state, results)
        self.hear(events)

    def turn(self) -> Turn:
        self.state, turn = scheduler.plan(self.state)
        held = [slot.request.id for slot in self.state.slots if slot]
        assert len(held) == len(set(held)), "a request holds one slot"
        if turn.decode:
            assert turn.decode.bucket > max(slot for slot, _ in turn.decode.rows)
            rows = [slot for slot, _ in turn.decode.rows]
            assert len(rows) == len(set(rows))
        assert (
            len(turn.prefills) == 1
            or sum(c.bucket for c in turn.prefills) <= LIMITS.prefill_budget * LIMITS.window
        )
        for chunk in turn.prefills:
            assert 0 < chunk.valid <= chunk.bucket
            assert len(chunk.parts) == 1 or self.state.limits.shared_chunks
            assert len(chunk.parts) == 1 or not any(part.request.scored for part in chunk.parts)
        self.in_flight += [chunk for chunk in turn.prefills if chunk.scored]
        self.in_flight += [turn.decode] if turn.decode else []
        while len(self.in_flight) > (1 if turn.decode else 0):
            self.read(self.in_flight.pop(0))
        return turn


@st.composite
def arrivals(draw: st.DrawFn) -> list[tuple[int, Request, int, int | None]]:
    """Rows of (turn at which it comes, request, output token that is a stop, turns until it is cancelled)."""
    rows = []
    for index in range(draw(st.integers(1, 20))):
        entry = request(f"r{index}", draw(st.integers(1, 60)), draw(st.integers(1, 20)))
        if len(entry.prompt) > 1 and draw(st.booleans()):
            entry = scored(entry.id, len(entry.prompt))
        cancelled = draw(st.one_of(st.none(), st.integers(0, 6)))
        rows.append((draw(st.integers(0, 8)), entry, draw(st.integers(1, 30)), cancelled))
    return rows


@settings(max_examples=200, deadline=None)
@given(arrivals(), st.booleans())
def test_every_request_ends_once_with_the_right_tokens(
    plan: list[tuple[int, Request, int, int | None]], shared: bool
) -> None:
    limits = replace(LIMITS, shared_chunks=shared)
    world = World(scheduler.initial(limits), stop_at={entry.id: stop for _, entry, stop, _ in plan})
    cancelled: set[str] = set()
    for now in range(400):
        for at, entry, _, cancel in plan:
            if at == now:
                world.state = scheduler.submit(world.state, entry, frozenset({STOP}))
            if cancel is not None and now == at + cancel:
                world.state, events = scheduler.cancel(world.state, entry.id)
                cancelled |= {event.request_id for event in events}
                world.hear(events)
        world.turn()
        if now > 10 and world.state.idle and not world.in_flight:
            break
    assert set(world.finished) == {entry.id for _, entry, _, _ in plan}
    for _, entry, stop, _ in plan:
        limit = entry.sampling.max_tokens
        if entry.id in cancelled:
            assert world.finished[entry.id] == "cancelled"
            assert world.emitted.get(entry.id, 0) <= min(stop, limit)
        else:
            assert world.emitted[entry.id] == min(stop, limit)
            assert world.finished[entry.id] == ("stop" if stop <= limit else "length")


@settings(max_examples=50, deadline=None)
@given(st.lists(st.integers(1, 60), min_size=1, max_size=25), st.booleans())
def test_prompts_are_sent_in_the_order_in_which_requests_came(prompts: list[int], shared: bool) -> None:
    """All tokens of each, once, in order."""
    world = World(scheduler.initial(replace(LIMITS, shared_chunks=shared)), stop_at={})
    for index, prompt in enumerate(prompts):
        world.state = scheduler.submit(world.state, request(f"{index}", prompt), frozenset())
    started: list[int] = []
    sent: dict[int, int] = {}
    while not world.state.idle or world.in_flight:
        turn = world.turn()
        parts = [part for chunk in turn.prefills for part in chunk.parts]
        started += [int(part.request.id) for part in parts if part.start == 0]
        for part in parts:
            name = int(part.request.id)
            assert part.start == sent.get(name, 0)
            sent[name] = part.start + part.valid
    assert started == sorted(started)
    assert sent == {name: prompt - 1 for name, prompt in enumerate(prompts) if prompt > 1}


@pytest.mark.parametrize("running", [1, 3, 6])
def test_running_requests_are_in_every_turn(running: int) -> None:
    state, _ = scheduler.plan(submitted(*(request(f"r{i}", 2, 500) for i in range(running))))
    for index in range(10):
        state = scheduler.submit(state, request(f"new{index}", 60), frozenset())
        state, turn = scheduler.plan(state)
        assert turn.decode is not None
        assert {name for _, name in turn.decode.rows} >= {f"r{i}" for i in range(running)}
