"""Bodies and events of Anthropic's Messages API, field by field as its clients read them."""

from __future__ import annotations

from typing import Literal

from msgspec import Raw, Struct

StopReason = Literal["end_turn", "max_tokens", "model_context_window_exceeded", "stop_sequence", "tool_use"]


class TextReply(Struct, tag_field="type", tag="text"):
    text: str


class ThinkingReply(Struct, tag_field="type", tag="thinking"):
    """`signature` is empty: nothing here vouches for thoughts."""

    thinking: str
    signature: str = ""


class ToolUseReply(Struct, tag_field="type", tag="tool_use"):
    id: str
    name: str
    input: Raw


ReplyBlock = TextReply | ThinkingReply | ToolUseReply


class OutputDetails(Struct):
    thinking_tokens: int


class MessagesUsage(Struct):
    """`input_tokens` are those that were computed, without those that the engine had already."""

    input_tokens: int
    output_tokens: int
    output_tokens_details: OutputDetails
    cache_read_input_tokens: int = 0
    cache_creation_input_tokens: int = 0
    service_tier: str = "standard"


class MessageReply(Struct, tag_field="type", tag="message", kw_only=True):
    id: str
    role: str = "assistant"
    model: str
    content: list[ReplyBlock]
    stop_reason: StopReason | None
    stop_sequence: str | None
    usage: MessagesUsage


class InputTokens(Struct):
    """POST /v1/messages/count_tokens."""

    input_tokens: int


class MessageStart(Struct, tag_field="type", tag="message_start"):
    message: MessageReply


class BlockStart(Struct, tag_field="type", tag="content_block_start"):
    index: int
    content_block: ReplyBlock


class TextDelta(Struct, tag_field="type", tag="text_delta"):
    text: str


class ThinkingDelta(Struct, tag_field="type", tag="thinking_delta"):
    thinking: str


class InputDelta(Struct, tag_field="type", tag="input_json_delta"):
    partial_json: str


class BlockDelta(Struct, tag_field="type", tag="content_block_delta"):
    index: int
    delta: TextDelta | ThinkingDelta | InputDelta


class BlockStop(Struct, tag_field="type", tag="content_block_stop"):
    index: int


class Ending(Struct):
    stop_reason: StopReason
    stop_sequence: str | None


class MessageDelta(Struct, tag_field="type", tag="message_delta"):
    """The counts are those of the whole message."""

    delta: Ending
    usage: MessagesUsage


class MessageStop(Struct, tag_field="type", tag="message_stop"):
    pass
