"""A request's sampling fields and the checkpoint's defaults -> the engine's SamplingParams, checked."""

from __future__ import annotations

import hashlib
import secrets
from typing import TypeVar

from onechip.engine.types import SamplingParams
from onechip.errors import RequestError
from onechip.models.generation import GenerationDefaults
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
    for id in body.stop_token_ids or ():
        if id >= vocab_size:
            raise RequestError(
                f"stop_token_ids has {id}; the vocabulary ends at {vocab_size - 1}.", param="stop_token_ids"
            )
    seed = secrets.randbits(32) if body.seed is None else body.seed
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
    )


def _engine_seed(seed: int) -> int:
    """The 32 bits that the engine takes of a signed 64-bit seed: the seed itself, or else a hash of it."""
    if 0 <= seed < 2**32:
        return seed
    digest = hashlib.blake2b(seed.to_bytes(8, "big", signed=True), digest_size=4).digest()
    return int.from_bytes(digest, "big")


def output_limit(
    asked: int | None, field: str, prompt_tokens: int, context: int, largest_context: int
) -> int:
    """How many tokens the answer may have: what was asked for in `field`, or the rest of the context.

    Args:
        context: tokens of one request, prompt and output together.
        largest_context: what `context` could be with this model.

    Raises:
        RequestError: the prompt, or the prompt and what was asked for, do not fit in the context.
    """
    room = context - prompt_tokens
    if room < 1:
        larger = f", or start the server with a larger --context (this model takes {largest_context})"
        raise RequestError(
            f"The prompt has {prompt_tokens} tokens, but the context is {context} tokens for prompt and "
            f"output together: shorten the prompt{larger if context < largest_context else ''}.",
            code="context_length_exceeded",
        )
    if asked is not None and asked > room:
        raise RequestError(
            f"{field} is {asked}, but the prompt has {prompt_tokens} of the context's {context} tokens: "
            f"ask for {room} at the most, or leave it out.",
            param=field,
            code="context_length_exceeded",
        )
    return room if asked is None else asked


def check_stream_options(body: GenerationBody) -> None:
    """Raises RequestError if there are options for a stream that nobody asked for."""
    if body.stream_options is not None and not body.stream:
        raise RequestError("stream_options needs stream to be true.", param="stream_options")


def stop_strings(body: Sampling) -> list[str]:
    """The body's stop strings as a list."""
    return [body.stop] if isinstance(body.stop, str) else body.stop or []


def _given(value: T | None, default: T) -> T:
    return default if value is None else value
