"""The body of POST /v1/responses."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, Literal

from msgspec import Meta, Struct

from onechip.server.schemas import (
    Body,
    CacheRetention,
    ChoiceMode,
    Count,
    Effort,
    JsonObjectFormat,
    Likeliest,
    Sampling,
    TextFormat,
)

Status = Literal["in_progress", "completed", "incomplete"]


class InputText(Struct, tag_field="type", tag="input_text", forbid_unknown_fields=True):
    text: str


class OutputText(Struct, tag_field="type", tag="output_text", forbid_unknown_fields=True):
    """Of an earlier answer; `annotations` and `logprobs` are what servers add, `parsed` what clients do."""

    text: str
    annotations: list[Any] | None = None
    logprobs: list[Any] | None = None
    parsed: Any = None


class ReasoningText(Struct, tag_field="type", tag="reasoning_text", forbid_unknown_fields=True):
    text: str


class SummaryText(Struct, tag_field="type", tag="summary_text", forbid_unknown_fields=True):
    text: str


class _Item(Struct, tag_field="type", kw_only=True, forbid_unknown_fields=True):
    """`id` and `status` are what an item of an earlier answer has: taken, not used."""

    id: str | None = None
    status: Status | None = None


class InputMessage(_Item, tag="message", kw_only=True):
    role: Literal["user", "system", "developer", "assistant"]
    content: str | list[InputText | OutputText]
    phase: Literal["commentary", "final_answer"] | None = None


class FunctionCall(_Item, tag="function_call", kw_only=True):
    """`arguments` is JSON text; `parsed_arguments` is what a client made of it."""

    call_id: str
    name: str
    arguments: str
    namespace: str | None = None
    parsed_arguments: Any = None


class FunctionCallOutput(_Item, tag="function_call_output", kw_only=True):
    call_id: str
    output: str | list[InputText]


class ReasoningItem(_Item, tag="reasoning", kw_only=True):
    """Thoughts of an earlier answer: its `content`, or else its summary."""

    summary: list[SummaryText] = []
    content: list[ReasoningText] | None = None
    encrypted_content: None = None


Item = InputMessage | FunctionCall | FunctionCallOutput | ReasoningItem


class FunctionTool(Struct, tag_field="type", tag="function", kw_only=True, forbid_unknown_fields=True):
    """Arguments keep to the schema if `strict` says so, or if a call is required."""

    name: Annotated[str, Meta(min_length=1)]
    description: str | None = None
    parameters: dict[str, Any] | None = None
    strict: bool | None = None


class NamespaceTool(Struct, tag_field="type", tag="namespace", kw_only=True, forbid_unknown_fields=True):
    """Functions that belong together; `description` has no place in a chat template."""

    name: Annotated[str, Meta(min_length=1)]
    tools: Annotated[list[FunctionTool], Meta(min_length=1)]
    description: str | None = None


class NamedTool(Struct, tag_field="type", tag="function", forbid_unknown_fields=True):
    name: str


class AllowedToolChoice(Struct, tag_field="type", tag="allowed_tools", forbid_unknown_fields=True):
    mode: Literal["auto", "required"]
    tools: Annotated[list[NamedTool], Meta(min_length=1)]


class JsonSchemaFormat(
    Struct, tag_field="type", tag="json_schema", kw_only=True, omit_defaults=True, forbid_unknown_fields=True
):
    """`name` and `description` are the caller's own; answers keep to the schema whatever `strict` says."""

    schema: dict[str, Any]
    name: str | None = None
    description: str | None = None
    strict: bool | None = None


class TextConfig(Body, kw_only=True, forbid_unknown_fields=True):
    NEUTRAL: ClassVar[Mapping[str, tuple[Any, ...]]] = {"verbosity": ("medium",)}

    format: TextFormat | JsonObjectFormat | JsonSchemaFormat | None = None


class ReasoningConfig(Body, kw_only=True, forbid_unknown_fields=True):
    """Summaries are not made: thoughts come as they are, in a reasoning item's `content`."""

    NEUTRAL: ClassVar[Mapping[str, tuple[Any, ...]]] = {"mode": (), "context": ()}

    effort: Effort | None = None
    summary: Literal["auto", "concise", "detailed"] | None = None
    generate_summary: Literal["auto", "concise", "detailed"] | None = None


class ResponsesBody(Sampling, kw_only=True, forbid_unknown_fields=True):
    """POST /v1/responses. Nothing is stored, so `input` holds the whole conversation."""

    NEUTRAL: ClassVar[Mapping[str, tuple[Any, ...]]] = {
        "store": (False,),
        "previous_response_id": (),
        "conversation": (),
        "background": (False,),
        "prompt": (),
        "max_tool_calls": (),
        "truncation": ("disabled",),
        "service_tier": ("auto", "default"),
        "context_management": ([],),
        "moderation": (),
        "stream_options": ({}, {"include_obfuscation": False}),
    }
    ALLOWED: ClassVar[Mapping[str, str]] = {
        "input[].type": "message, function_call, function_call_output or reasoning",
        "input[].content[].type": "input_text or output_text, since this server reads text only",
        "input[].output[].type": "input_text, since this server reads text only",
        "input[].encrypted_content": "null, since nothing is encrypted here; send the thoughts in content",
        "tools[].type": "function or namespace; no tool runs on this server",
        "tools[].tools[].type": "function; no tool runs on this server",
        "tool_choice": "auto, none, required or an object that names tools",
        "tool_choice.type": "function or allowed_tools; no tool runs on this server",
        "tool_choice.tools[].type": "function; no tool runs on this server",
        "text.format.type": "text, json_object or json_schema",
        "include[]": "message.output_text.logprobs, or reasoning.encrypted_content, which has no effect: "
        "thoughts are not encrypted here",
    }
    INSTEAD: ClassVar[Mapping[str, str]] = {
        "store": "nothing is stored here, so send false or leave it out",
        "previous_response_id": "nothing is stored here, so send the conversation so far in input",
        "conversation": "nothing is stored here, so send the conversation so far in input",
        "background": "wait for the answer, or stream it",
        "truncation": "shorten input yourself, since nothing is cut here",
    }
    NESTED: ClassVar[Mapping[str, type[Body]]] = {"text": TextConfig, "reasoning": ReasoningConfig}

    input: str | Annotated[list[Item], Meta(min_length=1)]
    model: str | None = None
    instructions: str | None = None
    max_output_tokens: Count | None = None
    tools: list[FunctionTool | NamespaceTool] | None = None
    tool_choice: ChoiceMode | NamedTool | AllowedToolChoice | None = None
    parallel_tool_calls: bool | None = None
    reasoning: ReasoningConfig | None = None
    text: TextConfig | None = None
    include: list[Literal["reasoning.encrypted_content", "message.output_text.logprobs"]] | None = None
    top_logprobs: Likeliest | None = None
    chat_template_kwargs: dict[str, Any] | None = None
    stream: bool | None = None
    user: str | None = None
    metadata: dict[str, str] | None = None
    client_metadata: dict[str, Any] | None = None
    safety_identifier: str | None = None
    prompt_cache_key: str | None = None
    prompt_cache_retention: CacheRetention | None = None

    @classmethod
    def complete(cls, data: dict[str, Any]) -> None:
        """A message may leave out its type. What searches nowhere is no tool."""
        items = data.get("input")
        for item in items if isinstance(items, list) else ():
            if isinstance(item, dict) and "role" in item:
                item.setdefault("type", "message")
        tools = data.get("tools")
        if isinstance(tools, list):
            data["tools"] = [tool for tool in tools if not _searches_nowhere(tool)]


def _searches_nowhere(tool: Any) -> bool:
    """Codex offers, in every request, a search that may not look at the web; there is nothing else here."""
    searches = isinstance(tool, dict) and str(tool.get("type")).startswith("web_search")
    return searches and tool.get("external_web_access") is False
