"""POST /v1/completions: a text or token ids in, their continuation out, whole or as a stream."""

from __future__ import annotations

import secrets
import time
from collections.abc import Sequence

from msgspec import UnsetType
from starlette.responses import Response
from starlette.types import Receive

from onechip.errors import RequestError
from onechip.models.chat_parser import Delta, Text
from onechip.server.answer import FinishReason
from onechip.server.conversation import Limits, begin_text
from onechip.server.errors import json_response
from onechip.server.replies import TextChoice, TextCompletion, Usage
from onechip.server.sampling import check_stream_options
from onechip.server.schemas import CompletionBody
from onechip.server.service import Model, Service
from onechip.server.sse import ChunkEvents
from onechip.server.streaming import StreamedAnswer


async def completions(service: Service, body: CompletionBody, receive: Receive) -> Response:
    """Continue one prompt. Without `max_tokens` it may go on to the end of the context.

    Raises:
        OnechipError: the request is wrong, or the engine does not take it.
    """
    check_stream_options(body)
    model = service.model(body.model)
    prompt = await _prompt_ids(body.prompt, model)
    request_id, created = f"cmpl-{secrets.token_hex(16)}", int(time.time())
    limits = Limits(body.max_tokens, "max_tokens")
    generation = begin_text(service, model, prompt, body, limits, request_id)
    model_id = service.config.model_id
    if body.stream:
        chunks = TextChunks(request_id, model_id, created)
        return StreamedAnswer(generation, ChunkEvents(generation, chunks, body.stream_options))
    deltas = await generation.whole(receive)
    choice = TextChoice(text=_text(deltas), finish_reason=generation.answer.finish)
    return json_response(TextCompletion(request_id, created, model_id, [choice], generation.usage))


async def _prompt_ids(prompt: str | Sequence[int | str | list[int]], model: Model) -> list[int]:
    """Token ids of the prompt: a text gets a BOS if it has none, ids are taken as they are."""
    if isinstance(prompt, str):
        return await model.encode(prompt, add_bos=True)
    if len(prompt) == 1 and not isinstance(prompt[0], int):
        return await _prompt_ids(prompt[0], model)
    ids = [id for id in prompt if isinstance(id, int)]
    if len(ids) != len(prompt) or not ids:
        raise RequestError(
            "prompt must be one text or one list of token ids; send several prompts as several requests.",
            param="prompt",
        )
    last = model.tokenizer.vocab_size - 1
    for id in ids:
        if not 0 <= id <= last:
            raise RequestError(f"prompt has token id {id}; the vocabulary is 0 to {last}.", param="prompt")
    return ids


def _text(deltas: Sequence[Delta]) -> str:
    return "".join(delta.text for delta in deltas if isinstance(delta, Text))


class TextChunks:
    """The events of a streamed completion."""

    def __init__(self, id: str, model_id: str, created: int) -> None:
        self._id, self._model_id, self._created = id, model_id, created

    def opening(self) -> list[TextChoice]:
        return []

    def window(self, deltas: Sequence[Delta]) -> list[TextChoice]:
        return [TextChoice(text=_text(deltas))]

    def closing(self, finish: FinishReason) -> TextChoice:
        return TextChoice(text="", finish_reason=finish)

    def body(self, choices: list[TextChoice], usage: Usage | UnsetType | None) -> TextCompletion:
        return TextCompletion(self._id, self._created, self._model_id, choices, usage)
