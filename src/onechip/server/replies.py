"""Bodies of the API's answers, field by field as OpenAI's clients read them.

`token_ids`, `prompt_token_ids` and `prompt_logprobs` are vLLM's, and stand only where they were asked for.
"""

from __future__ import annotations

from typing import Literal

from msgspec import UNSET, Struct, UnsetType

from onechip.errors import OnechipError
from onechip.server.answer import FinishReason
from onechip.server.logprobs import ChatLogprobs, PromptLogprobs, TextLogprobs

ChoiceEnd = FinishReason | Literal["error"]
"""Why a choice ended; "error" only where others of the same request did better."""


class PromptDetails(Struct):
    cached_tokens: int = 0


class CompletionDetails(Struct):
    reasoning_tokens: int


class Usage(Struct):
    """`completion_tokens_details` stands only where there are thoughts."""

    prompt_tokens: int
    total_tokens: int
    completion_tokens: int
    prompt_tokens_details: PromptDetails
    completion_tokens_details: CompletionDetails | UnsetType = UNSET

    @classmethod
    def of(cls, prompt: int, cached: int, output: int, thoughts: int) -> Usage:
        """So many tokens; `cached` are of the prompt, `thoughts` of the output."""
        details = CompletionDetails(thoughts) if thoughts else UNSET
        return cls(prompt, prompt + output, output, PromptDetails(cached), details)


class FunctionCall(Struct, kw_only=True, omit_defaults=True):
    """`name` stands only where the call begins."""

    name: str | UnsetType = UNSET
    arguments: str


class ToolCall(Struct, kw_only=True, omit_defaults=True):
    """`id` and `type` stand only where the call begins, `index` only in a stream."""

    index: int | UnsetType = UNSET
    id: str | UnsetType = UNSET
    type: str | UnsetType = UNSET
    function: FunctionCall


class ChatDelta(Struct, omit_defaults=True):
    """Thoughts have both names that clients know: `reasoning` of vLLM, and DeepSeek's."""

    role: str | UnsetType = UNSET
    content: str | UnsetType = UNSET
    reasoning: str | UnsetType = UNSET
    reasoning_content: str | UnsetType = UNSET
    tool_calls: list[ToolCall] | UnsetType = UNSET


class ChatMessage(Struct, tag_field="role", tag="assistant"):
    content: str | None
    reasoning: str | UnsetType = UNSET
    reasoning_content: str | UnsetType = UNSET
    tool_calls: list[ToolCall] | UnsetType = UNSET
    refusal: None = None


class ChoiceFailure(Struct):
    """Why a choice failed while others of the same request did not."""

    message: str
    type: str


def choice_failure(error: OnechipError | None) -> ChoiceFailure | UnsetType:
    """What a choice says of `error`."""
    return UNSET if error is None else ChoiceFailure(error.message, error.kind)


class ChatChoice(Struct, kw_only=True):
    index: int = 0
    message: ChatMessage
    logprobs: ChatLogprobs | None = None
    finish_reason: ChoiceEnd
    token_ids: list[int] | UnsetType = UNSET
    error: ChoiceFailure | UnsetType = UNSET


class ChatChunkChoice(Struct, kw_only=True):
    index: int = 0
    delta: ChatDelta
    logprobs: ChatLogprobs | None = None
    finish_reason: ChoiceEnd | None = None
    token_ids: list[int] | UnsetType = UNSET
    error: ChoiceFailure | UnsetType = UNSET


class TextChoice(Struct, kw_only=True):
    """Of a whole completion and of a piece of a streamed one."""

    index: int = 0
    text: str
    logprobs: TextLogprobs | None = None
    finish_reason: ChoiceEnd | None = None
    token_ids: list[int] | UnsetType = UNSET
    prompt_token_ids: list[int] | UnsetType = UNSET
    prompt_logprobs: PromptLogprobs | UnsetType = UNSET
    error: ChoiceFailure | UnsetType = UNSET


class ChatCompletion(Struct, tag_field="object", tag="chat.completion"):
    id: str
    created: int
    model: str
    choices: list[ChatChoice]
    usage: Usage
    prompt_logprobs: PromptLogprobs | UnsetType = UNSET
    prompt_token_ids: list[int] | UnsetType = UNSET


class ChatChunk(Struct, tag_field="object", tag="chat.completion.chunk"):
    """`usage` is left out unless the client asked for it; then it is null in all events but some."""

    id: str
    created: int
    model: str
    choices: list[ChatChunkChoice]
    usage: Usage | UnsetType | None = UNSET
    prompt_token_ids: list[int] | UnsetType = UNSET


class TextCompletion(Struct, tag_field="object", tag="text_completion"):
    """Of a whole completion and of a piece of a streamed one; for `usage` see ChatChunk."""

    id: str
    created: int
    model: str
    choices: list[TextChoice]
    usage: Usage | UnsetType | None = UNSET


class ModelCard(Struct, tag_field="object", tag="model", kw_only=True):
    """What OpenAI's and Anthropic's clients read of a model, which ask on the same path.

    `max_model_len` is vLLM's: tokens of prompt and output together. From `type` on it is Anthropic's.
    """

    id: str
    created: int
    max_model_len: int
    root: str
    owned_by: str = "onechip"
    parent: None = None
    type: Literal["model"] = "model"
    display_name: str
    created_at: str
    max_input_tokens: int
    max_tokens: int


class ModelList(Struct, tag_field="object", tag="list", kw_only=True):
    """From `first_id` on it is Anthropic's: there is one page."""

    data: list[ModelCard]
    first_id: str
    last_id: str
    has_more: bool = False


class Tokens(Struct):
    count: int
    max_model_len: int
    tokens: list[int]
    token_strs: list[str] | None = None


class Detokenized(Struct):
    """The text, under vLLM's name and llama.cpp's."""

    prompt: str
    content: str


class Version(Struct):
    """GET /version, in vLLM's form: ours."""

    version: str


class Health(Struct):
    status: Literal["loading", "ready", "draining", "failed"]
    message: str


class Readiness(Struct):
    """`stage` and `progress` (0 to 1) say how far loading is."""

    status: Literal["loading", "ready", "draining", "failed"]
    model: str
    message: str
    stage: str = ""
    progress: float = 0.0
