"""How tokens are chosen, under the names that llama.cpp's completion and Ollama's options have in common."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta

from onechip.errors import RequestError
from onechip.server.sampling import Limits, penalties_of_all
from onechip.server.schemas import (
    Body,
    Penalty,
    PositiveShare,
    RepetitionPenalty,
    Sampling,
    Seed,
    Share,
    StopString,
    StopStrings,
    Temperature,
    TopK,
)

OutputCount = Annotated[int, Meta(ge=-2, le=2**31 - 1)]
"""Tokens of an answer at the most; below 0: as many as fit."""

_RANDOM_SEEDS = (-1, 2**32 - 1)


class LlamaOptions(Body, kw_only=True, forbid_unknown_fields=True):
    """`repeat_last_n`: how many tokens penalties look at, -1 all, 0 none. `seed` -1 is a random one."""

    temperature: Temperature | None = None
    top_k: TopK | None = None
    top_p: PositiveShare | None = None
    min_p: Share | None = None
    seed: Seed | None = None
    stop: StopString | StopStrings | None = None
    repeat_penalty: RepetitionPenalty | None = None
    presence_penalty: Penalty | None = None
    frequency_penalty: Penalty | None = None
    repeat_last_n: Annotated[int, Meta(ge=-1, lt=2**31)] | None = None


def sampling_of(options: LlamaOptions, ignore_eos: bool | None = None, prefix: str = "") -> Sampling:
    """What `options` ask for.

    Args:
        prefix: stands before the fields' names in errors.

    Raises:
        RequestError: penalties are to look at a part of the tokens only.
    """
    repetition, presence, frequency = penalties_of_all(
        options.repeat_last_n,
        (options.repeat_penalty, options.presence_penalty, options.frequency_penalty),
        f"{prefix}repeat_last_n",
    )
    return Sampling(
        temperature=options.temperature,
        top_k=options.top_k,
        top_p=options.top_p,
        min_p=options.min_p,
        seed=None if options.seed in _RANDOM_SEEDS else options.seed,
        stop=options.stop,
        ignore_eos=ignore_eos,
        repetition_penalty=repetition,
        presence_penalty=presence,
        frequency_penalty=frequency,
    )


def limits_of(tokens: int | None, field: str, context: int | None = None, exact: bool = False) -> Limits:
    """Limits of an `OutputCount`; see Limits. Raises RequestError if no output at all is asked for."""
    if tokens == 0:
        raise RequestError(f"{field} is 0: ask for 1 token at least, or -1 for as many as fit.", param=field)
    return Limits(None if tokens is None or tokens < 0 else tokens, field, context, exact)
