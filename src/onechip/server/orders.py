"""A prompt and what is asked of its answers -> requests to the engine, and what reads each answer."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from onechip.engine.types import Guide, Request, SamplingParams
from onechip.server.answer import Answer, Reader, Unread
from onechip.server.sampling import Limits, choice_seed, output_limit, sampling_params, stop_strings
from onechip.server.schemas import Sampling
from onechip.server.service import Model


@dataclass(frozen=True, slots=True)
class Order:
    """A request, and what reads that which comes of it.

    Attributes:
        measured: its times and tokens count in the metrics, which are those of answers.
    """

    request: Request
    answer: Answer
    measured: bool = True


@dataclass(frozen=True, slots=True)
class Choices:
    """How many answers there are, and what is told of their tokens.

    Attributes:
        each: answers to one prompt; they differ in their seeds, and the first is what one alone would be.
        logprobs: tell the log-probabilities of tokens and of so many likeliest ones; None: of none.
        prompt_logprobs: the same of the prompt's tokens.
    """

    each: int = 1
    logprobs: int | None = None
    prompt_logprobs: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Task:
    """What is asked of each answer to one prompt.

    Attributes:
        reader: makes what reads an answer.
        guides: makes what says which tokens an answer of so many at the most may have, besides what
            `sampling` says of that.
        one_call: end behind the first call.
    """

    sampling: Sampling
    limits: Limits
    choices: Choices
    reader: Callable[[], Reader]
    guides: Callable[[int], Sequence[Guide]] = lambda max_tokens: ()
    one_call: bool = False


def orders_of(
    model: Model,
    prompt: Sequence[int],
    task: Task,
    banned: Callable[[], Sequence[Guide]],
    request_id: str,
) -> list[Order]:
    """The requests for all choices of one prompt; the first has the id `request_id`.

    Args:
        banned: makes the guides of `sampling.bans` for one answer.

    Raises:
        RequestError: the prompt does not fit, or fields do not go together.
    """
    sampling = task.sampling
    limit = output_limit(task.limits, len(prompt), model.engine.context, model.largest_context)
    params = sampling_params(sampling, model.defaults, limit, model.tokenizer.vocab_size)
    params = replace(params, logprobs=task.choices.logprobs)
    orders = []
    for place in range(task.choices.each):
        answer = Answer(
            task.reader(),
            stops=stop_strings(sampling),
            min_tokens=params.min_tokens,
            one_call=task.one_call,
            show_stop=bool(sampling.include_stop_str_in_output),
        )
        request = Request(
            id=f"{request_id}-{place}" if place else request_id,
            prompt=tuple(prompt),
            sampling=replace(params, seed=choice_seed(params.seed, place)),
            guides=(*task.guides(params.max_tokens), *banned()),
        )
        orders.append(Order(request, answer))
    return orders


def scoring_order(prompt: Sequence[int], top: int, request_id: str) -> Order | None:
    """A request that tells how likely each token of `prompt` was after those before it, at temperature 1. A
    prompt of one token has nothing to score.

    Args:
        top: how many of the likeliest tokens are told at each place.
    """
    if len(prompt) < 2:
        return None
    request = Request(request_id, tuple(prompt), SamplingParams(logprobs=top), scored=True)
    return Order(request, Answer(Unread()), measured=False)
