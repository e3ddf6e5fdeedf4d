"""Bodies and events of the Responses API, field by field as OpenAI's clients read them."""

from __future__ import annotations

from typing import Any, Literal

from msgspec import UNSET, Struct, UnsetType

from onechip.server.logprobs import TokenLogprob
from onechip.server.responses.body import (
    AllowedToolChoice,
    FunctionTool,
    NamedTool,
    NamespaceTool,
    ReasoningConfig,
    ReasoningText,
    Status,
    SummaryText,
    TextConfig,
)
from onechip.server.schemas import ChoiceMode


class TextPart(Struct, tag_field="type", tag="output_text"):
    text: str
    annotations: list[Any] = []
    logprobs: list[TokenLogprob] = []


class MessageItem(Struct, tag_field="type", tag="message"):
    id: str
    status: Status
    content: list[TextPart]
    role: str = "assistant"


class ReasoningReply(Struct, tag_field="type", tag="reasoning"):
    id: str
    status: Status
    content: list[ReasoningText]
    summary: list[SummaryText] = []


class CallItem(Struct, tag_field="type", tag="function_call"):
    id: str
    status: Status
    call_id: str
    name: str
    arguments: str
    namespace: str | UnsetType = UNSET


OutputItem = MessageItem | ReasoningReply | CallItem
Part = TextPart | ReasoningText


class InputDetails(Struct):
    cached_tokens: int
    cache_write_tokens: int = 0


class OutputDetails(Struct):
    reasoning_tokens: int


class ResponsesUsage(Struct):
    input_tokens: int
    input_tokens_details: InputDetails
    output_tokens: int
    output_tokens_details: OutputDetails
    total_tokens: int


class IncompleteDetails(Struct):
    reason: Literal["max_output_tokens"] = "max_output_tokens"


class Failure(Struct):
    message: str
    code: Literal["server_error", "invalid_prompt"] = "server_error"


class ResponseObject(Struct, tag_field="object", tag="response", kw_only=True):
    """What was asked for, beside what came of it."""

    id: str
    created_at: int
    status: Literal["in_progress", "completed", "incomplete", "failed"]
    model: str
    output: list[OutputItem]
    usage: ResponsesUsage | None = None
    error: Failure | None = None
    incomplete_details: IncompleteDetails | None = None
    instructions: str | None
    max_output_tokens: int | None
    metadata: dict[str, str]
    parallel_tool_calls: bool
    reasoning: ReasoningConfig
    temperature: float
    text: TextConfig
    tool_choice: ChoiceMode | NamedTool | AllowedToolChoice
    tools: list[FunctionTool | NamespaceTool]
    top_p: float
    user: str | None
    background: bool = False
    previous_response_id: None = None
    service_tier: str = "default"
    store: bool = False
    top_logprobs: int = 0
    truncation: str = "disabled"


class _Event(Struct, tag_field="type", kw_only=True):
    sequence_number: int


class Created(_Event, tag="response.created"):
    response: ResponseObject


class InProgress(_Event, tag="response.in_progress"):
    response: ResponseObject


class Completed(_Event, tag="response.completed"):
    response: ResponseObject


class Incomplete(_Event, tag="response.incomplete"):
    response: ResponseObject


class Failed(_Event, tag="response.failed"):
    response: ResponseObject


class ItemAdded(_Event, tag="response.output_item.added", kw_only=True):
    output_index: int
    item: OutputItem


class ItemDone(_Event, tag="response.output_item.done", kw_only=True):
    output_index: int
    item: OutputItem


class _OfItem(_Event, kw_only=True):
    item_id: str
    output_index: int


class _OfPart(_OfItem, kw_only=True):
    """Items have one part here."""

    content_index: int = 0


class PartAdded(_OfPart, tag="response.content_part.added", kw_only=True):
    part: Part


class PartDone(_OfPart, tag="response.content_part.done", kw_only=True):
    part: Part


class TextDelta(_OfPart, tag="response.output_text.delta", kw_only=True):
    delta: str
    logprobs: list[TokenLogprob] = []


class TextDone(_OfPart, tag="response.output_text.done", kw_only=True):
    text: str
    logprobs: list[TokenLogprob] = []


class ReasoningDelta(_OfPart, tag="response.reasoning_text.delta", kw_only=True):
    delta: str


class ReasoningDone(_OfPart, tag="response.reasoning_text.done", kw_only=True):
    text: str


class ArgumentsDelta(_OfItem, tag="response.function_call_arguments.delta", kw_only=True):
    delta: str


class ArgumentsDone(_OfItem, tag="response.function_call_arguments.done", kw_only=True):
    name: str
    arguments: str


class InputTokens(Struct, tag_field="object", tag="response.input_tokens"):
    """POST /v1/responses/input_tokens."""

    input_tokens: int
