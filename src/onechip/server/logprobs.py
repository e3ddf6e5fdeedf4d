"""The engine's log-probabilities -> the forms that OpenAI's protocols, vLLM and Ollama give them.

A token is named by its text. The bytes of one that is not whole characters are written as `\\xe2\\x82`, as
OpenAI does; `bytes` has them as they are.
"""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import Struct

from onechip.engine.types import Logprobs
from onechip.errors import RequestError
from onechip.models.tokenizer import Tokenizer
from onechip.server.answer import Answer

LEAST = -9999.0
"""What stands for less, down to minus infinity, which JSON does not have; vLLM's clients know it."""


def likeliest(logprobs: bool | None, top_logprobs: int | None) -> int | None:
    """How many of the likeliest tokens to tell at each place; None: no log-probabilities at all.

    Raises:
        RequestError: likeliest tokens are asked for, but no log-probabilities.
    """
    if top_logprobs and not logprobs:
        raise RequestError("top_logprobs needs logprobs to be true.", param="top_logprobs")
    return (top_logprobs or 0) if logprobs else None


class LikelyToken(Struct, gc=False):
    """One of the likeliest tokens at a place."""

    token: str
    logprob: float
    bytes: list[int]


class TokenLogprob(LikelyToken, gc=False):
    """The token that was chosen, and the likeliest ones."""

    top_logprobs: list[LikelyToken]


class ChatLogprobs(Struct):
    """OpenAI's, of chat."""

    content: list[TokenLogprob]
    refusal: None = None


class TextLogprobs(Struct):
    """OpenAI's older form, of plain completions: lists with one place for each token.

    `top_logprobs` has the chosen token too. Nothing is before the first token of a prompt, so it has null.
    `text_offset` is where the token's text begins, in characters.
    """

    tokens: list[str]
    token_logprobs: list[float | None]
    top_logprobs: list[dict[str, float] | None]
    text_offset: list[int]

    def then(self, more: TextLogprobs) -> TextLogprobs:
        """This, and `more` of the tokens behind."""
        return TextLogprobs(
            self.tokens + more.tokens,
            self.token_logprobs + more.token_logprobs,
            self.top_logprobs + more.top_logprobs,
            self.text_offset + more.text_offset,
        )


class PromptLogprob(Struct, gc=False):
    """vLLM's. `rank` counts from 1, the likeliest."""

    logprob: float
    rank: int
    decoded_token: str


PromptLogprobs = list[dict[str, PromptLogprob] | None]
"""For each token of a prompt: token ids -> what is told of them."""


class TokenNames(dict[int, tuple[str, list[int]]]):
    """How tokens are named, and their bytes; made when first asked for, since the likeliest ones come again.

    Attributes:
        tokenizer: of the model.
    """

    def __init__(self, tokenizer: Tokenizer, as_ids: bool = False) -> None:
        """Nothing is named yet.

        Args:
            as_ids: as `token_id:42`.
        """
        super().__init__()
        self.tokenizer = tokenizer
        self._as_ids = as_ids

    def __missing__(self, id: int) -> tuple[str, list[int]]:
        data = self.tokenizer.token_bytes(id)
        name = f"token_id:{id}" if self._as_ids else data.decode("utf-8", "backslashreplace")
        self[id] = found = name, list(data)
        return found

    def likely(self, id: int, logprob: float) -> LikelyToken:
        name, data = self[id]
        return LikelyToken(name, max(logprob, LEAST), data)


def token_logprobs(names: TokenNames, ids: Sequence[int], told: Sequence[Logprobs]) -> list[TokenLogprob]:
    """Of each of `ids`, in OpenAI's newer form."""
    found = []
    for id, one in zip(ids, told, strict=True):
        name, data = names[id]
        top = [names.likely(*other) for other in one.top]
        found.append(TokenLogprob(name, max(one.chosen, LEAST), data, top))
    return found


class Untold:
    """The tokens of an answer that its client was not told of yet."""

    def __init__(self, answer: Answer) -> None:
        self._answer = answer
        self._told = 0

    def take(self) -> tuple[list[int], list[Logprobs]]:
        """Their ids, and their log-probabilities if they were asked for."""
        start, self._told = self._told, self._answer.tokens
        return self._answer.ids[start:], self._answer.logprobs[start:]


class TextPlaces:
    """Where each token of a text begins, in characters.

    Attributes:
        end: of the text so far.
    """

    def __init__(
        self, tokenizer: Tokenizer, skip_special: bool, end: int = 0, continued: bool = True
    ) -> None:
        self._decoder = tokenizer.stream(skip_special, continued)
        self.end = end

    def push(self, ids: Sequence[int]) -> list[int]:
        """The beginnings of these tokens; one within a character begins where that does, one that breaks it
        behind the U+FFFD that then stands for it.
        """
        places = []
        for id in ids:
            places.append(self.end + self._decoder.breaks(id))
            self.end += len(self._decoder.push((id,)))
        return places


def text_logprobs(
    names: TokenNames, most: int, ids: Sequence[int], told: Sequence[Logprobs | None], places: Sequence[int]
) -> TextLogprobs:
    """The older form.

    Args:
        most: how many of the likeliest tokens to tell.
        told: of each of `ids`, None where there is nothing to tell.
        places: see TextPlaces.
    """
    return TextLogprobs(
        tokens=[names[id][0] for id in ids],
        token_logprobs=[max(one.chosen, LEAST) if one else None for one in told],
        top_logprobs=[
            _by_name(names, most, id, one) if one else None for id, one in zip(ids, told, strict=True)
        ],
        text_offset=list(places),
    )


def _by_name(names: TokenNames, most: int, id: int, told: Logprobs) -> dict[str, float]:
    """The likeliest tokens and the chosen one; of several with one name the likeliest."""
    found: dict[str, float] = {}
    for other, logprob in (*told.top[:most], (id, told.chosen)):
        found.setdefault(names[other][0], max(logprob, LEAST))
    return found


def prompt_logprobs(names: TokenNames, most: int, scored: Answer | None) -> PromptLogprobs:
    """vLLM's form of the tokens of a prompt.

    Args:
        most: how many of the likeliest tokens to tell.
        scored: of all its tokens but the first; None if there are no others.
    """
    found: PromptLogprobs = [None]
    for id, told in zip(scored.ids, scored.logprobs, strict=True) if scored else ():
        place: dict[str, PromptLogprob] = {}
        for rank, (other, logprob) in enumerate(told.top[:most], 1):
            place[str(other)] = PromptLogprob(max(logprob, LEAST), rank, names[other][0])
        place.setdefault(str(id), PromptLogprob(max(told.chosen, LEAST), told.rank, names[id][0]))
        found.append(place)
    return found
