"""How the prompt of a chat ends: before an answer, inside of one that has begun, or behind the last message.

In: what a protocol says of it. Out: an `Ending`, or an error that says what does not go with it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

from onechip.errors import RequestError
from onechip.models.chat_template import Message, last_text
from onechip.server.constraints import CallRule, ToolDefinition
from onechip.server.schemas import ChatBody, TokenizeBody
from onechip.server.structure import Structure

Ending = Literal["new answer", "begun answer", "last message"]
"""`new answer`: the model's turn has been opened; `begun answer`: the last message, the assistant's, is the
beginning of the answer; `last message`: nothing stands behind it.
"""


def ending_of(body: ChatBody | TokenizeBody) -> Ending:
    """What vLLM's fields ask for. Raises RequestError if that is two things at once."""
    if not body.continue_final_message:
        return "last message" if body.add_generation_prompt is False else "new answer"
    if body.add_generation_prompt:
        raise RequestError(
            "continue_final_message and add_generation_prompt are both true: the last message is continued, "
            "or a new one is begun; set one of them to false.",
            param="continue_final_message",
        )
    return "begun answer"


def begun_or_new(messages: Sequence[dict[str, Any]]) -> tuple[Sequence[dict[str, Any]], Ending]:
    """A conversation in which a last message of the assistant's is the beginning of the answer. One in which
    nothing stands begins nothing, and is left out.

    Raises:
        RequestError: then nothing is left.
    """
    last = messages[-1]
    if last["role"] != "assistant":
        return messages, "new answer"
    if not any(last.get(part) for part in ("content", "reasoning", "tool_calls")):
        if len(messages) == 1:
            raise RequestError(
                "messages has nothing but an empty message of the assistant's: end with a user's message.",
                param="messages",
            )
        return messages[:-1], "new answer"
    return messages, "begun answer"


def check_begun(last: Message) -> None:
    """Raises RequestError if an answer cannot begin with the message `last`."""
    wrong = None
    if last["role"] != "assistant":
        wrong = f"is the {last['role']}'s"
    elif last.get("tool_calls"):
        wrong = "calls tools"
    elif not last_text(last).strip():
        wrong = "has no text"
    if wrong:
        raise RequestError(
            f"messages ends with a message that {wrong}: only a text of the assistant's can be continued. "
            "End with one, or ask for a new answer.",
            param="messages",
        )


def check_free(
    structure: Structure | None, calls: CallRule, tools: Sequence[ToolDefinition], whole_calls: bool
) -> None:
    """Raises RequestError if an answer that has begun is to keep to a form, which would hold from its
    continuation on.

    Args:
        tools: those that the prompt speaks of.
        whole_calls: the model may write calls as the whole answer, so that forms of calls allow that.
    """
    field = None
    if structure is not None:
        field = structure.param
    elif calls.must or (calls.names and whole_calls):
        field = calls.field
    elif whole_calls and any(tool["function"].get("strict") for tool in tools):
        field = "tools.function.strict"
    if field:
        raise RequestError(
            f"{field} does not go with an answer that has begun, since a form holds from the first token of "
            f"an answer: leave it out, or end messages with a user's message.",
            param=field,
        )
