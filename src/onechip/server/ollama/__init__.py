"""Ollama's API: chat, generate, and what there is to ask."""

from onechip.server.ollama.body import ChatBody, GenerateBody, ShowBody
from onechip.server.ollama.endpoint import chat, generate
from onechip.server.ollama.models import show, tags, version
from onechip.server.ollama.replies import ChatReply, GenerateReply, Shown, Tags, Version

__all__ = [
    "ChatBody",
    "ChatReply",
    "GenerateBody",
    "GenerateReply",
    "ShowBody",
    "Shown",
    "Tags",
    "Version",
    "chat",
    "generate",
    "show",
    "tags",
    "version",
]
