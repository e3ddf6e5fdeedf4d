"""OpenAI's Responses API, without its memory: items in, items out."""

from onechip.server.responses.body import ResponsesBody
from onechip.server.responses.endpoint import input_tokens, responses
from onechip.server.responses.replies import InputTokens, ResponseObject

__all__ = ["InputTokens", "ResponseObject", "ResponsesBody", "input_tokens", "responses"]
