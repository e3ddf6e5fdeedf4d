"""POST /v1/completions: texts or token ids in, their continuations out, whole or as a stream."""

from __future__ import annotations

import secrets
import time
from collections.abc import Sequence

from starlette.responses import Response
from starlette.types import Receive

from onechip.errors import RequestError
from onechip.server.conversation import begin_text
from onechip.server.errors import json_response
from onechip.server.orders import Choices
from onechip.server.replies import TextCompletion
from onechip.server.sampling import Limits, check_stream
from onechip.server.schemas import CompletionBody
from onechip.server.service import Model, Service
from onechip.server.sse import chunk_stream
from onechip.server.structure import structure_of
from onechip.server.text_choices import Prompt, TextForm
from onechip.server.work import apart

MAX_RUNS = 1024
"""Runs of the model that one request may take: one for each answer, shown or not, and each scored prompt."""


async def completions(service: Service, body: CompletionBody, receive: Receive) -> Response:
    """Continue each prompt. Without `max_tokens` it may go on to the end of the context.

    Raises:
        OnechipError: the request is wrong, or the engine does not take it.
    """
    _check(body)
    model = service.model(body.model)
    choices = _choices(body)
    runs = choices.each + (choices.prompt_logprobs is not None)
    request_id, created = f"cmpl-{secrets.token_hex(16)}", int(time.time())
    with service.preparing():
        prompts = await apart(_prompts, body.prompt, runs, model)
        group = await begin_text(
            service,
            model,
            [prompt.ids for prompt in prompts],
            body,
            Limits(body.max_tokens, "max_tokens", exact=bool(body.ignore_eos)),
            request_id,
            structure=structure_of(body),
            choices=choices,
        )
    shown_id = f"cmpl-{body.request_id}" if body.request_id else request_id
    reply = TextCompletion(shown_id, created, service.config.model_id, [])
    form = TextForm(body, model.tokenizer, prompts, group, reply)
    if body.stream:
        return chunk_stream(group, form.chunks(), body.stream_options)
    reply.choices = form.choices(await group.whole(receive))
    reply.usage = group.usage
    return json_response(reply)


def _check(body: CompletionBody) -> None:
    """Raises RequestError if fields do not go together."""
    check_stream(body)
    n, best_of = body.n or 1, body.best_of
    if best_of is not None and best_of < n:
        raise RequestError(
            f"best_of is {best_of}, but n is {n}: the best n are chosen of best_of.", param="best_of"
        )
    for field, asked, why in (
        ("best_of", best_of is not None and best_of > n, "which answer is best is known at the end"),
        ("echo", body.echo and body.logprobs is not None, "a prompt with logprobs is not streamed"),
        ("max_tokens", body.max_tokens == 0, "0 streams nothing"),
    ):
        if body.stream and asked:
            raise RequestError(f"{field} does not go with stream: {why}; leave one out.", param=field)
    if body.max_tokens == 0 and not body.echo and body.prompt_logprobs is None:
        raise RequestError(
            "max_tokens is 0: ask for 1 token at least, or for the prompt with echo or prompt_logprobs.",
            param="max_tokens",
        )


def _choices(body: CompletionBody) -> Choices:
    """Which is best is told by log-probabilities; a prompt that is shown with them has to be scored."""
    each, logprobs, scored = max(body.n or 1, body.best_of or 1), body.logprobs, body.prompt_logprobs
    if body.echo and logprobs is not None:
        scored = max(logprobs, scored or 0)
    if logprobs is None and each > (body.n or 1):
        logprobs = 0
    return Choices(each if body.max_tokens != 0 else 0, logprobs, scored)


def _prompts(prompt: str | Sequence[int | str | list[int]], runs: int, model: Model) -> list[Prompt]:
    """One prompt, or those of a list, each of which takes so many runs."""
    if isinstance(prompt, str) or all(isinstance(one, int) for one in prompt):
        return [one_prompt(prompt, model)]
    if len(prompt) * max(runs, 1) > MAX_RUNS:
        raise RequestError(
            f"prompt has {len(prompt)} prompts, and each takes the model {runs} runs; one request may take "
            f"{MAX_RUNS}: send several requests.",
            param="prompt",
        )
    return [one_prompt(one, model) for one in prompt]


def one_prompt(prompt: str | int | Sequence[int | str | list[int]], model: Model) -> Prompt:
    """A text gets a BOS if it has none, ids are taken as they are.

    Raises:
        RequestError: it is none of both, is empty, or an id is none of the vocabulary's.
    """
    if isinstance(prompt, str):
        ids = model.encode(prompt)
    else:
        ids = [id for id in prompt if isinstance(id, int)] if not isinstance(prompt, int) else []
        if isinstance(prompt, int) or len(ids) != len(prompt):
            raise RequestError(
                "prompt must be a text, a list of token ids, or a list of several such prompts.",
                param="prompt",
            )
    last = model.tokenizer.vocab_size - 1
    for id in ids:
        if not 0 <= id <= last:
            raise RequestError(f"prompt has token id {id}; the vocabulary is 0 to {last}.", param="prompt")
    if not ids:
        raise RequestError("prompt is empty: send one token at least.", param="prompt")
    return Prompt(ids, prompt if isinstance(prompt, str) else None)
