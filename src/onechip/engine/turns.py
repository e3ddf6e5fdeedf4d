"""What the scheduler knows (State) and what it plans (Turn). No JAX here."""

from __future__ import annotations

from dataclasses import dataclass, field

from onechip.engine.prefixes import Content, Copies, Prefixes, Reuse, Tokens
from onechip.engine.types import Logprobs, Request


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
        reuse: what the cache can keep of prompts; None looks for nothing in it.
    """

    row_buckets: tuple[int, ...]
    chunk_buckets: tuple[int, ...]
    shared_chunks: bool
    window: int
    prefill_budget: int
    reuse: Reuse | None = None

    @property
    def slots(self) -> int:
        return self.row_buckets[-1]

    @property
    def scored_slots(self) -> int:
        """How many prompts that are scored may hold slots at once: they run one by one anyhow."""
        return max(1, self.slots // 4)

    @property
    def scored_beside(self) -> int:
        """Rows of a scored chunk while others decode: all layers and the head run for each."""
        return max(1, self.chunk_buckets[-1] // 4)

    def row_bucket(self, rows: int) -> int:
        """The smallest that covers so many slots."""
        return _smallest(self.row_buckets, rows)

    def chunk_bucket(self, tokens: int) -> int:
        """The smallest that holds so many."""
        return _smallest(self.chunk_buckets, tokens)


def _smallest(buckets: tuple[int, ...], size: int) -> int:
    return next((bucket for bucket in buckets if bucket >= size), buckets[-1])


@dataclass(frozen=True, slots=True)
class Running:
    """A request that holds a slot.

    Attributes:
        order: how many requests got a slot before it.
        tokens: its prompt.
        begun: what stands in the cache of its prompt has been looked for.
        cached, written: how many tokens that was, and see prefixes.Beginning.
        keeps: lengths of its prompt at which the ring is kept, see prefixes.Beginning.
        prefilled: prompt tokens in the cache or sent to the device, all but the last at the most.
        joined: the last one was sent too.
        scheduled: output tokens asked of the device, read back or not.
        answer: output tokens read back.
        stops: token ids that end it.
    """

    request: Request
    stops: frozenset[int]
    order: int
    tokens: Tokens
    begun: bool = False
    cached: int = 0
    written: int = 0
    keeps: tuple[int, ...] = ()
    prefilled: int = 0
    joined: bool = False
    scheduled: int = 0
    answer: tuple[int, ...] = ()

    @property
    def emitted(self) -> int:
        return len(self.answer)

    @property
    def held(self) -> int:
        """Tokens in its slot."""
        return self.prefilled + (0 if self.request.scored else self.emitted)

    @property
    def left(self) -> int:
        """Prompt tokens that must be in the cache before the last one is run."""
        return len(self.request.prompt) - 1 - self.prefilled

    @property
    def unbroken(self) -> int:
        """Of those, the tokens up to where the ring is kept next."""
        cut = next((length for length in self.keeps if length > self.prefilled), self.prefilled + self.left)
        return cut - self.prefilled

    @property
    def wants_tokens(self) -> bool:
        return self.joined and self.scheduled < self.request.sampling.max_tokens

    @property
    def content(self) -> Content:
        """What is in its slot once all that was sent has run.

        A step runs the token before the one that it gives, and the device gives no more than were asked for.
        """
        if not self.joined:
            return self._content(self.prefilled, self.prefilled)
        prompt = len(self.tokens)
        written = prompt - 1 + min(self.scheduled, self.request.sampling.max_tokens)
        return self._content(min(prompt + self.emitted, written), written)

    @property
    def ended_content(self) -> Content:
        """What is in its slot after its last token came: the device has left it alone since."""
        if self.request.scored:
            return self.content
        length = len(self.tokens) - 1 + self.emitted
        return self._content(length, length)

    def _content(self, length: int, written: int) -> Content:
        return Content(self.tokens, self.answer, length, max(written, self.written))


@dataclass(frozen=True, slots=True)
class Waiting:
    request: Request
    stops: frozenset[int]
    tokens: Tokens


@dataclass(frozen=True, slots=True)
class State:
    """Everything the scheduler knows. slots[i] is who holds slot i; `admitted` counts who ever got one;
    `prefixes` is what stands in the cache, None if nobody may reuse it.
    """

    limits: Limits
    waiting: tuple[Waiting, ...]
    slots: tuple[Running | None, ...]
    admitted: int = 0
    prefixes: Prefixes | None = None

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
    """Parts of prompts that are run together, padded to `bucket` rows, after `copies`; a scored one alone."""

    parts: tuple[PrefillPart, ...]
    bucket: int
    copies: Copies = field(default_factory=Copies)

    @property
    def valid(self) -> int:
        return sum(part.valid for part in self.parts)

    @property
    def scored(self) -> bool:
        return self.parts[0].request.scored


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
    """What to send to the device; `joins` are (slot, request) whose prompts are in now, `copies` are made
    before them.
    """

    prefills: tuple[PrefillChunk, ...]
    joins: tuple[tuple[int, Request], ...]
    decode: DecodeWindow | None
    copies: Copies = field(default_factory=Copies)

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
