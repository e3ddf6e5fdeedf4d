"""Bodies of the requests that the API takes, as strict structs: what is not declared here is refused."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, Literal

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
Effort = Literal["none", "minimal", "low", "medium", "high", "xhigh", "max"]


class Body(Struct, kw_only=True, forbid_unknown_fields=True):
    """The body of a request, or an object of it with fields of its own.

    Attributes:
        NEUTRAL: fields that we do not support -> values that ask for nothing, as null does everywhere.
        ALLOWED: path of a field with listed values (without indices) -> how errors say what may stand there.
        INSTEAD: unsupported field -> what to do instead; else it is to be left out.
        NESTED: fields that hold a Body.
    """

    NEUTRAL: ClassVar[Mapping[str, tuple[Any, ...]]] = {}
    ALLOWED: ClassVar[Mapping[str, str]] = {}
    INSTEAD: ClassVar[Mapping[str, str]] = {}
    NESTED: ClassVar[Mapping[str, type[Body]]] = {}

    @classmethod
    def complete(cls, data: dict[str, Any]) -> None:
        """Write out what this protocol lets a client leave out although it tells one kind from another."""


class StreamOptions(Struct, forbid_unknown_fields=True):
    """`continuous_usage_stats` (vLLM's) puts the usage so far into every event."""

    include_usage: bool | None = None
    continuous_usage_stats: bool | None = None


class Sampling(Body, kw_only=True, forbid_unknown_fields=True):
    """How tokens are chosen and when an answer ends, whichever protocol says it."""

    temperature: Temperature | None = None
    top_p: PositiveShare | None = None
    top_k: TopK | None = None
    min_p: Share | None = None
    seed: Seed | None = None
    min_tokens: Annotated[int, Meta(ge=0)] | None = None
    stop: StopString | StopStrings | None = None
    stop_token_ids: list[TokenId] | None = None
    ignore_eos: bool | None = None
    skip_special_tokens: bool | None = None


class GenerationBody(Sampling, kw_only=True, forbid_unknown_fields=True):
    """What chat and plain completions have in common.

    `user`, `metadata`, `safety_identifier`, `prompt_cache_key` are the caller's own labels: taken, not used.
    """

    NEUTRAL: ClassVar[Mapping[str, tuple[Any, ...]]] = {
        "n": (1,),
        "frequency_penalty": (0, 0.0),
        "presence_penalty": (0, 0.0),
        "repetition_penalty": (1, 1.0),
        "logit_bias": ({},),
        "logprobs": (False,),
        "top_logprobs": (0,),
        "prompt_logprobs": (),
        "best_of": (1,),
        "echo": (False,),
        "suffix": ("",),
        "store": (False,),
        "modalities": (["text"],),
        "service_tier": ("auto", "default"),
        "include_stop_str_in_output": (False,),
        "continue_final_message": (False,),
        "spaces_between_special_tokens": (True,),
        "add_special_tokens": (),
        "audio": (),
        "prediction": (),
        "reasoning_effort": (),
        "verbosity": ("medium",),
        "web_search_options": (),
        "functions": (),
        "function_call": (),
        "structured_outputs": (),
        "guided_json": (),
        "guided_regex": (),
        "guided_choice": (),
        "guided_grammar": (),
        "response_format": (),
        "length_penalty": (1, 1.0),
        "use_beam_search": (False,),
        "bad_words": ([],),
        "allowed_token_ids": (),
        "return_token_ids": (False,),
        "priority": (0,),
    }

    model: str | None = None
    max_tokens: Count | None = None
    stream: bool | None = None
    stream_options: StreamOptions | None = None
    user: str | None = None
    metadata: dict[str, str] | None = None
    safety_identifier: str | None = None
    prompt_cache_key: str | None = None


class TextPart(Struct, tag_field="type", tag="text", forbid_unknown_fields=True):
    text: str


Content = str | list[TextPart]


class FunctionCall(Struct, omit_defaults=True, forbid_unknown_fields=True):
    """`arguments` is JSON text, as OpenAI has it; `parsed_arguments` is what its client makes of it."""

    name: str
    arguments: str = ""
    parsed_arguments: Any = None


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

    `refusal` and `annotations` come from other servers' answers, `parsed` from the client itself; no template
    has a place for them.
    """

    content: Content | None = None
    tool_calls: list[ToolCall] | None = None
    reasoning: str | None = None
    reasoning_content: str | None = None
    refusal: str | None = None
    annotations: list[Any] | None = None
    audio: None = None
    function_call: None = None
    parsed: Any = None


Message = SystemMessage | DeveloperMessage | UserMessage | AssistantMessage | ToolMessage
Messages = Annotated[list[Message], Meta(min_length=1)]


class Function(Struct, omit_defaults=True, forbid_unknown_fields=True):
    """`strict` would promise that arguments keep to the schema, which needs guided decoding."""

    name: Annotated[str, Meta(min_length=1)]
    description: str | None = None
    parameters: dict[str, Any] | None = None
    strict: Literal[False] | None = None


class Tool(Struct, kw_only=True, forbid_unknown_fields=True):
    """`type` comes first, as models learned it: some templates print the whole tool as it stands here."""

    type: Literal["function"] = "function"
    function: Function


class ResponseFormat(Struct, forbid_unknown_fields=True):
    type: Literal["text"]


class ChatBody(GenerationBody, kw_only=True, forbid_unknown_fields=True):
    """POST /v1/chat/completions."""

    ALLOWED: ClassVar[Mapping[str, str]] = {
        "messages[].role": "system, developer, user, assistant or tool",
        "messages[].content[].type": "text, since this server reads text only",
        "messages[].tool_calls[].type": "function",
        "tools[].type": "function",
        "tools[].function.strict": "false, since arguments are not forced to keep to the schema",
        "tool_choice": "auto or none; required calls and named tools are not supported",
        "response_format.type": "text; JSON modes are not supported",
    }

    messages: Messages
    tools: list[Tool] | None = None
    tool_choice: Literal["auto", "none"] | None = None
    parallel_tool_calls: bool | None = None
    max_completion_tokens: Count | None = None
    response_format: ResponseFormat | None = None
    reasoning_effort: Effort | None = None
    chat_template_kwargs: dict[str, Any] | None = None


class CompletionBody(GenerationBody, kw_only=True, forbid_unknown_fields=True):
    """POST /v1/completions. `prompt`: one text or one list of token ids, or a list with just that in it."""

    prompt: str | list[int | str | list[int]]


class TokenizeBody(Body, kw_only=True, forbid_unknown_fields=True):
    """POST /tokenize, in vLLM's form: a prompt, or messages as for chat."""

    ALLOWED: ClassVar[Mapping[str, str]] = ChatBody.ALLOWED

    model: str | None = None
    prompt: str | None = None
    add_special_tokens: bool = True
    return_token_strs: bool | None = None
    messages: Messages | None = None
    tools: list[Tool] | None = None
    add_generation_prompt: bool = True
    chat_template_kwargs: dict[str, Any] | None = None


class DetokenizeBody(Body, kw_only=True, forbid_unknown_fields=True):
    """POST /detokenize, in vLLM's form."""

    tokens: list[TokenId]
    model: str | None = None
