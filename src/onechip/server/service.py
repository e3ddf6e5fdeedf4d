"""The model behind the API, from the start of loading to the last request: may it be used, and if not why?"""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

from onechip.config import ServeConfig
from onechip.engine.types import Progress
from onechip.errors import EngineError, NotFoundError, RequestError
from onechip.models.chat_template import ChatTemplate
from onechip.models.generation import GenerationDefaults
from onechip.models.think_marks import ThinkMarks
from onechip.models.tokenizer import Tokenizer
from onechip.server.engine import ServedEngine
from onechip.server.metrics import Metrics
from onechip.server.streams import Streams
from onechip.server.work import GRAMMARS

if TYPE_CHECKING:  # what these import takes seconds, and the port shall answer meanwhile
    from onechip.engine.guides.grammar import Grammars
    from onechip.server.facts import Facts

State = Literal["loading", "ready", "draining", "failed"]

QUIET_S = 5.0
"""How long nobody must have asked anything before the server gets ready for grammars."""


USUAL_TOKEN = 8
"""Characters of a token that few exceed; only for texts with more the longest token is looked for."""


@dataclass(frozen=True, slots=True)
class Model:
    """Everything that answering takes.

    Attributes:
        template: None if the checkpoint has none; then it does not chat.
        largest_context: tokens of one request that the checkpoint allows; the engine may allow fewer.
        facts: what clients may ask about the checkpoint.
        grammars: what answers may be held to.
        note: what the person who starts the server shall know of it, "" if nothing.
        marks: around the model's thoughts, if they are others than Gemma 4's.
    """

    engine: ServedEngine
    tokenizer: Tokenizer
    template: ChatTemplate | None
    defaults: GenerationDefaults
    largest_context: int
    facts: Facts
    grammars: Grammars
    note: str = ""
    marks: ThinkMarks | None = field(init=False)

    def __post_init__(self) -> None:
        marks = ThinkMarks.of(self.tokenizer, self.template.source if self.template else None)
        object.__setattr__(self, "marks", marks)

    @property
    def can_think(self) -> bool:
        """Whether the model can be told to think, or thinks unasked."""
        told = self.template is not None and self.template.reads_thinking
        return told or (self.marks is not None and self.marks.in_template)

    def encode(self, text: str) -> list[int]:
        """Token ids of a prompt.

        Raises:
            RequestError: it is so long that it cannot fit in the context, however it is cut into tokens.
        """
        context = self.engine.context
        if len(text) > USUAL_TOKEN * context and len(text) > self.tokenizer.longest * context:
            raise RequestError(
                f"The prompt is too long: {len(text)} characters, but the context is {context} tokens for "
                f"prompt and output together, and a token has {self.tokenizer.longest} characters at the "
                "most: shorten the prompt.",
                code="context_length_exceeded",
            )
        return self.tokenizer.encode(text, add_bos=True)

    def warm(self) -> None:
        """Get ready for the first grammar, which else takes a second for a large vocabulary; blocks."""
        with suppress(RequestError):  # a model without stop tokens has no grammars
            self.grammars.warm()


class Service:
    """One model behind an API. Lives on the loop's thread; only loading and draining use others.

    Attributes:
        config: what the server was started with, and `created`, when, in seconds since 1970.
        stage, progress: what loading is at, and the share of it that is done.
        error: why loading failed, None if it did not.
        draining: new requests are refused, running ones go on.
        loop, streams: where answers are written, and what waits for the engine; from `start` on.
    """

    def __init__(self, config: ServeConfig, load: Callable[[Progress], Model], progress: Progress) -> None:
        """Nothing is loaded yet.

        Args:
            load: makes the model; blocks, and is called in a thread of its own.
            progress: also told of each stage, in that thread.
        """
        self.config = config
        self.created = int(time.time())
        self.metrics = Metrics(config.model_id)
        self.stage, self.progress = "starting", 0.0
        self.error: BaseException | None = None
        self.draining = False
        self._load = load
        self._tell = progress
        self._model: Model | None = None
        self._preparing: set[asyncio.Task[Any]] = set()
        self._stopped = False

    def start(self, on_loaded: Callable[[], None]) -> None:
        """Load in a thread of its own; then `on_loaded` is called on the loop, also if loading failed."""
        self.loop = asyncio.get_running_loop()
        self.streams = Streams(self.loop)

        def load() -> None:
            model, error = None, None
            try:
                model = self._load(self._on_progress)
                model.engine.start(self.streams.deliver)
            except BaseException as caught:
                error = caught
            self.loop.call_soon_threadsafe(finish, model, error)

        def finish(model: Model | None, error: BaseException | None) -> None:
            self._model, self.error = model, error
            if model is not None:
                self.metrics.stats = model.engine.stats
            on_loaded()
            if model is not None:
                self._warming = asyncio.create_task(self._warm_when_quiet(model))

        threading.Thread(target=load, name="onechip-load", daemon=True).start()

    async def _warm_when_quiet(self, model: Model) -> None:
        """Reading a large vocabulary holds all of Python up for a moment, in which nobody should wait."""
        quiet_since = self.loop.time()
        while self.loop.time() < quiet_since + QUIET_S:
            await asyncio.sleep(QUIET_S / 20)
            if len(self.streams):
                quiet_since = self.loop.time()
        await GRAMMARS.run(model.warm)

    @property
    def state(self) -> State:
        if self.error is not None or (self._model is not None and self._model.engine.failed):
            return "failed"
        if self.draining:
            return "draining"
        return "loading" if self._model is None else "ready"

    def explain(self) -> str:
        """The state in a sentence."""
        if self.error is not None:
            return f"The model could not be loaded: {self.error}"
        if self._model is not None and self._model.engine.failed:
            return f"The engine failed: {self._model.engine.failed}; restart the server."
        if self.draining:
            return "The server is shutting down and takes no new requests."
        if self._model is None:
            return f"The model is loading ({self.stage}, {self.progress:.0%}); try again in a few seconds."
        return "The server is ready."

    def model(self, name: str | None = None) -> Model:
        """The model, if it may be used now.

        Args:
            name: what the client calls it; None means the one that there is.

        Raises:
            EngineError: it is loading, draining or has failed.
            NotFoundError: there is no model of that name.
        """
        if self.state != "ready" or self._model is None:
            raise EngineError(self.explain())
        served = self.config.model_id
        if name is not None and name not in (served, self.config.model):
            raise NotFoundError(
                f"There is no model {name!r} here; served is {served!r}.",
                param="model",
                code="model_not_found",
            )
        return self._model

    @contextmanager
    def preparing(self) -> Iterator[None]:
        """Inside of this a request is accepted, and not with the engine yet.

        Raises:
            EngineError: the server stopped meanwhile.
        """
        task = asyncio.current_task()
        assert task is not None
        self._preparing.add(task)
        try:
            yield
        except asyncio.CancelledError:
            if not self._stopped:
                raise
            task.uncancel()
            raise EngineError("The server stopped before the answer was begun.") from None
        finally:
            self._preparing.discard(task)

    @property
    def running(self) -> int:
        """Answers that are being prepared or generated."""
        return len(self.streams) + len(self._preparing)

    def drain(self, timeout_s: float) -> int:
        """Refuse new requests and wait for the running ones; blocks. How many were left after `timeout_s`."""
        self.draining = True
        deadline = time.monotonic() + timeout_s
        while self._preparing and time.monotonic() < deadline:  # the engine, once it drains, takes none
            time.sleep(0.02)
        left = self._model.engine.drain(deadline - time.monotonic()) if self._model else 0
        return left + len(self._preparing)

    def stop(self) -> None:
        """End the engine's thread, and every request that still runs with an error; blocks."""
        self.draining = self._stopped = True
        self.loop.call_soon_threadsafe(self._abandon)
        if self._model is not None:
            self._model.engine.stop()

    def _abandon(self) -> None:
        for task in self._preparing:
            task.cancel()

    def _on_progress(self, stage: str, share: float) -> None:
        self.stage, self.progress = stage, share
        self._tell(stage, share)
