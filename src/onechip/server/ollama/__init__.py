"""Ollama's API: chat, generate, and what there is to ask."""

from onechip.server.ollama.body import ChatBody, GenerateBody, ShowBody
from onechip.server.ollama.endpoint import chat, generate
from onechip.server.ollama.models import running, show, tags, version
from onechip.server.ollama.replies import ChatReply, GenerateReply, Running, Shown, Tags, Version

__all__ = [
    "ChatBody",
    "ChatReply",
    "GenerateBody",
    "GenerateReply",
    "Running",
    "ShowBody",
    "Shown",
    "Tags",
    "Version",
    "chat",
    "generate",
    "running",
    "show",
    "tags",
    "version",
]
