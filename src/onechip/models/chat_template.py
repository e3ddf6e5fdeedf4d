"""A checkpoint's own chat template: messages and tools -> the text of the prompt.

Rendered as transformers does it, by jinja2 in its sandbox, so that published templates give the published
prompts.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any, NoReturn

import jinja2
import jinja2.ext
import jinja2.nodes
import jinja2.parser
import jinja2.sandbox
import msgspec

from onechip.errors import CheckpointError, RequestError
from onechip.models.call_form import PROBE_NAME, CallForm, find_call_form
from onechip.models.tokenizer_config import SPECIAL_TOKENS, TokenizerConfig
from onechip.models.tool_schema import check_schema

Message = Mapping[str, Any]
"""One message in OpenAI's form: role, content, and what belongs to its role."""

RESERVED_VARIABLES = frozenset({"messages", "tools", "add_generation_prompt", *SPECIAL_TOKENS})
"""Variables of a template that `render` sets itself."""

_FAILURES = (TypeError, ValueError, LookupError, AttributeError, RecursionError)
"""What templates raise beside jinja2's own errors when they meet what they were not written for."""

_PROBE = "Xylem"
_PROBE_TOOLS = [
    {
        "type": "function",
        "function": {"name": PROBE_NAME, "description": _PROBE, "parameters": {"type": "object"}},
    }
]
_EDGE = "XylemEdge"
"""Stands at an end of the text that is to be continued, so that it is found again and not trimmed."""


class ChatTemplate:
    """Renders conversations into prompts.

    Attributes:
        reads_tools: the template has a place for tools.
        reads_thinking: it can be told whether to think, by the variable `enable_thinking`.
    """

    def __init__(
        self, source: str, special_tokens: Mapping[str, str], tool_source: str | None = None
    ) -> None:
        """Compile the template.

        Args:
            special_tokens: what the template may print by name: `bos_token`, `eos_token`, ...
            tool_source: the template for conversations with tools, if it is another one.

        Raises:
            CheckpointError: a template has a syntax error.
        """
        self._special_tokens = dict(special_tokens)
        self.source = source
        self._template = _compiled(source)
        self._tool_template = self._template if tool_source is None else _compiled(tool_source)
        self._words = frozenset(re.findall(r"\w+", f"{source} {tool_source or ''}"))
        self.reads_tools = "tools" in self._words
        self.reads_thinking = "enable_thinking" in self._words
        self._reads_text = self._reads(_PROBE)
        self._reads_parts = self._reads([{"type": "text", "text": _PROBE}])
        self._call_form = find_call_form(self.tried) if "tool_calls" in self._words else CallForm()

    @classmethod
    def load(cls, folder: Path) -> ChatTemplate | None:
        """Read the template of a checkpoint; None if it has none, as most base models.

        It stands in `chat_template.jinja`, in `chat_template.json`, or in tokenizer_config.json. Of named
        templates the one called "default" is used, and "tool_use" where there are tools.

        Raises:
            CheckpointError: a file is damaged.
        """
        config = TokenizerConfig.load(folder)
        sources = _sources(folder, config)
        default = sources.get("default") or (next(iter(sources.values())) if len(sources) == 1 else None)
        if default is None:
            return None
        return cls(default, config.special_tokens, sources.get("tool_use"))

    def render(
        self,
        messages: Sequence[Message],
        tools: Sequence[Mapping[str, Any]] | None = None,
        add_generation_prompt: bool = True,
        **kwargs: Any,
    ) -> str:
        """The prompt for `messages`.

        Args:
            messages: OpenAI's messages; the arguments of tool calls may be JSON text, as OpenAI has them, or
                objects.
            tools: OpenAI's tool definitions; None or none at all means that the prompt speaks of no tools.
            add_generation_prompt: end with the opening of the model's turn.
            kwargs: further variables of the template, such as `enable_thinking`; none of RESERVED_VARIABLES.

        Raises:
            RequestError: a tool's parameters are no schema, the template has no such variable, or it refuses
                the conversation or can make no sense of it.
        """
        for index, tool in enumerate(tools or ()):
            check_schema(tool["function"].get("parameters"), f"tools[{index}].function.parameters")
        self._check_variables(kwargs)
        messages = [
            self._with_named_thoughts(self._with_readable_content(self._call_form.told(message, index)))
            for index, message in enumerate(messages)
        ]
        try:
            return self._rendered(messages, tools, add_generation_prompt, kwargs)
        except jinja2.TemplateError as error:
            raise RequestError(f"The chat template refused the messages: {error}", param="messages") from None
        except _FAILURES as error:
            said = "messages or tools" if tools else "messages"
            raise RequestError(
                f"The chat template can make nothing of the {said}: {error}.", param="messages"
            ) from None

    def render_begun(
        self, messages: Sequence[Message], tools: Sequence[Mapping[str, Any]] | None = None, **kwargs: Any
    ) -> str:
        """The prompt of an answer that begins with the text of the last message, which it ends with.

        As in transformers' `continue_final_message`, but blanks at its ends are kept where the template trims
        them.

        Args:
            messages, tools, kwargs: as for `render`.

        Raises:
            RequestError: as `render`; or the template does not print that text as it stands.
        """
        text = last_text(messages[-1])
        shown = f"{_EDGE}{text}" if text[:1].isspace() else text
        marked = [*messages[:-1], _with_last_text(messages[-1], f"{shown}{_EDGE}")]
        rendered = self.render(marked, tools, add_generation_prompt=False, **kwargs)
        prompt, found, _ = rendered.rpartition(_EDGE)
        if not (found and prompt.endswith(shown)):
            raise RequestError(
                "messages ends with an answer that cannot be continued, since the chat template of this "
                "model does not print its text as it stands; change it, or end with a user's message.",
                param="messages",
            )
        return prompt.removesuffix(shown) + text

    def _rendered(
        self,
        messages: Sequence[Message],
        tools: Sequence[Mapping[str, Any]] | None,
        add_generation_prompt: bool,
        kwargs: Mapping[str, Any],
    ) -> str:
        template = self._tool_template if tools else self._template
        return template.render(
            {"documents": None} | self._special_tokens | dict(kwargs),
            messages=messages,
            tools=list(tools) if tools else None,
            add_generation_prompt=add_generation_prompt,
        )

    def _check_variables(self, kwargs: Mapping[str, Any]) -> None:
        """Refuse a variable of which the template knows nothing, unless its value asks for nothing."""
        for name in kwargs.keys() - self._words:
            if kwargs[name] is not None and kwargs[name] is not False:
                field = f"chat_template_kwargs.{name}"
                raise RequestError(
                    f"{field}: the chat template of this model has no such variable; leave it out.",
                    param=field,
                )

    def tried(
        self, messages: Sequence[Message], tools: Sequence[Mapping[str, Any]] | None = _PROBE_TOOLS
    ) -> str | None:
        """The prompt for `messages` as they are, None if the template fails on them."""
        try:
            return self._rendered(messages, tools, True, {})
        except (jinja2.TemplateError, *_FAILURES):
            return None

    def _reads(self, content: Any) -> bool:
        """Whether the text of a message with this content reaches the prompt, and nothing else of it does."""
        text = self.tried([{"role": "user", "content": content}], None)
        if text is None:
            return False
        spelled_out = isinstance(content, list) and any(
            form(content[0]) in text for form in (repr, json.dumps)
        )
        return _PROBE in text and not spelled_out

    def _with_readable_content(self, message: Message) -> Message:
        """`message` in the form that this template was written for.

        Many templates take content for one text and would print a list of parts as Python shows it, a few
        know parts only; most know the system role only by that name.
        """
        if message.get("role") == "developer" and "developer" not in self._words:
            message = {**message, "role": "system"}
        content = message.get("content")
        if isinstance(content, list) and self._reads_text and not self._reads_parts:
            return {**message, "content": "\n".join(part["text"] for part in content)}
        if isinstance(content, str) and self._reads_parts and not self._reads_text:
            return {**message, "content": [{"type": "text", "text": content}]}
        return message

    def _with_named_thoughts(self, message: Message) -> Message:
        """`message` with its thoughts under the names by which this template asks for them."""
        thoughts = message.get("reasoning") or message.get("reasoning_content")
        if not thoughts:
            return message
        names = self._words & {"reasoning", "reasoning_content"} or self._words & {"thinking"}
        return {**message, **dict.fromkeys(names, thoughts)}


def last_text(message: Message) -> str:
    """The text with which a message ends; "" if it has none."""
    content = message.get("content")
    return content[-1]["text"] if content and not isinstance(content, str) else content or ""


def _with_last_text(message: Message, text: str) -> Message:
    """`message` with another `last_text`."""
    content = message["content"]
    if isinstance(content, str):
        return {**message, "content": text}
    return {**message, "content": [*content[:-1], {**content[-1], "text": text}]}


class _Generation(jinja2.ext.Extension):
    """`{% generation %}...{% endgeneration %}`, which marks what is trained on: prints what is inside."""

    tags = {"generation"}  # noqa: RUF012  # jinja2 declares it so

    def parse(self, parser: jinja2.parser.Parser) -> jinja2.nodes.Node:
        line = next(parser.stream).lineno
        body = parser.parse_statements(("name:endgeneration",), drop_needle=True)
        return jinja2.nodes.Scope(body).set_lineno(line)


def _environment() -> jinja2.Environment:
    """The environment for which chat templates are written: the one of transformers' apply_chat_template."""
    environment = jinja2.sandbox.ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=["jinja2.ext.loopcontrols", _Generation]
    )
    environment.filters["tojson"] = _to_json
    environment.globals["raise_exception"] = _raise
    environment.globals["strftime_now"] = lambda pattern: datetime.now().strftime(pattern)
    return environment


def _to_json(
    value: Any,
    ensure_ascii: bool = False,
    indent: int | None = None,
    separators: tuple[str, str] | None = None,
    sort_keys: bool = False,
) -> str:
    """JSON without jinja2's HTML escapes."""
    return json.dumps(
        value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys
    )


def _raise(message: str) -> NoReturn:
    raise jinja2.TemplateError(message)


def _compiled(source: str) -> jinja2.Template:
    try:
        return _environment().from_string(source)
    except jinja2.TemplateSyntaxError as error:
        raise CheckpointError(f"The chat template has an error in line {error.lineno}: {error}.") from None


class _JsonFile(msgspec.Struct):
    chat_template: str


def _sources(folder: Path, config: TokenizerConfig) -> dict[str, str]:
    """Name -> template."""
    path, json_path = folder / "chat_template.jinja", folder / "chat_template.json"
    try:
        named = {
            file.stem: file.read_text("utf-8") for file in folder.glob("additional_chat_templates/*.jinja")
        }
        if path.is_file():
            return named | {"default": path.read_text("utf-8")}
        if json_path.is_file():
            return {"default": msgspec.json.decode(json_path.read_bytes(), type=_JsonFile).chat_template}
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise CheckpointError(f"The chat template of {folder} cannot be read: {error}.") from None
    if isinstance(config.chat_template, str):
        return {"default": config.chat_template}
    return {template.name: template.template for template in config.chat_template or ()}
