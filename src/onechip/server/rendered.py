"""What a chat request becomes before the model reads it: llama.cpp's paths for its text and its length."""

from __future__ import annotations

from msgspec import Struct
from starlette.responses import Response
from starlette.types import Receive

from onechip.server.chat import chat_request
from onechip.server.conversation import conversation_prompt, conversation_text
from onechip.server.errors import json_response
from onechip.server.responses import InputTokens
from onechip.server.schemas import ChatBody
from onechip.server.service import Model, Service
from onechip.server.work import apart


class Rendered(Struct):
    """POST /apply-template."""

    prompt: str


async def apply_template(service: Service, body: ChatBody, _: Receive) -> Response:
    """The text that the chat template makes of a chat request.

    Raises:
        OnechipError: the request is wrong, or the model may not be used now.
    """
    return json_response(Rendered(await apart(_text, service.model(body.model), body)))


async def input_tokens(service: Service, body: ChatBody, _: Receive) -> Response:
    """How many tokens the prompt of a chat request has.

    Raises:
        OnechipError: the request is wrong, or the model may not be used now.
    """
    return json_response(InputTokens(await apart(_count, service.model(body.model), body)))


def _text(model: Model, body: ChatBody) -> str:
    return conversation_text(model, chat_request(body))


def _count(model: Model, body: ChatBody) -> int:
    return len(conversation_prompt(model, chat_request(body)))
