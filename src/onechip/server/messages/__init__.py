"""Anthropic's Messages API: content blocks in, content blocks out."""

from onechip.server.messages.body import CountTokensBody, MessagesBody
from onechip.server.messages.endpoint import count_tokens, messages
from onechip.server.messages.replies import InputTokens, MessageReply

__all__ = ["CountTokensBody", "InputTokens", "MessageReply", "MessagesBody", "count_tokens", "messages"]
