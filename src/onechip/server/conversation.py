"""What every chat protocol asks for, in one form -> generations that read text, thoughts and calls.

A protocol's file turns its own body into a `ChatRequest`, hands it to `begin`, and gives the deltas that come
back its own form.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import msgspec

from onechip.errors import RequestError
from onechip.models.chat_parser import ChatParser, has_call_markers
from onechip.models.chat_template import RESERVED_VARIABLES, Message, last_text
from onechip.models.json_calls import JsonCallParser
from onechip.models.thought_reader import ThoughtReader
from onechip.server.answer import Reader, TextReader
from onechip.server.constraints import CallRule, Constraints, ToolDefinition, forms_of
from onechip.server.endings import Ending, check_begun, check_free
from onechip.server.group import Group, submit
from onechip.server.orders import Choices, Task
from onechip.server.parsing import check_reserved
from onechip.server.sampling import Limits
from onechip.server.schemas import Function, Sampling, Tool
from onechip.server.service import Model, Service
from onechip.server.structure import Structure
from onechip.server.thinking import Thinking, Thoughts
from onechip.server.work import apart


def tool_definition(
    name: str, description: str | None, parameters: dict[str, Any] | None, strict: bool | None
) -> ToolDefinition:
    """A tool that a protocol describes in another form; what is None is left out."""
    tool: ToolDefinition = msgspec.to_builtins(Tool(function=Function(name, description, parameters, strict)))
    return tool


@dataclass(frozen=True, slots=True, kw_only=True)
class ChatRequest:
    """One turn of a conversation to be continued.

    Attributes:
        messages: in OpenAI's form, see models.chat_template.Message.
        tools: the functions that there are.
        calls: which of them may be called, or must be.
        sampling: how tokens are chosen.
        limits: how long the answer may become.
        structure: the form of the text; None: any.
        thinking: whether to think before the answer, and for how long.
        variables: further variables of the chat template; what they say of thinking comes first.
        choices: how many answers, and what is told of their tokens.
        ending: how the prompt ends.
    """

    messages: Sequence[Message]
    tools: Sequence[ToolDefinition] = ()
    calls: CallRule = field(default_factory=CallRule)
    sampling: Sampling
    limits: Limits
    structure: Structure | None = None
    thinking: Thinking = field(default_factory=Thinking)
    variables: Mapping[str, Any] = field(default_factory=dict)
    choices: Choices = field(default_factory=Choices)
    ending: Ending = "new answer"

    @property
    def begun(self) -> str:
        """The text that the answer begins with in the prompt."""
        return last_text(self.messages[-1]) if self.ending == "begun answer" else ""

    @property
    def told_tools(self) -> Sequence[ToolDefinition]:
        """The tools that the prompt speaks of."""
        return () if self.calls.mode == "none" else self.tools


async def begin(service: Service, model: Model, asks: Callable[[], ChatRequest], request_id: str) -> Group:
    """Hand the conversation to the engine.

    Args:
        asks: makes the request of a body.

    Raises:
        OnechipError: the request is wrong, or the engine does not take it.
    """
    with service.preparing():
        asked, prompt, thoughts = await apart(_read, model, asks)
        tools = asked.told_tools
        forms = await forms_of(model.grammars, asked.sampling, asked.structure, asked.calls, tools)
        skip_special, begun = asked.sampling.skip_special_tokens is not False, asked.begun
        task = Task(
            sampling=asked.sampling,
            limits=asked.limits,
            choices=asked.choices,
            reader=lambda: _reader(model, tools, prompt, skip_special, begun),
            guides=Constraints(forms, thoughts).guides,
            one_call=asked.calls.single,
        )
        return await submit(service, model, [prompt], task, request_id)


def _read(model: Model, asks: Callable[[], ChatRequest]) -> tuple[ChatRequest, list[int], Thoughts | None]:
    """A request, the token ids of its prompt, and what thoughts its answers may have."""
    asked = asks()
    prompt = conversation_prompt(model, asked)
    told = _variables(model, asked).get("enable_thinking")
    told, calls = None if told is None else bool(told), bool(asked.told_tools)
    thoughts = Thoughts.of(model.tokenizer, model.marks, prompt, asked.thinking, told, calls, asked.begun)
    past = asked.begun and not (thoughts and thoughts.opened)
    return asked, prompt, None if past else thoughts


async def begin_text(
    service: Service,
    model: Model,
    prompts: Sequence[Sequence[int]],
    sampling: Sampling,
    limits: Limits,
    request_id: str,
    structure: Structure | None,
    choices: Choices,
) -> Group:
    """Let the engine continue each of `prompts` (token ids) as it stands, without a chat. The caller is
    `Service.preparing`.

    Args:
        structure: the form of what comes behind it; None: any.

    Raises:
        OnechipError: the request is wrong, or the engine does not take it.
    """
    skip_special = sampling.skip_special_tokens is not False
    forms = await forms_of(model.grammars, sampling, structure, CallRule())
    task = Task(
        sampling=sampling,
        limits=limits,
        choices=choices,
        reader=lambda: TextReader(model.tokenizer.stream(skip_special, continued=True)),
        guides=Constraints(forms).guides,
    )
    return await submit(service, model, prompts, task, request_id)


def conversation_prompt(model: Model, asked: ChatRequest) -> list[int]:
    """Token ids of `asked`. Raises RequestError as `conversation_text`, or if it does not fit."""
    return model.encode(conversation_text(model, asked))


def conversation_text(model: Model, asked: ChatRequest) -> str:
    """The prompt of `asked`. Raises RequestError as `chat_text`, or if parts of it do not go together."""
    asked.calls.check(asked.tools)
    if asked.ending == "begun answer":
        whole_calls = not has_call_markers(model.tokenizer)
        check_free(asked.structure, asked.calls, asked.told_tools, whole_calls)
    return chat_text(model, asked.messages, asked.told_tools, _variables(model, asked), asked.ending)


def _variables(model: Model, asked: ChatRequest) -> dict[str, Any]:
    """The template's variables. Raises RequestError if it is to tell the model to think, but cannot."""
    variables, thinking = dict(asked.variables), asked.thinking
    if thinking.wanted is not None and model.template is not None:
        if model.template.reads_thinking:
            variables.setdefault("enable_thinking", thinking.wanted)
        elif thinking.wanted and not model.can_think:
            raise RequestError(
                f"{thinking.field}: the chat template of this model knows nothing of thinking; leave it out.",
                param=thinking.field,
            )
    return variables


def chat_text(
    model: Model,
    messages: Sequence[Message],
    tools: Sequence[ToolDefinition],
    variables: Mapping[str, Any] | None,
    ending: Ending = "new answer",
) -> str:
    """The prompt of a conversation, by the checkpoint's template.

    Raises:
        RequestError: there is no template, it has no place for tools, it refuses the messages, there are
            more than can fit in the context, or the last one cannot be continued.
    """
    if model.template is None:
        raise RequestError(
            "This model has no chat template: ask /v1/completions, or start the server with the model's own "
            "chat_template.jinja in its folder.",
            param="messages",
        )
    if tools and not model.template.reads_tools:
        raise RequestError(
            "tools: the chat template of this model has no place for them; leave them out, or set "
            'tool_choice to "none".',
            param="tools",
        )
    _check_count(messages, model.engine.context)
    checked = check_reserved(variables, RESERVED_VARIABLES)
    if ending == "begun answer":
        check_begun(messages[-1])
        return model.template.render_begun(messages, _described(tools), **checked)
    return model.template.render(messages, _described(tools), ending == "new answer", **checked)


def _check_count(messages: Sequence[Message], context: int) -> None:
    """Each message takes a token at least, and some templates take time with the square of their number."""
    if len(messages) > context:
        raise RequestError(
            f"The prompt is too long: {len(messages)} messages, but the context is {context} tokens for "
            "prompt and output together, and each message takes some: send fewer.",
            param="messages",
            code="context_length_exceeded",
        )


def _described(tools: Sequence[ToolDefinition]) -> list[ToolDefinition]:
    """`tools` without what is said to the server: some templates print all that stands there."""
    return [
        {**tool, "function": {key: value for key, value in tool["function"].items() if key != "strict"}}
        for tool in tools
    ]


def _reader(
    model: Model, tools: Sequence[ToolDefinition], prompt: Sequence[int], skip_special: bool, begun: str
) -> Reader:
    """What reads the answer: a model without Gemma 4's markers writes its calls as JSON."""
    calls, marks = None, model.marks
    if tools and not has_call_markers(model.tokenizer):
        said = marks.answer_in(begun) if marks else begun
        calls = JsonCallParser(model.tokenizer, tools, skip_special, said or "")
    if marks is not None:
        return ThoughtReader(model.tokenizer, marks, prompt, calls, skip_special, begun)
    return calls or ChatParser(model.tokenizer, tools, prompt, skip_special, begun)
