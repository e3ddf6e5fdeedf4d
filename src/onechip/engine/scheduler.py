"""Who runs next: (state) -> plan of one turn, and (state, what came back) -> new state and events. Pure: no
JAX, no clock.

One turn is some prompt chunks, up to a budget of tokens, then one window of decode steps for every request
whose prompt is in but for its last token, which the window's first step runs. So a long prompt never holds up
running requests by more than the budget, and a running request never holds up a new one by more than a
window. Requests start in the order in which they came. While a steered request runs (types.Request), a turn
has one step.

A turn is planned before the results of the turn before it are read. A request that meets its stop token is
therefore run for up to one window too many; those tokens are thrown away. An end by length is known
beforehand.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from onechip.engine.types import NO_TOKEN, Event, FinishReason, Logprobs, Request

NOT_FINITE = "the model's logits are not finite numbers"


@dataclass(frozen=True, slots=True)
class Limits:
    """What the compiled programs allow.

    Attributes:
        row_buckets: ascending; a decode window runs the first rows of the smallest bucket that covers its
            slots.
        chunk_buckets: ascending; a prompt chunk is padded to the smallest bucket that holds it.
        shared_chunks: a chunk may hold parts of several prompts.
        window: decode steps of one program.
        prefill_budget: padded prompt tokens of a turn for each of its steps; at least one chunk runs even if
            it is larger.
    """

    row_buckets: tuple[int, ...]
    chunk_buckets: tuple[int, ...]
    shared_chunks: bool
    window: int
    prefill_budget: int

    @property
    def slots(self) -> int:
        return self.row_buckets[-1]


@dataclass(frozen=True, slots=True)
class Running:
    """A request that holds a slot.

    Attributes:
        order: how many requests got a slot before it.
        prefilled: prompt tokens sent to the device, all but the last at the most.
        joined: the last one was sent too.
        scheduled: output tokens asked of the device, read back or not.
        emitted: output tokens read back.
        stops: token ids that end it.
    """

    request: Request
    stops: frozenset[int]
    order: int
    prefilled: int = 0
    joined: bool = False
    scheduled: int = 0
    emitted: int = 0

    @property
    def left(self) -> int:
        """Prompt tokens that must be in the cache before the last one is run."""
        return len(self.request.prompt) - 1 - self.prefilled

    @property
    def wants_tokens(self) -> bool:
        return self.joined and self.scheduled < self.request.sampling.max_tokens


@dataclass(frozen=True, slots=True)
class Waiting:
    request: Request
    stops: frozenset[int]


@dataclass(frozen=True, slots=True)
class State:
    """Everything the scheduler knows. slots[i] is who holds slot i; `admitted` counts who ever got one."""

    limits: Limits
    waiting: tuple[Waiting, ...]
    slots: tuple[Running | None, ...]
    admitted: int = 0

    @property
    def running(self) -> int:
        return sum(slot is not None for slot in self.slots)

    @property
    def idle(self) -> bool:
        return not self.waiting and not self.running


@dataclass(frozen=True, slots=True)
class PrefillPart:
    """Tokens start..start+valid-1 of a request's prompt."""

    slot: int
    request: Request
    start: int
    valid: int


@dataclass(frozen=True, slots=True)
class PrefillChunk:
    """Parts of prompts that are run together, padded to `bucket` rows."""

    parts: tuple[PrefillPart, ...]
    bucket: int

    @property
    def valid(self) -> int:
        return sum(part.valid for part in self.parts)


@dataclass(frozen=True, slots=True)
class DecodeWindow:
    """`steps` tokens for each (slot, request id) of `rows`; the program runs the first `bucket` slots, or all
    of them, one step, if it is steered.
    """

    rows: tuple[tuple[int, str], ...]
    bucket: int
    steps: int
    steered: bool = False


@dataclass(frozen=True, slots=True)
class Turn:
    """What to send to the device, in this order; `joins` are (slot, request) whose prompts are in now."""

    prefills: tuple[PrefillChunk, ...]
    joins: tuple[tuple[int, Request], ...]
    decode: DecodeWindow | None

    @property
    def empty(self) -> bool:
        return not self.prefills and self.decode is None


@dataclass(frozen=True, slots=True)
class Result:
    """Tokens that came back for one slot, for the request that held it when they were asked for; `logprobs`
    has one entry for each, or none at all.
    """

    slot: int
    request_id: str
    tokens: tuple[int, ...]
    logprobs: tuple[Logprobs, ...] = ()


def initial(limits: Limits) -> State:
    """Nobody waits, nobody runs."""
    return State(limits, (), (None,) * limits.slots)


def submit(state: State, request: Request, stops: frozenset[int]) -> State:
    """Put a request at the end of the queue."""
    return replace(state, waiting=(*state.waiting, Waiting(request, stops)))


def cancel(state: State, request_id: str) -> tuple[State, list[Event]]:
    """End a request wherever it is; its slot is free at once. Unknown ids (it ended meanwhile) change
    nothing.
    """
    return end(state, Event(request_id, finish="cancelled"))


def end(state: State, event: Event) -> tuple[State, list[Event]]:
    """End a request with this event, its last; see `cancel`."""
    request_id = event.request_id
    waiting = tuple(entry for entry in state.waiting if entry.request.id != request_id)
    slots = tuple(None if slot and slot.request.id == request_id else slot for slot in state.slots)
    if waiting == state.waiting and slots == state.slots:
        return state, []
    return replace(state, waiting=waiting, slots=slots), [event]


def _admit(state: State) -> State:
    """Give free slots, lowest first, to those who have waited longest."""
    free = [index for index, slot in enumerate(state.slots) if slot is None][: len(state.waiting)]
    if not free:
        return state
    slots = list(state.slots)
    for count, index in enumerate(free):
        entry = state.waiting[count]
        slots[index] = Running(entry.request, entry.stops, state.admitted + count)
    waiting, admitted = state.waiting[len(free) :], state.admitted + len(free)
    return replace(state, waiting=waiting, slots=tuple(slots), admitted=admitted)


def _bucket(buckets: tuple[int, ...], size: int) -> int:
    return next((bucket for bucket in buckets if bucket >= size), buckets[-1])


def _next_chunk(limits: Limits, slots: list[Running | None]) -> PrefillChunk | None:
    """What comes first of the prompts that are not in, first come first; None if all are."""
    room, parts = limits.chunk_buckets[-1], list[PrefillPart]()
    pending = [(slot.order, index) for index, slot in enumerate(slots) if slot and slot.left]
    for _, index in sorted(pending):
        running = slots[index]
        if running is None or not room or (parts and not limits.shared_chunks):
            break
        parts.append(PrefillPart(index, running.request, running.prefilled, min(running.left, room)))
        room -= parts[-1].valid
    if not parts:
        return None
    return PrefillChunk(tuple(parts), _bucket(limits.chunk_buckets, limits.chunk_buckets[-1] - room))


def _plan_prefills(limits: Limits, slots: list[Running | None], steps: int) -> tuple[PrefillChunk, ...]:
    """Chunks within the budget of a turn of `steps`; what is sent is noted in `slots`."""
    chunks: list[PrefillChunk] = []
    budget = limits.prefill_budget * steps
    while (chunk := _next_chunk(limits, slots)) is not None:
        if chunks and chunk.bucket > budget:
            break
        budget -= chunk.bucket
        chunks.append(chunk)
        for part in chunk.parts:
            running = slots[part.slot]
            assert running is not None
            slots[part.slot] = replace(running, prefilled=part.start + part.valid)
    return tuple(chunks)


def _plan_joins(slots: list[Running | None]) -> tuple[tuple[int, Request], ...]:
    """Those whose prompts are in but for the last token; noted in `slots`."""
    joins: list[tuple[int, Request]] = []
    for index, running in enumerate(slots):
        if running is not None and not running.joined and not running.left:
            slots[index] = replace(running, joined=True)
            joins.append((index, running.request))
    return tuple(joins)


def plan(state: State) -> tuple[State, Turn]:
    """The next turn, and the state in which it has been sent."""
    state = _admit(state)
    slots = list(state.slots)
    prefills = _plan_prefills(state.limits, slots, 1 if _steered(slots) else state.limits.window)
    joins = _plan_joins(slots)
    ready = [(index, slot) for index, slot in enumerate(slots) if slot and slot.wants_tokens]
    if not ready:
        return replace(state, slots=tuple(slots)), Turn(prefills, joins, None)
    steered = _steered(slots)
    steps = 1 if steered else state.limits.window
    for index, slot in ready:
        slots[index] = replace(slot, scheduled=slot.scheduled + steps)
    rows = tuple((index, slot.request.id) for index, slot in ready)
    bucket = _bucket(state.limits.row_buckets, rows[-1][0] + 1)
    window = DecodeWindow(rows, bucket, steps, steered)
    return replace(state, slots=tuple(slots)), Turn(prefills, joins, window)


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
    for result in results:
        running = slots[result.slot]
        if running is None or running.request.id != result.request_id:
            continue
        tokens, finish = _cut(running, result.tokens)
        error = NOT_FINITE if finish == "error" else None
        logprobs = result.logprobs[: len(tokens)]
        events.append(Event(result.request_id, tokens, finish, error=error, logprobs=logprobs))
        slots[result.slot] = None if finish else replace(running, emitted=running.emitted + len(tokens))
    return replace(state, slots=tuple(slots)), events
