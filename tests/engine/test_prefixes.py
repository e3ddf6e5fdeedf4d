"""What the scheduler takes from the cache, against a cache of texts: each row that is run checks that all it
reads was computed from its own text (hypothesis), without JAX.
"""

from __future__ import annotations

import itertools
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from onechip.engine import prefixes, scheduler
from onechip.engine.prefixes import Copies, Reuse
from onechip.engine.turns import DecodeWindow, Limits, PrefillChunk, Result, State, Turn
from onechip.engine.types import Event, Request, SamplingParams

STOP = 7
WINDOW = 8
GONE = -1
LIMITS = Limits(
    (2, 4),
    chunk_buckets=(4, 16),
    shared_chunks=True,
    window=3,
    prefill_budget=32,
    reuse=Reuse(WINDOW, kept=3, worth=2),
)


def texts(tokens: Sequence[int]) -> list[int]:
    """For each position a number that names the text up to it."""
    return list(itertools.accumulate(tokens, lambda text, token: hash((text, token)), initial=0))[1:]


@dataclass
class Slot:
    """What the device knows of one: its text, and whether its answer goes on."""

    text: list[int] = field(default_factory=list)
    request: Request | None = None
    going: bool = False


class Cache:
    """Rings [rows][window] of (position, text) and spans [slots][position] of texts."""

    def __init__(self, limits: Limits) -> None:
        assert limits.reuse is not None
        self.window = limits.reuse.window
        self.rings = [[(GONE, 0)] * self.window for _ in range(limits.slots + limits.reuse.kept)]
        self.spans: list[dict[int, int]] = [{} for _ in range(limits.slots)]
        self.slots = [Slot() for _ in range(limits.slots)]

    def copy(self, copies: Copies) -> None:
        for source, target in (*copies.keeps, *copies.rings):
            self.rings[target] = list(self.rings[source])
        for source, target, tokens in copies.spans:
            self.spans[target] |= {at: self.spans[source][at] for at in range(tokens)}

    def run(self, slot: int, tokens: Sequence[int], first: int) -> None:
        """Run the tokens from position `first` on, which attend to those before them."""
        named, ring, span = texts(tokens), self.rings[slot], self.spans[slot]
        assert all(span.get(before) == named[before] for before in range(first))
        for at in range(first, len(tokens)):
            for before in range(max(0, at - self.window + 1), at if self.window else 0):
                assert ring[before % self.window] == (before, named[before])
            span[at] = named[at]
            if self.window:
                ring[at % self.window] = (at, named[at])

    def prefill(self, chunk: PrefillChunk) -> None:
        self.copy(chunk.copies)
        for part in chunk.parts:
            self.run(part.slot, part.request.prompt[: part.start + part.valid], part.start)

    def join(self, slot: int, request: Request) -> None:
        self.slots[slot] = Slot(list(request.prompt), request, going=True)

    def decode(self, window: DecodeWindow) -> list[Result]:
        return [
            Result(slot, name, tuple(self.step(self.slots[slot], slot) for _ in range(window.steps)))
            for slot, name in window.rows
        ]

    def step(self, held: Slot, slot: int) -> int:
        """One token, which ends the answer as it does on the device."""
        assert held.request is not None
        if held.going:
            self.run(slot, held.text, len(held.text) - 1)
            held.text.append(texts(held.text)[-1] % 9)
            room = held.request.sampling.max_tokens - (len(held.text) - len(held.request.prompt))
            held.going = held.text[-1] != STOP and room > 0
        return held.text[-1]


class World:
    """The engine's loop on such a cache; windows are read one turn late, or at once (`long_turns`)."""

    def __init__(self, limits: Limits) -> None:
        self.long_turns = False
        self.state: State = scheduler.initial(limits)
        self.cache = Cache(limits)
        self.unread: deque[list[Result]] = deque()
        self.answers: dict[str, list[int]] = {}
        self.cached: dict[str, int] = {}
        self.ended: dict[str, str] = {}
        self._names = itertools.count()

    def submit(self, prompt: Sequence[int], max_tokens: int = 12) -> str:
        name = f"r{next(self._names)}"
        self.answers[name] = []
        entry = Request(name, tuple(prompt), SamplingParams(max_tokens=max_tokens))
        self.state = scheduler.submit(self.state, entry, frozenset({STOP}))
        return name

    def cancel(self, name: str) -> None:
        self.state, events = scheduler.cancel(self.state, name)
        self.hear(events)

    def turn(self) -> Turn:
        self.state, turn = scheduler.plan(self.state)
        for chunk in turn.prefills:
            self.cache.prefill(chunk)
        self.cache.copy(turn.copies)
        for slot, request in turn.joins:
            self.cache.join(slot, request)
        if turn.decode:
            self.unread.append(self.cache.decode(turn.decode))
        while len(self.unread) > (1 if turn.decode and not self.long_turns else 0):
            self.state, events = scheduler.apply(self.state, self.unread.popleft())
            self.hear(events)
        return turn

    def hear(self, events: list[Event]) -> None:
        for event in events:
            self.answers[event.request_id] += event.tokens
            self.cached[event.request_id] = max(self.cached.get(event.request_id, 0), event.cached_tokens)
            if event.finish:
                self.ended[event.request_id] = event.finish

    def run(self) -> None:
        while not self.state.idle or self.unread:
            self.turn()

    def ask(self, prompt: Sequence[int], max_tokens: int = 12) -> tuple[list[int], int]:
        """The answer and how many tokens were cached, with nobody else there."""
        name = self.submit(prompt, max_tokens)
        self.run()
        return self.answers[name], self.cached[name]


def answer(prompt: Sequence[int], max_tokens: int) -> list[int]:
    """What a prompt is answered with."""
    text = list(prompt)
    while len(text) - len(prompt) < max_tokens and STOP not in text[len(prompt) :]:
        text.append(texts(text)[-1] % 9)
    return text[len(prompt) :]


@st.composite
def limits(draw: st.DrawFn) -> Limits:
    window = draw(st.sampled_from([0, 5, WINDOW, 30]))
    kept = draw(st.integers(0, 4)) if window else 0
    return replace(LIMITS, shared_chunks=draw(st.booleans()), reuse=Reuse(window, kept, worth=2))


@settings(max_examples=100, deadline=None)
@given(limits(), st.data())
def test_whatever_is_reused_was_computed_from_the_same_text(chosen: Limits, data: st.DataObject) -> None:
    """Prompts go on from earlier texts, or part from them anywhere; requests come in crowds, and are
    cancelled.
    """
    world = World(chosen)
    known = [[100 + n for n in range(20)], list(range(200, 240))]
    asked: dict[str, tuple[list[int], int]] = {}
    for _ in range(data.draw(st.integers(1, 12))):
        for _ in range(data.draw(st.integers(1, 5))):
            text = data.draw(st.sampled_from(known))
            cut = data.draw(st.integers(0, len(text)))
            prompt = [*text[:cut], *data.draw(st.lists(st.integers(0, 3), min_size=1, max_size=9))]
            most = data.draw(st.integers(1, 25))
            asked[world.submit(prompt, most)] = prompt, most
            known += [prompt, prompt + answer(prompt, most)]
        world.long_turns = data.draw(st.booleans())
        for _ in range(data.draw(st.integers(0, 6))):
            world.turn()
        if data.draw(st.booleans()):
            world.cancel(data.draw(st.sampled_from(sorted(asked))))
    world.run()
    for name, (prompt, most) in asked.items():
        assert world.cached[name] < len(prompt)
        whole = answer(prompt, most)
        if world.ended[name] == "cancelled":
            assert world.answers[name] == whole[: len(world.answers[name])]
        else:
            assert world.answers[name] == whole
    assert world.state.prefixes is not None
    assert world.state.prefixes.hits >= sum(world.cached.values())


@pytest.fixture(autouse=True, scope="module")
def short_heads() -> Iterator[None]:
    """So that short texts can share their beginnings."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(prefixes, "HEAD", 2)
        yield


def talkative(first: int, length: int = 21) -> list[int]:
    """A prompt whose answer is long enough to wrap the ring and to end nowhere near a window's end."""
    prompts = ([other, *range(first, first + length - 1)] for other in itertools.count(first))
    return next(prompt for prompt in prompts if len(answer(prompt, 20)) == 20)


def wide(*, kept: int = 3, window: int = WINDOW) -> World:
    return World(replace(LIMITS, reuse=Reuse(window, kept, worth=2)))


SYSTEM = list(range(300, 340))


@pytest.mark.parametrize("length", [5, WINDOW - 1, WINDOW, WINDOW + 1, 5 * WINDOW])
@pytest.mark.parametrize("max_tokens", [1, 3, 11, 30])
def test_a_conversation_goes_on_where_its_answer_ended(length: int, max_tokens: int) -> None:
    """However the answer ended, on whatever step of a window, nothing was written behind it."""
    world = wide(kept=0)
    text = list(range(300, 300 + length))
    for _ in range(5):
        reply, _ = world.ask(text, max_tokens)
        text += reply
        reply, cached = world.ask([*text, 55], max_tokens)
        assert cached == len(text) - 1, "all but the last token, which was never run"
        text += [55, *reply]


def test_a_conversation_without_its_last_answer_goes_on_where_its_prompt_ended() -> None:
    """As one does whose thoughts are dropped."""
    for kept in (0, 3):
        world, prompt = wide(kept=kept), talkative(300)
        world.ask(prompt, 20)
        assert world.ask([*prompt, 60, 61], 20)[1] == (len(prompt) - 1 if kept else 0)


def test_a_text_within_the_window_is_reused_from_anywhere() -> None:
    world = wide(kept=0, window=64)
    world.ask(SYSTEM, 20)
    assert world.ask([*SYSTEM[:17], 60], 5)[1] == 17


def test_a_ring_is_kept_where_a_prompt_parts_from_an_earlier_one() -> None:
    """The first cannot know where; the second looks; the third need not compute it, nor those that follow."""
    world = wide()
    found = [world.ask([*SYSTEM, *range(n, n + 20)], 20)[1] for n in (400, 500, 600, 700)]
    assert found == [0, 0, len(SYSTEM), len(SYSTEM)]


def test_what_was_overwritten_stays_lost_when_the_ring_is_gone_on_with() -> None:
    """The second takes the ring over before position 8, which lost position 0; it is none for the third."""
    world = wide(kept=0)
    text = list(range(300, 309))
    world.ask(text, 1)
    names = [world.submit([*text[:cut], 60], 1) for cut in (8, 3)]
    world.run()
    assert [world.cached[name] for name in names] == [8, 0]


def test_what_was_overwritten_stays_lost_when_nothing_was_run() -> None:
    """The same, but the second is cancelled before its first chunk, for which the turn had no room."""
    world = World(replace(LIMITS, shared_chunks=False, prefill_budget=4, reuse=Reuse(WINDOW, 0, worth=2)))
    text = list(range(300, 309))
    world.ask(text, 1)
    world.submit(range(400, 417), 1)
    name = world.submit([*text[:8], 60, 61], 1)
    world.turn()
    world.cancel(name)
    world.run()
    assert world.ask([*text[:3], 60], 1)[1] == 0


def test_a_crowd_with_one_beginning_computes_it_once() -> None:
    world = wide()
    names = [world.submit([*SYSTEM, n, n + 1, n + 2, *range(50, 60)]) for n in range(4)]
    world.run()
    assert [world.cached[name] for name in names] == [0, 40, 40, 40]


def test_the_same_prompt_many_times_at_once_is_computed_once() -> None:
    world = wide()
    names = [world.submit(SYSTEM) for _ in range(6)]
    world.run()
    assert [world.cached[name] for name in names] == [0, *[len(SYSTEM) - 1] * 5]


def test_conversations_that_take_turns_are_moved_out_of_each_others_way() -> None:
    """One at a time always runs in slot 0, and there are four slots: three to keep, one to move through."""
    world = wide()
    chats = [talkative(100 * n) for n in range(1, 4)]
    for round_ in range(4):
        for chat in chats:
            name = world.submit(chat, 9)
            turn = world.turn()
            assert turn.decode is None or turn.decode.rows == ((0, name),)
            world.run()
            assert world.cached[name] == (len(chat) - 2 if round_ else 0)
            chat += [*world.answers[name], 77]


def test_conversations_that_go_on_all_at_once_stay_in_their_slots() -> None:
    world = wide(kept=0)
    chats = [talkative(100 * n) for n in range(1, 5)]
    for chat in chats:
        name = world.submit(chat, 9)
        world.run()
        chat += [*world.answers[name], 77]
    names = [world.submit(chat) for chat in reversed(chats)]
    world.run()
    assert [world.cached[name] for name in names] == [len(chat) - 2 for chat in reversed(chats)]


def test_the_kept_ring_that_was_of_no_use_for_longest_goes() -> None:
    world = wide(kept=2)
    one, two, three = (talkative(100 * n) for n in (1, 2, 3))
    world.ask(one, 20)
    world.ask(two, 20)
    assert world.ask([*one, 60], 20)[1] == len(one) - 1
    world.ask(three, 20)
    assert world.ask([*two, 60], 20)[1] == 0


def test_an_answer_that_is_no_number_leaves_nothing_to_reuse() -> None:
    world = wide()
    name = world.submit(SYSTEM)
    world.turn()
    world.state, _ = scheduler.apply(world.state, [Result(0, name, (scheduler.NO_TOKEN,))])
    world.unread.clear()
    assert world.ask(SYSTEM)[1] == 0
