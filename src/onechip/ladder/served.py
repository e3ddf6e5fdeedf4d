"""A server's /v1/models in; the model's id and context out, or one sentence on what is there instead."""

from __future__ import annotations

import msgspec

from onechip.errors import EngineError
from onechip.ladder.client import fetch
from onechip.ladder.target import Target


class _Meta(msgspec.Struct):
    n_ctx: float | None = None


class _Model(msgspec.Struct):
    """An entry of /v1/models; the context is called by each engine as it likes."""

    id: str
    max_model_len: float | None = None
    context_length: float | None = None
    meta: _Meta | None = None


class _Models(msgspec.Struct):
    data: list[_Model] | None = None


class KeyWantedError(EngineError):
    """A server asks for an API key; asking again gives the same."""

    def __init__(self, target: Target, status: int) -> None:
        what = "refuses the API key that it was given" if target.api_key else "wants an API key"
        super().__init__(
            f"{target.url} {what} (HTTP {status}): an arm with a URL gets one by --api-key or OPENAI_API_KEY,"
            " an engine that the ladder starts must want none."
        )


def served_model(target: Target, wanted: str) -> tuple[str, int | None]:
    """The model's id and its context from /v1/models: the one called `wanted`, else the first.

    Raises:
        KeyWantedError: it asks for an API key.
        EngineError: nothing answers there, or not as OpenAI's API does, or the engine lists no model.
    """
    url = f"{target.url}/v1/models"
    try:
        response = fetch(target, "/v1/models")
    except OSError as error:
        raise EngineError(f"{url} cannot be asked: {error}.") from None
    status, kind = response.head.status, response.head.headers.get("content-type", "")
    if status == 401:
        raise KeyWantedError(target, status)
    if status != 200:
        raise EngineError(f"{url} answers with HTTP {status}: is an OpenAI-compatible engine there?")
    try:
        listed = msgspec.json.decode(response.body, type=_Models).data
    except msgspec.ValidationError as error:
        raise EngineError(f"{url} answers in another shape than OpenAI's API: {error}.") from None
    except (msgspec.DecodeError, ValueError):
        what = kind.partition(";")[0] or "something"
        raise EngineError(
            f"{url} answers with {what} that is not JSON: is an OpenAI-compatible engine there?"
        ) from None
    if not listed:
        raise EngineError(f"{url} lists no model: is an OpenAI-compatible engine there?")
    entry = next((model for model in listed if model.id == wanted), listed[0])
    context = entry.max_model_len or entry.context_length or (entry.meta.n_ctx if entry.meta else None)
    return entry.id, int(context) if context else None
