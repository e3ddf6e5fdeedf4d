"""Who runs next: (state) -> plan of one turn, and (state, what came back) -> new state and events. Pure: no
JAX, no clock.

One turn is some prompt chunks, up to a budget of tokens, then one window of decode steps for every request
whose prompt is in but for its last token, which the window's first step runs. So a long prompt never holds up
running requests by more than the budget, and a running request never holds up a new one by more than a
window. Requests start in the order in which they came. While a steered request runs (types.Request), a turn
has one step. What stands in the cache of a prompt already is not computed again (prefixes.py). A prompt that
is scored has chunks of its own, which bring results, and ends with the last; other prompts go before it.

A turn is planned before the results of the turn before it are read. A request that meets its stop token is
therefore in up to one window too many; the device leaves it alone there. An end by length is known before.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from onechip.engine.prefixes import NOTHING, Content, Prefixes, Tokens
from onechip.engine.prompts import Prompts
from onechip.engine.turns import DecodeWindow, Limits, Result, Running, State, Turn, Waiting
from onechip.engine.types import NO_TOKEN, Event, FinishReason, Request

NOT_FINITE = "the model's logits are not finite numbers"


def initial(limits: Limits) -> State:
    """Nobody waits, nobody runs."""
    prefixes = None if limits.reuse is None else Prefixes.empty(limits.reuse, limits.slots)
    return State(limits, (), (None,) * limits.slots, prefixes=prefixes)


def submit(state: State, request: Request, stops: frozenset[int]) -> State:
    """Put a request at the end of the queue."""
    entry = Waiting(request, stops, Tokens.of(request.prompt))
    return replace(state, waiting=(*state.waiting, entry))


def cancel(state: State, request_id: str) -> tuple[State, list[Event]]:
    """End a request wherever it is; its slot is free at once. Unknown ids (it ended meanwhile) change
    nothing.
    """
    return end(state, Event(request_id, finish="cancelled"))


def end(state: State, event: Event) -> tuple[State, list[Event]]:
    """End a request with this event, its last; see `cancel`."""
    request_id = event.request_id
    waiting = tuple(entry for entry in state.waiting if entry.request.id != request_id)
    held = {i: slot for i, slot in enumerate(state.slots) if slot and slot.request.id == request_id}
    if len(waiting) == len(state.waiting) and not held:
        return state, []
    slots = tuple(None if index in held else slot for index, slot in enumerate(state.slots))
    prefixes = state.prefixes and state.prefixes.holding(
        {index: running.content for index, running in held.items() if running.begun}
    )
    state = replace(state, waiting=waiting, slots=slots, prefixes=prefixes)
    return state, [event]


def _admit(state: State) -> State:
    """Give free slots, lowest first, to those who have waited longest."""
    free = [index for index, slot in enumerate(state.slots) if slot is None]
    entries, waiting = _next_in_line(state, len(free))
    if not entries:
        return state
    slots, free = list(state.slots), free[: len(entries)]
    if state.prefixes is not None:
        free = state.prefixes.assign([entry.tokens for entry in entries], free)
    for order, (index, entry) in enumerate(zip(free, entries, strict=True), start=state.admitted):
        slots[index] = Running(entry.request, entry.stops, order, entry.tokens)
    return replace(state, waiting=waiting, slots=tuple(slots), admitted=state.admitted + len(free))


def _next_in_line(state: State, free: int) -> tuple[list[Waiting], tuple[Waiting, ...]]:
    """Who gets one of so many free slots, and who goes on waiting: others pass prompts that are scored when
    those hold as many as they may.
    """
    if not free or not state.waiting:
        return [], state.waiting
    scored = state.limits.scored_slots - sum(bool(slot and slot.request.scored) for slot in state.slots)
    entries: list[Waiting] = []
    passed: list[Waiting] = []
    for place, entry in enumerate(state.waiting):
        if len(entries) == free:
            return entries, (*passed, *state.waiting[place:])
        if entry.request.scored and not scored:
            passed.append(entry)
            continue
        scored -= entry.request.scored
        entries.append(entry)
    return entries, tuple(passed)


def _plan_joins(slots: list[Running | None]) -> tuple[tuple[int, Request], ...]:
    """Those whose prompts are in but for the last token; noted in `slots`."""
    joins: list[tuple[int, Request]] = []
    for index, running in enumerate(slots):
        if running is not None and not (running.joined or running.left or running.request.scored):
            slots[index] = replace(running, joined=True)
            joins.append((index, running.request))
    return tuple(joins)


def plan(state: State) -> tuple[State, Turn]:
    """The next turn, and the state in which it has been sent."""
    state = _admit(state)
    prompts = Prompts(state)
    steps = 1 if _steered(state.slots) else state.limits.window
    prefills, slots = prompts.chunks(state.limits.prefill_budget * steps), prompts.slots
    joins = _plan_joins(slots)
    state = replace(state, prefixes=prompts.prefixes)
    ready = [(index, slot) for index, slot in enumerate(slots) if slot and slot.wants_tokens]
    if not ready:
        return replace(state, slots=tuple(slots)), Turn(prefills, joins, None, prompts.copies)
    steered = _steered(slots)
    steps = 1 if steered else state.limits.window
    for index, slot in ready:
        slots[index] = replace(slot, scheduled=slot.scheduled + steps)
    rows = tuple((index, slot.request.id) for index, slot in ready)
    bucket = state.limits.row_bucket(rows[-1][0] + 1)
    window = DecodeWindow(rows, bucket, steps, steered)
    return replace(state, slots=tuple(slots)), Turn(prefills, joins, window, prompts.copies)


def _steered(slots: Sequence[Running | None]) -> bool:
    return any(slot and slot.wants_tokens and slot.request.steered for slot in slots)


def _cut(running: Running, tokens: tuple[int, ...]) -> tuple[tuple[int, ...], FinishReason | None]:
    """The tokens up to and including the one that ends the request, and why it ends."""
    left = running.request.sampling.max_tokens - running.emitted
    for count, token in enumerate(tokens[:left], start=1):
        if token == NO_TOKEN:
            return tokens[: count - 1], "error"
        if token in running.stops:
            return tokens[:count], "stop"
    return tokens[:left], "length" if len(tokens) >= left else None


def apply(state: State, results: Sequence[Result]) -> tuple[State, list[Event]]:
    """Take in what came back. Results for a request that no longer holds its slot are thrown away."""
    slots = list(state.slots)
    events: list[Event] = []
    left: dict[int, Content] = {}
    for result in results:
        running = slots[result.slot]
        if running is None or running.request.id != result.request_id:
            continue
        tokens, finish = _cut(running, result.tokens)
        error = NOT_FINITE if finish == "error" else None
        logprobs = result.logprobs[: len(tokens)]
        cached = 0 if running.answer else running.cached
        events.append(Event(result.request_id, tokens, finish, cached, error, logprobs))
        running = replace(running, answer=running.answer + tokens)
        slots[result.slot] = None if finish else running
        if finish:
            left[result.slot] = NOTHING if error else running.ended_content
    prefixes = state.prefixes and state.prefixes.holding(left)
    return replace(state, slots=tuple(slots), prefixes=prefixes), events
