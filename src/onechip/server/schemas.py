"""Bodies of the requests that the API takes, as strict structs: what is not declared here is refused."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, Literal

from msgspec import UNSET, Meta, Struct, UnsetType

from onechip.engine.types import MAX_LOGIT_BIAS, MAX_LOGPROBS
from onechip.server import neutral

Temperature = Annotated[float, Meta(ge=0, le=2)]
Share = Annotated[float, Meta(ge=0, le=1)]
PositiveShare = Annotated[float, Meta(gt=0, le=1)]
TopK = Annotated[int, Meta(ge=-1, le=2**31 - 1)]
Count = Annotated[int, Meta(ge=1)]
Seed = Annotated[int, Meta(ge=-(2**63), le=2**63 - 1)]
TokenId = Annotated[int, Meta(ge=0, le=2**31 - 1)]
StopString = Annotated[str, Meta(min_length=1)]
StopStrings = Annotated[list[StopString], Meta(max_length=16)]
Penalty = Annotated[float, Meta(ge=-2, le=2)]
RepetitionPenalty = Annotated[float, Meta(ge=0.01, le=100)]
LogitBias = Annotated[dict[str, Annotated[float, Meta(ge=-100, le=100)]], Meta(max_length=MAX_LOGIT_BIAS)]
Likeliest = Annotated[int, Meta(ge=0, le=MAX_LOGPROBS)]
ChoiceCount = Annotated[int, Meta(ge=1, le=128)]
ThinkingBudget = Annotated[int, Meta(ge=-1, le=2**31 - 1)]
"""Tokens of thoughts at the most; -1: as many as the model likes."""

Effort = Literal["none", "minimal", "low", "medium", "high", "xhigh", "max"]


class Body(Struct, kw_only=True, forbid_unknown_fields=True):
    """The body of a request, or an object of it with fields of its own.

    Attributes:
        NEUTRAL: fields that we do not support -> values that ask for nothing.
        ALLOWED: path of a field with listed values (without indices) -> how errors say what may stand there.
        INSTEAD: unsupported field -> what to do instead; else it is to be left out.
        OTHER_NAMES: other servers' name of a field -> ours.
        NESTED: fields that hold a Body.
    """

    NEUTRAL: ClassVar[Mapping[str, tuple[Any, ...]]] = {}
    ALLOWED: ClassVar[Mapping[str, str]] = {}
    INSTEAD: ClassVar[Mapping[str, str]] = {}
    OTHER_NAMES: ClassVar[Mapping[str, str]] = {}
    NESTED: ClassVar[Mapping[str, type[Body]]] = {}

    @classmethod
    def complete(cls, data: dict[str, Any]) -> None:
        """Write out what this protocol lets a client leave out although it tells one kind from another."""


class StreamOptions(Struct, forbid_unknown_fields=True):
    """`continuous_usage_stats` (vLLM's) puts the usage so far into every event."""

    include_usage: bool | None = None
    continuous_usage_stats: bool | None = None


class Sampling(Body, kw_only=True, forbid_unknown_fields=True):
    """How tokens are chosen and when an answer ends, whichever protocol says it.

    `repeat_last_n` is llama.cpp's: how many tokens penalties look at, -1 all, 0 none.
    """

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
    frequency_penalty: Penalty | None = None
    presence_penalty: Penalty | None = None
    repetition_penalty: RepetitionPenalty | None = None
    repeat_last_n: Annotated[int, Meta(ge=-1, lt=2**31)] | None = None
    logit_bias: LogitBias | None = None
    bad_words: Annotated[list[StopString], Meta(max_length=1024)] | None = None
    allowed_token_ids: Annotated[list[TokenId], Meta(min_length=1)] | None = None
    include_stop_str_in_output: bool | None = None


class TextFormat(Struct, tag_field="type", tag="text", forbid_unknown_fields=True):
    pass


class JsonObjectFormat(
    Struct, tag_field="type", tag="json_object", omit_defaults=True, forbid_unknown_fields=True
):
    """`schema` is llama.cpp's."""

    schema: dict[str, Any] | None = None


class NamedSchema(Struct, kw_only=True, forbid_unknown_fields=True):
    """`name` and `description` are the caller's own; answers keep to the schema whatever `strict` says."""

    schema: dict[str, Any]
    name: str | None = None
    description: str | None = None
    strict: bool | None = None


class JsonSchemaFormat(Struct, tag_field="type", tag="json_schema", forbid_unknown_fields=True):
    json_schema: NamedSchema


ResponseFormat = TextFormat | JsonObjectFormat | JsonSchemaFormat
CacheRetention = Literal["in_memory", "in-memory", "24h"]
SchemaOrText = dict[str, Any] | str


class StructuredOutputs(Body, kw_only=True, forbid_unknown_fields=True):
    """vLLM's. JSON comes in one line whatever `disable_any_whitespace` says."""

    NEUTRAL: ClassVar[Mapping[str, tuple[Any, ...]]] = {
        "disable_any_whitespace": (False, True),
        "disable_additional_properties": (False,),
        "whitespace_pattern": (),
        "structural_tag": (),
    }

    json: SchemaOrText | None = None
    regex: str | None = None
    choice: list[str] | None = None
    grammar: str | None = None
    json_object: bool | None = None


class TypedGrammar(Struct, forbid_unknown_fields=True):
    """mistral.rs's: a schema, or a text."""

    type: Literal["regex", "json_schema", "lark"]
    value: SchemaOrText


class GenerationBody(Sampling, kw_only=True, forbid_unknown_fields=True):
    """What chat and plain completions have in common.

    `user`, `metadata`, `safety_identifier`, `prompt_cache_key`, `prompt_cache_retention` are the caller's own
    labels and wishes about time: taken, not used. So is vLLM's `guided_decoding_backend`, the library that
    shall hold an answer to its form. `request_id` is vLLM's: what the answer's id ends with.
    """

    NEUTRAL: ClassVar[Mapping[str, tuple[Any, ...]]] = {
        **neutral.OPENAI,
        **neutral.LLAMA_CPP,
        **neutral.VLLM_AND_SGLANG,
        "best_of": (1,),
        "echo": (False,),
        "suffix": ("",),
        "continue_final_message": (False,),
        "add_special_tokens": (),
        "reasoning_effort": (),
        "thinking_token_budget": (),
        "thinking_budget_tokens": (),
        "reasoning_budget_tokens": (),
    }

    INSTEAD: ClassVar[Mapping[str, str]] = {"n_probs": "ask with logprobs"}
    OTHER_NAMES: ClassVar[Mapping[str, str]] = {
        "no_stop_trim": "include_stop_str_in_output",
        "repeat_penalty": "repetition_penalty",
        "rid": "request_id",
    }
    ALLOWED: ClassVar[Mapping[str, str]] = {
        "response_format.type": "text, json_object or json_schema",
        "grammar.type": "regex, json_schema or lark",
    }
    NESTED: ClassVar[Mapping[str, type[Body]]] = {"structured_outputs": StructuredOutputs}

    model: str | None = None
    max_tokens: Count | None = None
    n: ChoiceCount | None = None
    prompt_logprobs: Likeliest | None = None
    return_token_ids: bool | None = None
    return_tokens_as_token_ids: bool | None = None
    stream: bool | None = None
    stream_options: StreamOptions | None = None
    user: str | None = None
    metadata: dict[str, str] | None = None
    safety_identifier: str | None = None
    prompt_cache_key: str | None = None
    prompt_cache_retention: CacheRetention | None = None
    request_id: Annotated[str, Meta(min_length=1, max_length=256)] | None = None
    response_format: ResponseFormat | None = None
    structured_outputs: StructuredOutputs | None = None
    guided_json: SchemaOrText | None = None
    guided_regex: str | None = None
    guided_choice: list[str] | None = None
    guided_grammar: str | None = None
    guided_decoding_backend: str | None = None
    regex: str | None = None
    ebnf: str | None = None
    grammar: str | TypedGrammar | None = None
    json_schema: SchemaOrText | None = None


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
    """Arguments keep to the schema if `strict` says so, or if a call is required."""

    name: Annotated[str, Meta(min_length=1)]
    description: str | None = None
    parameters: dict[str, Any] | None = None
    strict: bool | None = None


class Tool(Struct, kw_only=True, forbid_unknown_fields=True):
    """`type` comes first, as models learned it: some templates print the whole tool as it stands here."""

    type: Literal["function"] = "function"
    function: Function


class FunctionName(Struct, forbid_unknown_fields=True):
    name: str


class NamedTool(Struct, tag_field="type", tag="function", forbid_unknown_fields=True):
    function: FunctionName


class AllowedTools(Struct, forbid_unknown_fields=True):
    mode: Literal["auto", "required"]
    tools: Annotated[list[NamedTool], Meta(min_length=1)]


class AllowedToolChoice(Struct, tag_field="type", tag="allowed_tools", forbid_unknown_fields=True):
    allowed_tools: AllowedTools


ChoiceMode = Literal["auto", "none", "required"]
ToolChoice = ChoiceMode | NamedTool | AllowedToolChoice


class ChatBody(GenerationBody, kw_only=True, forbid_unknown_fields=True):
    """POST /v1/chat/completions. The budget of thoughts has vLLM's name or one of llama.cpp's.

    `include_reasoning` is vLLM's: whether the answer shows its thoughts.
    """

    NEUTRAL: ClassVar[Mapping[str, tuple[Any, ...]]] = {**GenerationBody.NEUTRAL, **neutral.CHAT}
    ALLOWED: ClassVar[Mapping[str, str]] = {
        **GenerationBody.ALLOWED,
        "messages[].role": "system, developer, user, assistant or tool",
        "messages[].content[].type": "text, since this server reads text only",
        "messages[].tool_calls[].type": "function",
        "tools[].type": "function",
        "tool_choice": "auto, none, required or an object that names tools",
        "tool_choice.type": "function or allowed_tools",
        "tool_choice.allowed_tools.tools[].type": "function",
    }

    messages: Messages
    tools: list[Tool] | None = None
    tool_choice: ToolChoice | None = None
    parallel_tool_calls: bool | None = None
    max_completion_tokens: Count | None = None
    logprobs: bool | None = None
    top_logprobs: Likeliest | None = None
    reasoning_effort: Effort | None = None
    thinking_token_budget: ThinkingBudget | None = None
    thinking_budget_tokens: ThinkingBudget | None = None
    reasoning_budget_tokens: ThinkingBudget | None = None
    include_reasoning: bool | None = None
    chat_template_kwargs: dict[str, Any] | None = None
    add_generation_prompt: bool | None = None
    continue_final_message: bool | None = None


class CompletionBody(GenerationBody, kw_only=True, forbid_unknown_fields=True):
    """POST /v1/completions. `prompt`: a text or a list of token ids, or a list of several."""

    NEUTRAL: ClassVar[Mapping[str, tuple[Any, ...]]] = {
        **GenerationBody.NEUTRAL,
        "add_special_tokens": (True,),
    }
    prompt: str | list[int | str | list[int]]
    max_tokens: Annotated[int, Meta(ge=0)] | None = None
    best_of: ChoiceCount | None = None
    echo: bool | None = None
    logprobs: Likeliest | None = None


class TokenizeBody(Body, kw_only=True, forbid_unknown_fields=True):
    """POST /tokenize, in vLLM's form: a prompt, or messages as for chat."""

    NEUTRAL: ClassVar[Mapping[str, tuple[Any, ...]]] = {"with_pieces": (False,), "parse_special": (True,)}
    INSTEAD: ClassVar[Mapping[str, str]] = {"with_pieces": "ask for return_token_strs"}
    ALLOWED: ClassVar[Mapping[str, str]] = ChatBody.ALLOWED

    model: str | None = None
    prompt: str | None = None
    add_special_tokens: bool = True
    return_token_strs: bool | None = None
    messages: Messages | None = None
    tools: list[Tool] | None = None
    add_generation_prompt: bool | None = None
    continue_final_message: bool | None = None
    chat_template_kwargs: dict[str, Any] | None = None

    @classmethod
    def complete(cls, data: dict[str, Any]) -> None:
        """llama.cpp calls a prompt `content`, and gives it a BOS only where `add_special` says so."""
        if "content" in data and "prompt" not in data:
            data["prompt"] = data.pop("content")
            data["add_special_tokens"] = data.pop("add_special", False)


class DetokenizeBody(Body, kw_only=True, forbid_unknown_fields=True):
    """POST /detokenize, in vLLM's form."""

    tokens: list[TokenId]
    model: str | None = None
