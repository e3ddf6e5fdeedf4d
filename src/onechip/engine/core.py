"""The engine: requests in from any thread, events out from its own thread, one hand-over per window of steps.

Each turn of the loop plans with the scheduler, sends the turn's programs to the device, and only then reads
back the turn before it, so the device has work while the host looks at tokens. Where turns are long, that
would save nothing to speak of, and a new request would wait for two of them: there each is read at once. In a
turn of one steered step the host reads the turn before, and asks the guides what may come, while the device
computes the logits.
"""

from __future__ import annotations

import queue
import threading
import time
import traceback
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from onechip.engine import scheduler
from onechip.engine.attention import Chunk
from onechip.engine.in_flight import InFlight
from onechip.engine.prefixes import Copies
from onechip.engine.programs import joins_of, moves_of
from onechip.engine.sampling import rows_of
from onechip.engine.start import LoadedEngine, load
from onechip.engine.steering import Steering
from onechip.engine.turns import DecodeWindow, PrefillChunk
from onechip.engine.types import (
    MAX_LOGIT_BIAS,
    MAX_LOGPROBS,
    MAX_STOP_IDS,
    EngineConfig,
    EngineStats,
    Event,
    Progress,
    Request,
    SamplingParams,
)
from onechip.errors import EngineError, QueueFullError, RequestError
from onechip.models.tokenizer import Tokenizer

Deliver = Callable[[list[Event]], None]

STALL_SECONDS = 120.0
"""A turn that takes longer than this means that the device hangs; /health then says so."""
LONG_TURN_S = 0.1
"""From here on turns do not overlap; the host's part of one is some 0.3 ms, at 64 requests 3 ms."""


@dataclass(frozen=True, slots=True)
class _Submit:
    request: Request
    stops: frozenset[int]


@dataclass(frozen=True, slots=True)
class _Cancel:
    request_id: str


class Engine:
    """One model on one chip. Made by `load`, run by `start`."""

    def __init__(self, loaded: LoadedEngine, config: EngineConfig) -> None:
        self._loaded = loaded
        self._max_waiting = config.max_waiting
        self._scheduler = scheduler.initial(loaded.plan.limits)
        self._steering = Steering(loaded.plan.slots, loaded.config.vocab, loaded.plan.context)
        self._inbox: queue.SimpleQueue[_Submit | _Cancel | None] = queue.SimpleQueue()
        self._in_flight: deque[InFlight] = deque()
        self._known: set[str] = set()
        self._lock = threading.Lock()
        self._stopping = threading.Event()
        self._draining = False
        self._over = False
        self._thread: threading.Thread | None = None
        self._turn_began: float | None = None
        self._turn_s = 0.0
        self._failed: str | None = None
        self._prompt_tokens = 0
        self._output_tokens = 0
        self._finished = 0

    @classmethod
    def load(cls, config: EngineConfig, progress: Progress) -> Engine:
        """Load weights, plan memory, compile or load programs, warm up; blocks.

        Raises:
            UsageError, CheckpointError, CapacityError: see errors.py.
        """
        return cls(load(config, progress), config)

    # What the server reads.

    @property
    def context(self) -> int:
        """Tokens of one request, prompt and output together."""
        return self._loaded.plan.context

    @property
    def max_requests(self) -> int:
        return self._loaded.plan.slots

    @property
    def tokenizer(self) -> Tokenizer:
        """The checkpoint's."""
        return self._loaded.tokenizer

    @property
    def description(self) -> str:
        """Precision and memory plan, a line each."""
        return self._loaded.describe()

    @property
    def failed(self) -> str | None:
        """Why the engine cannot serve any more, None while it can."""
        began = self._turn_began
        if self._failed is None and began is not None and time.monotonic() - began > STALL_SECONDS:
            return f"the device has not answered for {time.monotonic() - began:.0f} s"
        return self._failed

    def stats(self) -> EngineStats:
        """A snapshot; safe from any thread."""
        state = self._scheduler
        held = sum(slot.held for slot in state.slots if slot)
        return EngineStats(
            running=state.running,
            waiting=len(self._known) - state.running,
            cache_used=held / (self.context * len(state.slots)),
            prompt_tokens=self._prompt_tokens,
            output_tokens=self._output_tokens,
            finished=self._finished,
            prefix_queries=state.prefixes.queries if state.prefixes else 0,
            prefix_hits=state.prefixes.hits if state.prefixes else 0,
            compiles_after_warmup=self._loaded.compiles.since_ready,
        )

    # What the server does.

    def start(self, deliver: Deliver) -> None:
        """Start the engine's thread; `deliver` is called from it with all events of a window at once."""
        self._thread = threading.Thread(target=self._run, args=(deliver,), name="onechip-engine", daemon=True)
        self._thread.start()

    def prepare_scoring(self) -> None:
        """Compile or load what scores prompts, unless that is done; blocks. The first request to be scored
        would do it else, and hold up all others.
        """
        self._loaded.score.get()

    def submit(self, request: Request) -> None:
        """Queue a request; its events follow through `deliver`. Safe from any thread.

        Raises:
            RequestError: the prompt is empty or leaves no room for an output token, or too many stop ids.
            QueueFullError: `max_waiting` requests wait already.
            EngineError: the engine has failed or is draining.
        """
        if self.failed or self._draining or self._stopping.is_set():
            raise EngineError(self.failed or "the engine is shutting down; send the request elsewhere")
        request, stops = self._checked(request)
        with self._lock:
            if self._over:
                raise EngineError(self.failed or "the engine has stopped")
            if len(self._known) >= self.max_requests + self._max_waiting:
                raise QueueFullError(
                    f"{len(self._known)} requests run or wait already; try again later.", retry_after_s=1
                )
            if request.id in self._known:
                raise RequestError(
                    f"a request with id {request.id!r} is running already: ids must be unique."
                )
            self._known.add(request.id)
        self._inbox.put(_Submit(request, stops))

    def cancel(self, request_id: str) -> None:
        """End a request within a window; an event with finish "cancelled" follows. Safe from any thread."""
        self._inbox.put(_Cancel(request_id))

    def drain(self, timeout_s: float) -> int:
        """Refuse new requests and wait for the running ones; how many still ran when the time was over."""
        self._draining = True
        deadline = time.monotonic() + timeout_s
        while self._known and not self.failed and time.monotonic() < deadline:
            time.sleep(0.02)
        return len(self._known)

    def stop(self) -> None:
        """End the engine's thread; what still ran gets an event with finish "cancelled"."""
        self._stopping.set()
        self._inbox.put(None)
        if self._thread:
            self._thread.join(timeout=10)

    def _checked(self, request: Request) -> tuple[Request, frozenset[int]]:
        """The request with its output cut to what the context leaves, and the ids that stop it."""
        if request.scored:
            return self._checked_to_score(request), frozenset()
        room = self.context - len(request.prompt)
        if not request.prompt or room < 1:
            raise RequestError(
                f"the prompt has {len(request.prompt)} tokens: it must have 1 to {self.context - 1}, so that "
                f"one output token fits in the context of {self.context}.",
                param="prompt",
                code="context_length_exceeded",
            )
        self._check_known(request)
        params = request.sampling
        self._check_steering(params)
        own = () if params.ignore_eos else sorted(self._loaded.tokenizer.stop_ids)
        stops = tuple(dict.fromkeys((*params.stop_token_ids, *own)))
        if len(stops) > MAX_STOP_IDS:
            raise RequestError(
                f"{len(stops)} stop ids (the model's own included): at most {MAX_STOP_IDS} can be given.",
                param="stop_token_ids",
            )
        limited = replace(params, max_tokens=min(params.max_tokens, room), stop_token_ids=stops)
        try:
            rows_of(limited, len(request.prompt), stops)
        except OverflowError as error:  # of one request; where it joins the others, it would end all of them
            raise RequestError(f"a sampling parameter is too large for the engine ({error}).") from error
        return replace(request, sampling=limited), frozenset(stops)

    def _checked_to_score(self, request: Request) -> Request:
        """The request with so many output tokens as it will tell of."""
        if not 2 <= len(request.prompt) <= self.context:
            raise RequestError(
                f"the prompt has {len(request.prompt)} tokens: 2 to {self.context} can be scored.",
                param="prompt",
                code="context_length_exceeded",
            )
        self._check_known(request)
        params = SamplingParams(logprobs=request.sampling.logprobs or 0, max_tokens=len(request.prompt) - 1)
        self._check_steering(params)
        return replace(request, sampling=params, guides=())

    def _check_known(self, request: Request) -> None:
        largest, known = max(request.prompt), self._loaded.config.vocab
        if largest >= known:  # Gemma 3's tokenizer has tokens that its text models lack
            raise RequestError(
                f"the prompt has token {largest}, but the model knows 0 to {known - 1} only.",
                param="prompt",
            )

    def _check_steering(self, params: SamplingParams) -> None:
        if len(params.logit_bias) > MAX_LOGIT_BIAS:
            raise RequestError(
                f"logit_bias names {len(params.logit_bias)} tokens: at most {MAX_LOGIT_BIAS} can be given.",
                param="logit_bias",
            )
        last = self._loaded.config.vocab - 1
        for token, _ in params.logit_bias:
            if not 0 <= token <= last:
                raise RequestError(
                    f"logit_bias has token {token}, but the model knows 0 to {last} only.", param="logit_bias"
                )
        if params.logprobs is not None and not 0 <= params.logprobs <= MAX_LOGPROBS:
            raise RequestError(f"logprobs must be 0 to {MAX_LOGPROBS}.", param="logprobs")

    # The engine's thread.

    def _run(self, deliver: Deliver) -> None:
        try:
            while not self._stopping.is_set():
                self._turn(deliver)
            self._end_all(deliver, Event("", finish="cancelled"))
        except BaseException as error:  # what Rust panics with is no Exception
            traceback.print_exc()
            self._failed = f"{type(error).__name__}: {error}"
            self._end_all(deliver, Event("", finish="error", error="the engine failed; see its log"))

    def _turn(self, deliver: Deliver) -> None:
        events = self._take_inbox(wait=self._scheduler.idle and not self._in_flight)
        self._turn_began = time.monotonic()
        self._scheduler, turn = scheduler.plan(self._scheduler)
        for chunk in turn.prefills:
            self._move(chunk.copies)
            self._prefill(chunk)
        self._move(turn.copies)
        if turn.joins:
            self._join(turn.joins)
        if turn.decode and turn.decode.steered:
            self._hand_over(deliver, events)
            self._steered_step(deliver, turn.decode)
        else:
            if turn.decode:
                self._decode(turn.decode)
            self._hand_over(deliver, events)
        # The newest work stays unread while the device has it; without new work there is nothing to wait for.
        self._read(deliver, unread=0 if turn.empty or self._turn_s > LONG_TURN_S else 1)
        self._turn_s = time.monotonic() - self._turn_began
        self._turn_began = None

    def _read(self, deliver: Deliver, unread: int) -> None:
        """Wait for the device's work but for the newest `unread`, and hand over what it gave."""
        while len(self._in_flight) > unread:
            flight = self._in_flight.popleft()
            self._scheduler, events = scheduler.apply(self._scheduler, flight.results())
            if isinstance(flight.work, DecodeWindow):  # a prompt's tokens were not generated
                self._output_tokens += sum(len(event.tokens) for event in events)
            self._hand_over(deliver, events)

    def _take_inbox(self, wait: bool) -> list[Event]:
        """Requests and cancellations that have come; blocks for the first if there is nothing else to do."""
        events: list[Event] = []
        while True:
            try:
                item = self._inbox.get(block=wait)
            except queue.Empty:
                return events
            wait = False
            if isinstance(item, _Submit):
                self._scheduler = scheduler.submit(self._scheduler, item.request, item.stops)
                self._steering.add(item.request)
            elif isinstance(item, _Cancel):
                self._scheduler, ended = scheduler.cancel(self._scheduler, item.request_id)
                events += ended

    def _prefill(self, chunk: PrefillChunk) -> None:
        tokens, slots, positions = (np.zeros(chunk.bucket, np.int32) for _ in range(3))
        first = 0
        for part in chunk.parts:
            here, end = slice(first, first + part.valid), part.start + part.valid
            tokens[here] = part.request.prompt[part.start : end]
            slots[here] = part.slot
            positions[here] = np.arange(part.start, end)
            first += part.valid
        rows = Chunk(tokens, slots, positions, np.int32(chunk.valid))
        self._prompt_tokens += chunk.valid
        device = self._loaded
        if chunk.scored:
            self._score(chunk, rows)
            return
        device.state, count = device.prefill[chunk.bucket](device.params, device.state, rows)
        self._in_flight.append(InFlight(chunk, count))

    def _score(self, chunk: PrefillChunk, rows: Chunk) -> None:
        device, [part] = self._loaded, chunk.parts
        following = np.zeros(chunk.bucket, np.int32)
        following[: part.valid] = part.request.prompt[part.start + 1 : part.start + 1 + part.valid]
        device.state, told = device.score.get()(device.params, device.state, rows, following)
        most = part.request.sampling.logprobs or 0
        self._in_flight.append(InFlight(chunk, told.tokens, told, dict.fromkeys(range(part.valid), most)))

    def _move(self, copies: Copies) -> None:
        device = self._loaded
        if copies and device.move is not None:
            for moves in moves_of(copies, self.max_requests):
                device.state = device.move(device.state, moves)

    def _join(self, joins: tuple[tuple[int, Request], ...]) -> None:
        self._loaded.state = self._loaded.join(self._loaded.state, joins_of(joins, self.max_requests))
        self._prompt_tokens += len(joins)

    def _decode(self, window: DecodeWindow) -> None:
        device = self._loaded
        active = _active(window, window.bucket)
        device.state, tokens = device.decode[window.bucket](device.params, device.state, active)
        self._in_flight.append(InFlight(window, tokens))

    def _steered_step(self, deliver: Deliver, window: DecodeWindow) -> None:
        """One step in two programs: what may come next depends on what came, and is found out in between."""
        device = self._loaded
        active = _active(window, self.max_requests)
        device.state, scores = device.forward(device.params, device.state, active)
        self._read(deliver, unread=0)
        step = self._steering.steer(window.rows)
        for event in step.failed:
            self._scheduler, ended = scheduler.end(self._scheduler, event)
            self._hand_over(deliver, ended)
        device.state, chosen = device.choose(device.state, scores, step.steer, active)
        self._in_flight.append(InFlight(window, chosen.tokens, chosen, step.reported))

    def _hand_over(self, deliver: Deliver, events: list[Event]) -> None:
        if not events:
            return
        self._steering.take(events)
        ended = {event.request_id for event in events if event.finish}
        with self._lock:
            self._known -= ended
        self._finished += len(ended)
        deliver(events)

    def _end_all(self, deliver: Deliver, template: Event) -> None:
        with self._lock:
            self._over = True
            ids, self._known = self._known, set()
        if ids:
            deliver([replace(template, request_id=request_id) for request_id in sorted(ids)])


def _active(window: DecodeWindow, slots: int) -> NDArray[np.bool_]:
    """Which of the first so many slots the window runs."""
    active = np.zeros(slots, np.bool_)
    active[[slot for slot, _ in window.rows]] = True
    return active
