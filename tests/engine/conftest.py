"""A loaded engine on acorn, shared by the tests of a session, and a client for it."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import jax
import numpy as np
import pytest
from numpy.typing import NDArray

import onechip.ladder
import onechip.models
from onechip.engine.core import Engine
from onechip.engine.start import COMPILE_EVENT
from onechip.engine.types import EngineConfig, Event, Request, SamplingParams
from onechip.models.tokenizer import Tokenizer

ACORN = Path(onechip.models.__file__).parent / "acorn"


class Client:
    """Submits requests and gathers their events; `wait` blocks until all have ended."""

    def __init__(self, engine: Engine) -> None:
        self.engine = engine
        self.events: dict[str, list[Event]] = {}
        self._then: dict[str, tuple[int, Callable[[], None]]] = {}
        self._changed = threading.Condition()

    def deliver(self, events: list[Event]) -> None:
        with self._changed:
            for event in events:
                name = event.request_id
                self.events[name].append(event)
                if name in self._then and len(self.tokens(name)) >= self._then[name][0]:
                    self._then.pop(name)[1]()
            self._changed.notify_all()

    def submit(self, *requests: Request) -> None:
        for request in requests:
            with self._changed:
                self.events[request.id] = []
            self.engine.submit(request)

    def when(self, tokens: int, request_id: str, do: Callable[[], None]) -> None:
        """Do it once a request that is yet to be submitted has so many tokens, in the engine's own thread,
        which plans nothing meanwhile.
        """
        self._then[request_id] = tokens, do

    def wait_for(self, tokens: int, request_id: str) -> None:
        with self._changed:
            assert self._changed.wait_for(lambda: len(self.tokens(request_id)) >= tokens, timeout=60)

    def wait(self) -> None:
        with self._changed:
            ended = self._changed.wait_for(
                lambda: all(events and events[-1].finish for events in self.events.values()), timeout=120
            )
            assert ended, {name: events[-1:] for name, events in self.events.items()}

    def run(self, *requests: Request) -> list[list[int]]:
        """Tokens of each request, submitted one by one: the engine may begin before all are there."""
        self.submit(*requests)
        self.wait()
        return [self.tokens(request.id) for request in requests]

    def run_together(self, *requests: Request) -> list[list[int]]:
        """Tokens of each request, of which the engine sees none before it sees all."""
        gate = Request(f"before {requests[0].id}", (5,), SamplingParams(max_tokens=1))
        self.when(1, gate.id, lambda: self.submit(*requests))
        self.submit(gate)
        self.wait()
        return [self.tokens(request.id) for request in requests]

    def tokens(self, request_id: str) -> list[int]:
        return [token for event in self.events[request_id] for token in event.tokens]

    def finish(self, request_id: str) -> str | None:
        return self.events[request_id][-1].finish


class Only:
    """A guide that allows the tokens of one set, and keeps what it was told."""

    def __init__(self, tokens: Sequence[int]) -> None:
        self.tokens = tokens
        self.taken: list[int] = []

    def forbid(self, allowed: NDArray[np.uint32]) -> None:
        mask = np.zeros_like(allowed)
        for token in self.tokens:
            mask[token // 32] |= np.uint32(1 << token % 32)
        allowed &= mask

    def take(self, token: int) -> None:
        self.taken.append(token)


@pytest.fixture(scope="session")
def engine_cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("executables")


@pytest.fixture(scope="session")
def acorn_engine(engine_cache: Path) -> Iterator[Engine]:
    engine = Engine.load(EngineConfig(ACORN, context=1024, cache_dir=engine_cache), lambda stage, share: None)
    yield engine
    engine.stop()


@pytest.fixture(scope="session")
def compiled_by_engines(acorn_engine: Engine) -> list[float]:
    """Seconds of every compilation on an engine's thread, but for what the first scored prompt needs; other
    tests' are nobody's business.
    """
    heard: list[float] = []
    here = acorn_engine._loaded.compiles._here

    def hear(event: str, seconds: float, **_: object) -> None:
        ours = threading.current_thread().name == "onechip-engine"
        if event == COMPILE_EVENT and ours and not getattr(here, "wanted", False):
            heard.append(seconds)

    jax.monitoring.register_event_duration_secs_listener(hear)
    return heard


@pytest.fixture(scope="session")
def client(acorn_engine: Engine, compiled_by_engines: list[float]) -> Client:
    """Of acorn's engine, whose compilations are heard from its first request on."""
    client = Client(acorn_engine)
    acorn_engine.start(client.deliver)
    return client


@pytest.fixture(scope="session")
def tokenizer() -> Tokenizer:
    return Tokenizer.load(ACORN, ())


@pytest.fixture(scope="session")
def questions(tokenizer: Tokenizer) -> list[tuple[int, ...]]:
    """64 prompts of different lengths, from the shipped questions."""
    path = Path(onechip.ladder.__file__).parent / "data" / "acorn_problems.jsonl"
    rows = [json.loads(line)["question"] for line in path.read_text().splitlines()[:64]]
    texts = [f"<bos><|turn>user\n{row}<turn|>\n<|turn>model\n" for row in rows]
    return [tuple(tokenizer.encode(text)) for text in texts]
