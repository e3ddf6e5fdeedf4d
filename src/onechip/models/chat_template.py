"""A checkpoint's own chat template: messages and tools -> the text of the prompt.

Rendered as transformers does it, by jinja2 in its sandbox, so that published templates give the published
prompts.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any, NoReturn

import jinja2
import jinja2.sandbox
import msgspec

from onechip.errors import CheckpointError, RequestError
from onechip.models.json_text import decode_json
from onechip.models.tool_schema import check_schema

Message = Mapping[str, Any]
"""One message in OpenAI's form: role, content, and what belongs to its role."""

_SPECIAL_TOKENS = ("bos_token", "eos_token", "pad_token", "unk_token", "mask_token")
RESERVED_VARIABLES = frozenset({"messages", "tools", "add_generation_prompt", *_SPECIAL_TOKENS})
"""Variables of a template that `render` sets itself."""


class _AddedToken(msgspec.Struct):
    content: str


class _NamedTemplate(msgspec.Struct):
    name: str
    template: str


class _TokenizerConfig(msgspec.Struct):
    """The fields of tokenizer_config.json that a template may refer to."""

    bos_token: str | _AddedToken | None = None
    eos_token: str | _AddedToken | None = None
    pad_token: str | _AddedToken | None = None
    unk_token: str | _AddedToken | None = None
    mask_token: str | _AddedToken | None = None
    chat_template: str | list[_NamedTemplate] | None = None

    def special_tokens(self) -> dict[str, str]:
        tokens = {name: getattr(self, name) for name in _SPECIAL_TOKENS}
        return {
            name: token.content if isinstance(token, _AddedToken) else token
            for name, token in tokens.items()
            if token is not None
        }


class ChatTemplate:
    """Renders conversations into prompts."""

    def __init__(self, source: str, special_tokens: Mapping[str, str]) -> None:
        """Compile `source`.

        Args:
            special_tokens: what the template may print by name: `bos_token`, `eos_token`, ...

        Raises:
            CheckpointError: the template has a syntax error.
        """
        self._special_tokens = dict(special_tokens)
        try:
            self._template = _environment().from_string(source)
        except jinja2.TemplateSyntaxError as error:
            raise CheckpointError(
                f"The chat template has an error in line {error.lineno}: {error}."
            ) from None

    @classmethod
    def load(cls, folder: Path) -> ChatTemplate:
        """Read `chat_template.jinja`, or else the `chat_template` of tokenizer_config.json.

        Raises:
            CheckpointError: there is neither, or a file is damaged.
        """
        config = _read_tokenizer_config(folder / "tokenizer_config.json")
        path = folder / "chat_template.jinja"
        source = path.read_text(encoding="utf-8") if path.is_file() else _default_template(config)
        if source is None:
            raise CheckpointError(
                f"{folder} has no chat template: put the checkpoint's own chat_template.jinja there."
            )
        return cls(source, config.special_tokens())

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
            RequestError: a tool's parameters are no schema, or the template refuses the conversation or can
                make no sense of it.
        """
        for index, tool in enumerate(tools or ()):
            check_schema(tool["function"].get("parameters"), f"tools[{index}].function.parameters")
        variables = self._special_tokens | kwargs
        messages = [_with_decoded_arguments(message, index) for index, message in enumerate(messages)]
        try:
            return self._template.render(
                variables,
                messages=messages,
                tools=list(tools) if tools else None,
                add_generation_prompt=add_generation_prompt,
            )
        except jinja2.TemplateError as error:
            raise RequestError(f"The chat template refused the messages: {error}", param="messages") from None
        except (TypeError, ValueError, LookupError, AttributeError, RecursionError) as error:
            said = "messages or tools" if tools else "messages"
            raise RequestError(
                f"The chat template can make nothing of the {said}: {error}.", param="messages"
            ) from None


def _environment() -> jinja2.Environment:
    """The environment for which chat templates are written: the one of transformers' apply_chat_template."""
    environment = jinja2.sandbox.ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=["jinja2.ext.loopcontrols"]
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


def _read_tokenizer_config(path: Path) -> _TokenizerConfig:
    if not path.is_file():
        raise CheckpointError(f"{path.parent} has no tokenizer_config.json.")
    try:
        return msgspec.json.decode(path.read_bytes(), type=_TokenizerConfig)
    except msgspec.MsgspecError as error:
        raise CheckpointError(f"{path} cannot be read: {error}.") from None


def _default_template(config: _TokenizerConfig) -> str | None:
    if isinstance(config.chat_template, list):
        return next((named.template for named in config.chat_template if named.name == "default"), None)
    return config.chat_template


def _with_decoded_arguments(message: Message, index: int) -> Message:
    """`message` with the JSON text of its calls' arguments made objects, which is what templates take."""
    calls = message.get("tool_calls")
    if not calls:
        return message
    decoded = []
    for position, call in enumerate(calls):
        function = call["function"]
        field = f"messages[{index}].tool_calls[{position}].function.arguments"
        arguments = _decoded(function.get("arguments"), field)
        decoded.append({**call, "function": {**function, "arguments": arguments}})
    return {**message, "tool_calls": decoded}


def _decoded(arguments: Any, field: str) -> dict[str, Any]:
    value = decode_json(arguments or "{}", field, field) if isinstance(arguments, str) else arguments
    if value is None:
        return {}
    if not isinstance(value, dict):
        raise RequestError(f"{field} must be a JSON object, not {json.dumps(value)[:80]}.", param=field)
    return value
