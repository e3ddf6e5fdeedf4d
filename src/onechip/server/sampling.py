"""A request's sampling fields and the checkpoint's defaults -> the engine's SamplingParams, checked."""

from __future__ import annotations

import hashlib
import secrets
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import TypeVar

from onechip.engine.guides.bans import AllowedTokens, BadWords
from onechip.engine.types import Guide, SamplingParams
from onechip.errors import RequestError
from onechip.models.generation import GenerationDefaults
from onechip.models.tokenizer import Tokenizer
from onechip.server.schemas import GenerationBody, Sampling

T = TypeVar("T")


def sampling_params(
    body: Sampling,
    defaults: GenerationDefaults,
    max_tokens: int,
    vocab_size: int,
) -> SamplingParams:
    """What the engine is asked for.

    Raises:
        RequestError: fields that are allowed one by one do not go together.
    """
    min_tokens = body.min_tokens or 0
    if min_tokens > max_tokens:
        raise RequestError(
            f"min_tokens is {min_tokens}, but at most {max_tokens} tokens may be generated.",
            param="min_tokens",
        )
    check_ids(body.stop_token_ids or (), "stop_token_ids", vocab_size)
    seed = secrets.randbits(32) if body.seed is None else body.seed
    asked = body.repetition_penalty, body.presence_penalty, body.frequency_penalty
    repetition, presence, frequency = penalties_of_all(body.repeat_last_n, asked, "repeat_last_n")
    return SamplingParams(
        temperature=_given(body.temperature, defaults.temperature),
        top_k=max(_given(body.top_k, defaults.top_k), 0),
        top_p=_given(body.top_p, defaults.top_p),
        min_p=_given(body.min_p, defaults.min_p),
        seed=_engine_seed(seed),
        max_tokens=max_tokens,
        min_tokens=min_tokens,
        stop_token_ids=tuple(dict.fromkeys(body.stop_token_ids or ())),
        ignore_eos=bool(body.ignore_eos),
        frequency_penalty=frequency,
        presence_penalty=presence,
        repetition_penalty=repetition,
        logit_bias=_logit_bias(body.logit_bias or {}, vocab_size),
    )


def _engine_seed(seed: int) -> int:
    """The 32 bits that the engine takes of a signed 64-bit seed: the seed itself, or else a hash of it."""
    return seed if 0 <= seed < 2**32 else _hashed(seed.to_bytes(8, "big", signed=True))


def choice_seed(seed: int, place: int) -> int:
    """The seed of choice `place` of a prompt; the first one has the prompt's own.

    Args:
        seed: 0 <= seed < 2**32.
    """
    return _hashed(seed.to_bytes(4, "big") + place.to_bytes(4, "big")) if place else seed


def _hashed(data: bytes) -> int:
    return int.from_bytes(hashlib.blake2b(data, digest_size=4).digest(), "big")


def _logit_bias(bias: Mapping[str, float], vocab_size: int) -> tuple[tuple[int, float], ...]:
    """Raises RequestError if a key is no token id."""
    for key in bias:
        if not (key.isascii() and key.isdigit()) or str(int(key)) != key:
            raise RequestError(
                f'logit_bias has the key {key!r}; keys are token ids, such as "42".', param="logit_bias"
            )
    check_ids(map(int, bias), "logit_bias", vocab_size)
    return tuple((int(key), float(value)) for key, value in bias.items())


def check_ids(ids: Iterable[int], field: str, vocab_size: int) -> None:
    """Raises RequestError if one of `ids` is beyond the vocabulary."""
    for id in ids:
        if id >= vocab_size:
            raise RequestError(f"{field} has {id}; the vocabulary ends at {vocab_size - 1}.", param=field)


def bans(body: Sampling, tokenizer: Tokenizer) -> Callable[[], tuple[Guide, ...]]:
    """What makes the guides of one answer for `bad_words` and `allowed_token_ids`.

    Each bad word is forbidden as it stands and behind a blank.

    Raises:
        RequestError: an id is none of the vocabulary's, or nothing is left that an answer could begin with.
    """
    allowed = body.allowed_token_ids
    spellings = [spelling for word in body.bad_words or () for spelling in (word, " " + word.lstrip(" "))]
    words = [ids for ids in map(tokenizer.encode, spellings) if ids]
    if allowed is not None:
        check_ids(allowed, "allowed_token_ids", tokenizer.vocab_size)
        left = set(allowed) - {ids[0] for ids in words if len(ids) == 1}
        _check_left(left, body, tokenizer)

    def guides() -> tuple[Guide, ...]:
        only = (AllowedTokens(allowed),) if allowed else ()
        return (*only, BadWords(words)) if words else only

    return guides


def _check_left(left: set[int], body: Sampling, tokenizer: Tokenizer) -> None:
    """Raises RequestError if an answer cannot begin with any of `left`, which are all that is allowed."""
    if not left:
        raise RequestError(
            "bad_words has all that allowed_token_ids allows; leave one out.", param="bad_words"
        )
    stops = {*(body.stop_token_ids or ()), *(() if body.ignore_eos else tokenizer.stop_ids)}
    if body.min_tokens and left <= stops:
        raise RequestError(
            f"min_tokens is {body.min_tokens}, but allowed_token_ids allows only tokens that end the answer; "
            "leave one out.",
            param="min_tokens",
        )


@dataclass(frozen=True, slots=True)
class Limits:
    """How long an answer may become.

    Attributes:
        tokens: of the answer at the most; None: the rest of the context; 0: there is none, the prompt alone
            must fit.
        field: what the client calls `tokens`.
        context: tokens of prompt and answer together, if fewer than the engine's.
        exact: so many tokens are wanted, not only allowed.
    """

    tokens: int | None
    field: str
    context: int | None = None
    exact: bool = False


def output_limit(limits: Limits, prompt_tokens: int, context: int, largest_context: int) -> int:
    """How many tokens the answer may have: as many as were allowed, or the rest of the context.

    Coding agents allow 32,000 in every request, whatever the context is. Where the prompt does not fit, they
    sum the conversation up and go on, if the error has Anthropic's "prompt is too long: 9 tokens > 8".

    Args:
        context: tokens of one request that the engine takes, prompt and output together.
        largest_context: what `context` could be with this model.

    Raises:
        RequestError: the prompt, or the prompt and what is wanted behind it, do not fit in the context.
    """
    context = min(limits.context or context, context)
    room, least = context - prompt_tokens, 0 if limits.tokens == 0 else 1
    if room < least:
        larger = f", or start the server with a larger --context (this model takes {largest_context})"
        raise RequestError(
            f"The prompt is too long: {prompt_tokens} tokens > {context - least}, since the context is "
            f"{context} tokens for prompt and output together: shorten the prompt"
            f"{larger if context < largest_context else ''}.",
            code="context_length_exceeded",
        )
    if limits.exact and limits.tokens is not None and limits.tokens > room:
        raise RequestError(
            f"{limits.field} is {limits.tokens}, but the prompt has {prompt_tokens} of the context's "
            f"{context} tokens: ask for {room} at the most, or leave it out.",
            param=limits.field,
            code="context_length_exceeded",
        )
    return room if limits.tokens is None else min(limits.tokens, room)


def penalties_of_all(
    last: int | None, asked: tuple[float | None, float | None, float | None], field: str
) -> tuple[float, float, float]:
    """Penalties for repetition, presence and frequency that look at the last tokens: -1 or None all, 0 none.

    Args:
        field: what the client calls `last`.

    Raises:
        RequestError: they are to look at a part of the tokens only.
    """
    repetition, presence, frequency = asked[0] or 1.0, asked[1] or 0.0, asked[2] or 0.0
    if last == 0:
        return 1.0, 0.0, 0.0
    if last is not None and last > 0 and (repetition, presence, frequency) != (1, 0, 0):
        raise RequestError(
            f"{field} is {last}, but penalties look at all tokens here: send -1 or leave it out, or 0 for no "
            "penalties.",
            param=field,
        )
    return repetition, presence, frequency


def check_stream(body: GenerationBody) -> None:
    """Raises RequestError for options of a stream that nobody asked for, and for what no stream has."""
    if body.stream_options is not None and not body.stream:
        raise RequestError("stream_options needs stream to be true.", param="stream_options")
    if body.stream and body.prompt_logprobs is not None:
        raise RequestError(
            "prompt_logprobs does not go with stream: no prompt is told of in a stream; leave one out.",
            param="prompt_logprobs",
        )


def stop_strings(body: Sampling) -> list[str]:
    """The body's stop strings as a list."""
    return [body.stop] if isinstance(body.stop, str) else body.stop or []


def _given(value: T | None, default: T) -> T:
    return default if value is None else value
