"""Bodies of Ollama's API, whole or as a line of a stream, field by field as its clients read them."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any, Literal

from msgspec import UNSET, Raw, Struct, UnsetType

from onechip.server.logprobs import TokenLogprob

DoneReason = Literal["stop", "length", "load"]


def timestamp(seconds: float) -> str:
    """`seconds` since 1970 as Ollama's clients read a time."""
    return datetime.fromtimestamp(seconds, UTC).isoformat().replace("+00:00", "Z")


class CalledFunction(Struct):
    index: int
    name: str
    arguments: Raw


class ToolCall(Struct):
    id: str
    function: CalledFunction


class ReplyMessage(Struct, omit_defaults=True, kw_only=True):
    role: str
    content: str
    thinking: str | UnsetType = UNSET
    tool_calls: list[ToolCall] | UnsetType = UNSET


class Figures(Struct, omit_defaults=True, kw_only=True):
    """Only where `done`; durations are nanoseconds.

    `prompt_eval_duration` is the time to the first token, waiting for a slot included; `load_duration` is 0,
    since the model is loaded before requests are taken.
    """

    done_reason: DoneReason | UnsetType = UNSET
    total_duration: int | UnsetType = UNSET
    load_duration: int | UnsetType = UNSET
    prompt_eval_count: int | UnsetType = UNSET
    prompt_eval_duration: int | UnsetType = UNSET
    eval_count: int | UnsetType = UNSET
    eval_duration: int | UnsetType = UNSET


class ChatReply(Figures, kw_only=True):
    """Also a line of a stream."""

    model: str
    created_at: str
    message: ReplyMessage
    done: bool
    logprobs: list[TokenLogprob] | UnsetType = UNSET


class GenerateReply(Figures, kw_only=True):
    """Also a line of a stream."""

    model: str
    created_at: str
    response: str
    thinking: str | UnsetType = UNSET
    done: bool
    logprobs: list[TokenLogprob] | UnsetType = UNSET


class ModelDetails(Struct):
    """What is not known is empty."""

    format: str
    family: str
    families: list[str]
    parent_model: str = ""
    parameter_size: str = ""
    quantization_level: str = ""


class ListedModel(Struct):
    """`size` is that of the weights' files in bytes."""

    name: str
    model: str
    modified_at: str
    size: int
    details: ModelDetails
    digest: str = ""


class RunningModel(Struct):
    """`expires_at` is when Ollama would unload it; here it stays."""

    name: str
    model: str
    size: int
    details: ModelDetails
    context_length: int
    expires_at: str
    digest: str = ""


class Running(Struct):
    """GET /api/ps."""

    models: list[RunningModel]


class Tags(Struct):
    """GET /api/tags."""

    models: list[ListedModel]


class Shown(Struct):
    """POST /api/show; the template is jinja, as it comes with the checkpoint."""

    template: str
    details: ModelDetails
    model_info: dict[str, Any]
    capabilities: list[str]
    modified_at: str
    parameters: str = ""
    modelfile: str = ""
    license: str = ""


class Version(Struct):
    """GET /api/version."""

    version: str
