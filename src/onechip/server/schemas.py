"""Bodies of the requests that the API takes, as strict structs: what is not declared here is refused."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from msgspec import UNSET, Meta, Struct, UnsetType

Temperature = Annotated[float, Meta(ge=0, le=2)]
Share = Annotated[float, Meta(ge=0, le=1)]
PositiveShare = Annotated[float, Meta(gt=0, le=1)]
TopK = Annotated[int, Meta(ge=-1, le=2**31 - 1)]
Count = Annotated[int, Meta(ge=1)]
Seed = Annotated[int, Meta(ge=-(2**63), le=2**63 - 1)]
TokenId = Annotated[int, Meta(ge=0, le=2**31 - 1)]
StopString = Annotated[str, Meta(min_length=1)]
StopStrings = Annotated[list[StopString], Meta(max_length=16)]


class StreamOptions(Struct, forbid_unknown_fields=True):
    """`continuous_usage_stats` (vLLM's) puts the usage so far into every event."""

    include_usage: bool | None = None
    continuous_usage_stats: bool | None = None


class GenerationBody(Struct, kw_only=True, forbid_unknown_fields=True):
    """What chat and plain completions have in common.

    `user`, `metadata`, `safety_identifier`, `prompt_cache_key` are the caller's own labels: taken, not used.
    """

    model: str | None = None
    temperature: Temperature | None = None
    top_p: PositiveShare | None = None
    top_k: TopK | None = None
    min_p: Share | None = None
    seed: Seed | None = None
    max_tokens: Count | None = None
    min_tokens: Annotated[int, Meta(ge=0)] | None = None
    stop: StopString | StopStrings | None = None
    stop_token_ids: list[TokenId] | None = None
    ignore_eos: bool | None = None
    skip_special_tokens: bool | None = None
    stream: bool | None = None
    stream_options: StreamOptions | None = None
    user: str | None = None
    metadata: dict[str, str] | None = None
    safety_identifier: str | None = None
    prompt_cache_key: str | None = None


class TextPart(Struct, tag_field="type", tag="text", forbid_unknown_fields=True):
    text: str


Content = str | list[TextPart]


class FunctionCall(Struct, forbid_unknown_fields=True):
    """`arguments` is JSON text, as OpenAI has it."""

    name: str
    arguments: str = ""


class ToolCall(Struct, forbid_unknown_fields=True):
    """`index` is what a client that put a streamed answer together may have left in it."""

    id: str
    function: FunctionCall
    type: Literal["function"] = "function"
    index: int | UnsetType | None = UNSET


class _Message(Struct, tag_field="role", omit_defaults=True, kw_only=True, forbid_unknown_fields=True):
    name: str | None = None


class SystemMessage(_Message, tag="system"):
    content: Content


class DeveloperMessage(_Message, tag="developer"):
    content: Content


class UserMessage(_Message, tag="user"):
    content: Content


class ToolMessage(_Message, tag="tool"):
    content: Content
    tool_call_id: str


class AssistantMessage(_Message, tag="assistant"):
    """An earlier answer, also in the form in which the openai client hands it back.

    `refusal` and `annotations` come from other servers' answers; no template has a place for them.
    """

    content: Content | None = None
    tool_calls: list[ToolCall] | None = None
    reasoning: str | None = None
    reasoning_content: str | None = None
    refusal: str | None = None
    annotations: list[Any] | None = None
    audio: None = None
    function_call: None = None


Message = SystemMessage | DeveloperMessage | UserMessage | AssistantMessage | ToolMessage
Messages = Annotated[list[Message], Meta(min_length=1)]


class Function(Struct, omit_defaults=True, forbid_unknown_fields=True):
    """`strict` would promise that arguments keep to the schema, which needs guided decoding."""

    name: Annotated[str, Meta(min_length=1)]
    description: str | None = None
    parameters: dict[str, Any] | None = None
    strict: Literal[False] | None = None


class Tool(Struct, forbid_unknown_fields=True):
    function: Function
    type: Literal["function"] = "function"


class ResponseFormat(Struct, forbid_unknown_fields=True):
    type: Literal["text"]


class ChatBody(GenerationBody, kw_only=True, forbid_unknown_fields=True):
    """POST /v1/chat/completions."""

    messages: Messages
    tools: list[Tool] | None = None
    tool_choice: Literal["auto", "none"] | None = None
    parallel_tool_calls: bool | None = None
    max_completion_tokens: Count | None = None
    response_format: ResponseFormat | None = None
    chat_template_kwargs: dict[str, Any] | None = None


class CompletionBody(GenerationBody, kw_only=True, forbid_unknown_fields=True):
    """POST /v1/completions. `prompt`: one text or one list of token ids, or a list with just that in it."""

    prompt: str | list[int | str | list[int]]


class TokenizeBody(Struct, kw_only=True, forbid_unknown_fields=True):
    """POST /tokenize, in vLLM's form: a prompt, or messages as for chat."""

    model: str | None = None
    prompt: str | None = None
    add_special_tokens: bool = True
    return_token_strs: bool | None = None
    messages: Messages | None = None
    tools: list[Tool] | None = None
    add_generation_prompt: bool = True
    chat_template_kwargs: dict[str, Any] | None = None


class DetokenizeBody(Struct, kw_only=True, forbid_unknown_fields=True):
    """POST /detokenize, in vLLM's form."""

    tokens: list[TokenId]
    model: str | None = None
