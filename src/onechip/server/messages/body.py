"""The bodies of POST /v1/messages and /v1/messages/count_tokens."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, Literal

from msgspec import Meta, Struct

from onechip.server.schemas import Body, Count, PositiveShare, Share, StopStrings


class CacheControl(Struct, tag_field="type", tag="ephemeral", forbid_unknown_fields=True):
    """Where the client would keep a prefix; which are kept, the engine decides by itself."""

    ttl: Literal["5m", "1h"] | None = None


class _Block(Struct, tag_field="type", kw_only=True, forbid_unknown_fields=True):
    cache_control: CacheControl | None = None


class TextBlock(_Block, tag="text", kw_only=True):
    text: str
    citations: Annotated[list[Any], Meta(max_length=0)] | None = None


class ThinkingBlock(_Block, tag="thinking", kw_only=True):
    """Thoughts of an earlier answer; the signature is not looked at."""

    thinking: str
    signature: str | None = None


class ToolUseBlock(_Block, tag="tool_use", kw_only=True):
    id: str
    name: str
    input: dict[str, Any]
    caller: dict[str, Any] | None = None


class ToolResultBlock(_Block, tag="tool_result", kw_only=True):
    tool_use_id: str
    content: str | list[TextBlock] | None = None
    is_error: bool | None = None


class UserMessage(Struct, tag_field="role", tag="user", forbid_unknown_fields=True):
    content: str | list[TextBlock | ToolResultBlock]


class AssistantMessage(Struct, tag_field="role", tag="assistant", forbid_unknown_fields=True):
    content: str | list[TextBlock | ThinkingBlock | ToolUseBlock]


class SystemMessage(Struct, tag_field="role", tag="system", forbid_unknown_fields=True):
    content: str | list[TextBlock]


Message = UserMessage | AssistantMessage | SystemMessage


class Tool(Struct, kw_only=True, forbid_unknown_fields=True):
    """Inputs keep to the schema if `strict` says so, or if a call is required."""

    name: Annotated[str, Meta(min_length=1)]
    input_schema: dict[str, Any]
    description: str | None = None
    type: Literal["custom"] | None = None
    strict: bool | None = None
    cache_control: CacheControl | None = None
    eager_input_streaming: bool | None = None
    input_examples: Annotated[list[Any], Meta(max_length=0)] | None = None


class AutoChoice(Struct, tag_field="type", tag="auto", forbid_unknown_fields=True):
    disable_parallel_tool_use: bool | None = None


class AnyChoice(Struct, tag_field="type", tag="any", forbid_unknown_fields=True):
    disable_parallel_tool_use: bool | None = None


class ToolChoice(Struct, tag_field="type", tag="tool", forbid_unknown_fields=True):
    name: str
    disable_parallel_tool_use: bool | None = None


class NoChoice(Struct, tag_field="type", tag="none", forbid_unknown_fields=True):
    pass


class ThinkingEnabled(Struct, tag_field="type", tag="enabled", kw_only=True, forbid_unknown_fields=True):
    budget_tokens: Count
    display: Literal["summarized"] | None = None


class ThinkingAdaptive(Struct, tag_field="type", tag="adaptive", kw_only=True, forbid_unknown_fields=True):
    display: Literal["summarized"] | None = None


class ThinkingDisabled(Struct, tag_field="type", tag="disabled", forbid_unknown_fields=True):
    pass


class JsonSchemaFormat(Struct, tag_field="type", tag="json_schema", forbid_unknown_fields=True):
    schema: dict[str, Any]


class OutputConfig(Struct, kw_only=True, forbid_unknown_fields=True):
    """`effort` says how long to think, where `thinking` says no number."""

    effort: Literal["low", "medium", "high", "xhigh", "max"] | None = None
    format: JsonSchemaFormat | None = None


class ThinkingTurns(Struct, tag_field="type", tag="thinking_turns", forbid_unknown_fields=True):
    value: Count


class ClearThinking(Struct, tag_field="type", tag="clear_thinking_20251015", forbid_unknown_fields=True):
    """Which earlier thoughts to keep. The template decides that, whatever stands here."""

    keep: Literal["all"] | ThinkingTurns | None = None


class ContextManagement(Struct, forbid_unknown_fields=True):
    """What to take out of the conversation; Claude Code sends an edit that takes nothing out."""

    edits: list[ClearThinking] | None = None


class Metadata(Struct, forbid_unknown_fields=True):
    user_id: str | None = None


_ALLOWED = {
    "messages[].role": "user, assistant or system",
    "messages[].content[].type": "text, tool_result (user), thinking or tool_use (assistant), since this "
    "server reads text only",
    "messages[].content[].content[].type": "text, since this server reads text only",
    "system[].type": "text",
    "tools[].type": "custom; no tool runs on this server",
    "tool_choice.type": "auto, any, tool or none",
    "output_config.format.type": "json_schema",
    "thinking.type": "enabled, adaptive or disabled",
    "context_management.edits[].type": "clear_thinking_20251015; what was said, called and given is not cut "
    "here, so shorten messages yourself",
    "thinking.display": "summarized, by which thoughts come as they are; they are not left out",
}


class CountTokensBody(Body, kw_only=True, forbid_unknown_fields=True):
    """POST /v1/messages/count_tokens: what the prompt is made of."""

    NEUTRAL: ClassVar[Mapping[str, tuple[Any, ...]]] = {
        "mcp_servers": ([],),
        "speed": ("standard",),
        "user_profile_id": (),
        "workspace_id": (),
        "thread": (),
        "fallbacks": ([],),
        "compaction": (),
    }
    INSTEAD: ClassVar[Mapping[str, str]] = {
        "thread": "nothing is stored here, so send the whole conversation in messages",
    }
    ALLOWED: ClassVar[Mapping[str, str]] = _ALLOWED

    messages: Annotated[list[Message], Meta(min_length=1)]
    model: str | None = None
    system: str | list[TextBlock] | None = None
    tools: list[Tool] | None = None
    tool_choice: AutoChoice | AnyChoice | ToolChoice | NoChoice | None = None
    thinking: ThinkingEnabled | ThinkingAdaptive | ThinkingDisabled | None = None
    output_config: OutputConfig | None = None
    cache_control: CacheControl | None = None
    context_management: ContextManagement | None = None


class MessagesBody(CountTokensBody, kw_only=True, forbid_unknown_fields=True):
    """POST /v1/messages."""

    NEUTRAL: ClassVar[Mapping[str, tuple[Any, ...]]] = {
        **CountTokensBody.NEUTRAL,
        "container": (),
        "diagnostics": (),
        "inference_geo": (),
        "service_tier": ("auto", "standard_only"),
    }

    max_tokens: Count
    temperature: Share | None = None
    top_k: Annotated[int, Meta(ge=1, le=2**31 - 1)] | None = None
    top_p: PositiveShare | None = None
    stop_sequences: StopStrings | None = None
    stream: bool | None = None
    metadata: Metadata | None = None
