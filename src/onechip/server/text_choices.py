"""The choices of plain completions, whole or as the events of a stream."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from msgspec import UNSET, UnsetType

from onechip.errors import OnechipError
from onechip.models.chat_parser import Delta, text_of
from onechip.models.tokenizer import Tokenizer
from onechip.server.answer import Answer, FinishReason, Unread
from onechip.server.generation import Generation
from onechip.server.group import Group
from onechip.server.logprobs import (
    TextLogprobs,
    TextPlaces,
    TokenNames,
    Untold,
    prompt_logprobs,
    text_logprobs,
)
from onechip.server.replies import TextChoice, TextCompletion, Usage, choice_failure
from onechip.server.schemas import CompletionBody


@dataclass(frozen=True, slots=True)
class Prompt:
    """One prompt; `text` as the client sent it, None where it sent ids."""

    ids: list[int]
    text: str | None = None

    def shown(self, tokenizer: Tokenizer, skip_special: bool) -> str:
        """What `echo` shows."""
        return tokenizer.decode(self.ids, skip_special) if self.text is None else self.text

    def places(self, tokenizer: Tokenizer, skip_special: bool) -> list[int]:
        """Where each token begins in that. A BOS that was put before the text has no room there."""
        if self.text is None:
            return TextPlaces(tokenizer, skip_special, continued=False).push(self.ids)
        bos = tokenizer.bos_id
        own = bos is not None and self.ids[0] == bos and not self.text.startswith(tokenizer.token(bos))
        places = TextPlaces(tokenizer, skip_special=False, continued=False).push(self.ids[own:])
        return [0] * own + places


class TextForm:
    """Gives the generations of one request the form of choices."""

    def __init__(
        self,
        body: CompletionBody,
        tokenizer: Tokenizer,
        prompts: Sequence[Prompt],
        group: Group,
        reply: TextCompletion,
    ) -> None:
        """Nothing has come yet.

        Args:
            reply: has what is the same in all events of a stream.
        """
        self._body = body
        self._names = TokenNames(tokenizer, bool(body.return_tokens_as_token_ids))
        self._prompts = prompts
        self._group = group
        self._reply = reply

    def chunks(self) -> list[TextChunks]:
        """What gives each choice's events their form."""
        each = len(self._group.choices) // len(self._prompts)
        return [
            TextChunks(self._reply, place, self._tokens(place // each, generation.answer))
            for place, generation in enumerate(self._group.choices)
        ]

    def choices(self, deltas: Sequence[Sequence[Delta]]) -> list[TextChoice]:
        """All choices that the client is to see, whole.

        Args:
            deltas: of each generation.
        """
        n = self._body.n or 1
        if not deltas:  # nothing but the prompt is wanted
            return [self._prompt_alone(place // n, place) for place in range(n * len(self._prompts))]
        return [
            self._choice(index // n, index, self._group.choices[place], deltas[place])
            for index, place in enumerate(_shown(self._group, n))
        ]

    def _prompt_alone(self, prompt: int, index: int) -> TextChoice:
        return self._filled(
            prompt, TextChoice(index=index, text="", finish_reason="length"), Answer(Unread())
        )

    def _choice(self, prompt: int, index: int, generation: Generation, deltas: Sequence[Delta]) -> TextChoice:
        choice = TextChoice(
            index=index,
            text=text_of(deltas),
            finish_reason=generation.answer.finish or "error",
            error=choice_failure(generation.failure),
        )
        return self._filled(prompt, choice, generation.answer)

    def _filled(self, prompt: int, choice: TextChoice, answer: Answer) -> TextChoice:
        """`choice` with its prompt, and what is told of both."""
        tokens = self._tokens(prompt, answer)
        choice.text = tokens.prompt + choice.text
        tokens.tell(choice)
        choice.prompt_token_ids = tokens.prompt_ids
        if self._body.prompt_logprobs is not None:
            scored = self._scored(prompt)
            choice.prompt_logprobs = prompt_logprobs(self._names, self._body.prompt_logprobs, scored)
        return choice

    def _tokens(self, prompt: int, answer: Answer) -> TextTokens:
        return TextTokens(self._body, self._names, self._prompts[prompt], self._scored(prompt), answer)

    def _scored(self, prompt: int) -> Answer | None:
        generation = self._group.scored[prompt] if self._group.scored else None
        return generation.answer if generation else None


def _shown(group: Group, n: int) -> list[int]:
    """Which choices the client sees: of each prompt the first n, or the best n if there are more."""
    each = len(group.choices) // len(group.prompts)
    shown: list[int] = []
    for first in range(0, len(group.choices), each):
        places = range(first, first + each)
        best = sorted(places, key=lambda place: _mean(group.choices[place]), reverse=True)
        shown += best[:n] if each > n else places
    return shown


def _mean(generation: Generation) -> float:
    """Mean log-probability of the tokens; of a choice that failed less than of all others."""
    found = [told.chosen for told in generation.answer.logprobs]
    return sum(found) / len(found) if found and generation.failure is None else -math.inf


class TextTokens:
    """What is told of the tokens of one choice, of each token once; of the prompt's first, if it is shown.

    Attributes:
        prompt: what is shown of the prompt.
        prompt_ids: its tokens, if they are told.
    """

    def __init__(
        self, body: CompletionBody, names: TokenNames, prompt: Prompt, scored: Answer | None, answer: Answer
    ) -> None:
        """Nothing is told yet.

        Args:
            scored: the prompt but for its first token, with log-probabilities.
        """
        skip_special = body.skip_special_tokens is not False
        self._untold = Untold(answer)
        self._names, self._most = names, body.logprobs
        self._with_ids = bool(body.return_token_ids)
        self._before: TextLogprobs | None = None
        self.prompt_ids = prompt.ids if body.return_token_ids else UNSET
        self.prompt = prompt.shown(names.tokenizer, skip_special) if body.echo else ""
        self._places = TextPlaces(names.tokenizer, skip_special, len(self.prompt))
        if body.echo and body.logprobs is not None:
            told = [None, *(scored.logprobs if scored else ())]
            places = prompt.places(names.tokenizer, skip_special)
            self._before = text_logprobs(names, body.logprobs, prompt.ids, told, places)

    def tell(self, choice: TextChoice) -> None:
        """Tell `choice` of the tokens that came since the last call."""
        if self._most is None and not self._with_ids:
            return
        ids, told = self._untold.take()
        if self._most is not None:
            found = text_logprobs(self._names, self._most, ids, told, self._places.push(ids))
            choice.logprobs = self._before.then(found) if self._before else found
            self._before = None
        if self._with_ids:
            choice.token_ids = ids


class TextChunks:
    """The events of a streamed choice."""

    def __init__(self, reply: TextCompletion, place: int, tokens: TextTokens) -> None:
        """Nothing is sent yet.

        Args:
            reply: has what is the same in all events.
            place: of the choice among the others.
        """
        self._reply = reply
        self._place = place
        self._tokens = tokens

    def opening(self) -> list[TextChoice]:
        told = self._tokens
        if not told.prompt and told.prompt_ids is UNSET:
            return []
        return [TextChoice(index=self._place, text=told.prompt, prompt_token_ids=told.prompt_ids)]

    def window(self, deltas: Sequence[Delta]) -> list[TextChoice]:
        choice = TextChoice(index=self._place, text=text_of(deltas))
        self._tokens.tell(choice)
        return [choice]

    def closing(self, finish: FinishReason) -> TextChoice:
        return TextChoice(index=self._place, text="", finish_reason=finish)

    def failure(self, error: OnechipError) -> TextChoice:
        return TextChoice(index=self._place, text="", finish_reason="error", error=choice_failure(error))

    def body(self, choices: list[TextChoice], usage: Usage | UnsetType | None) -> TextCompletion:
        return TextCompletion(self._reply.id, self._reply.created, self._reply.model, choices, usage)
