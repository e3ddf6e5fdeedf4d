"""All that one client asks of the engine: a generation for each choice, and for each prompt to be scored."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from starlette.types import Receive

from onechip.engine.types import Event
from onechip.errors import OnechipError
from onechip.models.chat_parser import Delta
from onechip.server.generation import Generation
from onechip.server.orders import Order, Task, orders_of, scoring_order
from onechip.server.replies import Usage
from onechip.server.sampling import bans
from onechip.server.service import Model, Service
from onechip.server.streams import ClientGone, by_token, disconnected
from onechip.server.work import SCORING, apart


class Group:
    """Generations that one client waits for.

    Attributes:
        prompts: token ids of each.
        choices: what the client sees, those of the first prompt first; as many of each.
        scored: what tells how likely the tokens of each prompt were, None where there is nothing to tell;
            empty if nobody asked.
    """

    def __init__(
        self,
        service: Service,
        model: Model,
        prompts: Sequence[Sequence[int]],
        choices: Sequence[Order],
        scored: Sequence[Order | None],
    ) -> None:
        """Submit all, or none.

        Raises:
            QueueFullError, RequestError, EngineError: the engine does not take one of them.
        """
        self.prompts = prompts
        self._mailbox = service.streams.mailbox()
        self._by_id: dict[str, Generation] = {}
        try:
            for order in (*choices, *filter(None, scored)):
                self._by_id[order.request.id] = Generation(service, model, order, self._mailbox)
        except BaseException:
            self._close("error")
            raise
        self.choices = [self._by_id[order.request.id] for order in choices]
        self.scored = [self._by_id[order.request.id] if order else None for order in scored]

    @property
    def only(self) -> Generation:
        """The choice of a group that has just one."""
        [generation] = self.choices
        return generation

    @property
    def running(self) -> bool:
        """Whether more may come of any."""
        return any(generation.running for generation in self._by_id.values())

    @property
    def failure(self) -> OnechipError | None:
        """Why there is nothing to show: no choice came to its end, or a prompt could not be scored."""
        failures = [generation.failure for generation in self.choices]
        scored = [generation.failure for generation in self.scored if generation and generation.failure]
        if scored:
            return scored[0]
        return failures[0] if failures and all(failures) else None

    @property
    def usage(self) -> Usage:
        """Tokens so far; a prompt counts once, whatever the number of its choices."""
        prompt = sum(map(len, self.prompts))
        firsts = self.choices[:: len(self.choices) // len(self.prompts)] if self.choices else []
        cached = sum(generation.answer.cached_tokens for generation in firsts)
        output = sum(generation.answer.tokens for generation in self.choices)
        thoughts = sum(generation.answer.reasoning_tokens for generation in self.choices)
        return Usage.of(prompt, cached, output, thoughts)

    async def whole(
        self, receive: Receive, look: Callable[[Sequence[Delta]], Any] = lambda deltas: None
    ) -> list[list[Delta]]:
        """The deltas of each choice, in one piece. Of one that failed, what came before.

        Args:
            receive: of the HTTP request, whose body has been read.
            look: is called with the deltas of each window, as soon as the answer has taken it.

        Raises:
            ClientGone: the client went away.
            OnechipError: there is nothing to show, see `failure`.
        """
        deltas: dict[str, list[Delta]] = {id: [] for id in self._by_id}
        with self.watched(receive):
            while self.running:
                for generation, event in await self.events():
                    new = generation.take(event)
                    look(new)
                    deltas[event.request_id] += new
        if self.failure is not None:
            raise self.failure
        return [deltas[generation.request.id] for generation in self.choices]

    @contextmanager
    def watched(self, receive: Receive) -> Iterator[None]:
        """Take events inside of this: `events` then gives up when the client goes away.

        Leaving early, for whatever reason, frees all slots within a window of decode steps.

        Args:
            receive: of the HTTP request, whose body has been read.
        """
        watch = asyncio.create_task(disconnected(receive))
        watch.add_done_callback(lambda _: self._mailbox.abandon())
        reason = "error"
        try:
            yield
        except (ClientGone, asyncio.CancelledError):
            reason = "abort"
            raise
        finally:
            watch.cancel()
            self._close(reason)

    async def events(self) -> list[tuple[Generation, Event]]:
        """What has come, for each generation to take.

        Where log-probabilities were asked for, each token is an event, so that it is known what it adds.

        Raises:
            ClientGone: the client went away.
        """
        news: list[tuple[Generation, Event]] = []
        for event in await self._mailbox.take():
            generation = self._by_id[event.request_id]
            generation.timer.on_tokens(len(event.tokens))  # they came together
            if event.logprobs:
                news += [(generation, part) for part in by_token(event)]
            else:
                news.append((generation, event))
        return news

    def _close(self, reason: str) -> None:
        for generation in self._by_id.values():
            generation.close(reason)


async def submit(
    service: Service, model: Model, prompts: Sequence[Sequence[int]], task: Task, request_id: str
) -> Group:
    """Let the engine do `task` with each of `prompts` (token ids); the first choice is request `request_id`.

    Raises:
        OnechipError: the request is wrong, or the engine does not take it.
    """
    if task.choices.prompt_logprobs is not None:
        await SCORING.run(model.engine.prepare_scoring)
    return Group(service, model, prompts, *await apart(_orders, model, prompts, task, request_id))


def _orders(
    model: Model, prompts: Sequence[Sequence[int]], task: Task, request_id: str
) -> tuple[list[Order], list[Order | None]]:
    """What makes the choices, and what scores the prompts."""
    banned = bans(task.sampling, model.tokenizer)
    choices: list[Order] = []
    scored: list[Order | None] = []
    for place, prompt in enumerate(prompts):
        id = f"{request_id}.{place}" if place else request_id
        choices += orders_of(model, prompt, task, banned, id)
        if task.choices.prompt_logprobs is not None:
            scored.append(scoring_order(prompt, task.choices.prompt_logprobs, f"{id}-prompt"))
    return choices, scored
