"""Bodies of the requests of Ollama's API."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, Literal

from msgspec import Meta, Struct

from onechip.server.llama_options import LlamaOptions, OutputCount
from onechip.server.schemas import Body, Count, Likeliest, Tool, ToolChoice

Think = bool | Literal["low", "medium", "high"]
Format = Literal["", "json"] | dict[str, Any]
NoImages = Annotated[list[Any], Meta(max_length=0)]
_LIMITS = {"max_output_tokens": "num_predict", "max_tokens": "num_predict"}
_ANY_COUNT = Annotated[int, Meta(ge=-(2**31), lt=2**31)]


class Options(LlamaOptions, kw_only=True, forbid_unknown_fields=True):
    """From `numa` on: how Ollama's runner works; taken, not used."""

    NEUTRAL: ClassVar[Mapping[str, tuple[Any, ...]]] = {
        "mirostat": (0,),
        "tfs_z": (1, 1.0),
        "typical_p": (1, 1.0),
    }

    num_predict: OutputCount | None = None
    num_ctx: Count | None = None
    numa: bool | None = None
    num_batch: _ANY_COUNT | None = None
    num_gpu: _ANY_COUNT | None = None
    main_gpu: _ANY_COUNT | None = None
    num_thread: _ANY_COUNT | None = None
    num_keep: _ANY_COUNT | None = None
    use_mmap: bool | None = None
    use_mlock: bool | None = None
    low_vram: bool | None = None
    f16_kv: bool | None = None


class CalledFunction(Struct, kw_only=True, forbid_unknown_fields=True):
    name: str
    arguments: dict[str, Any] = {}
    index: int | None = None


class ToolCall(Struct, kw_only=True, forbid_unknown_fields=True):
    function: CalledFunction
    id: str | None = None
    type: Literal["function"] | None = None


class Message(Struct, kw_only=True, forbid_unknown_fields=True):
    """A tool's result says whose it is by `tool_call_id`, by `tool_name`, or by its place."""

    role: Literal["system", "user", "assistant", "tool"]
    content: str | None = None
    thinking: str | None = None
    images: NoImages | None = None
    tool_calls: list[ToolCall] | None = None
    tool_name: str | None = None
    tool_call_id: str | None = None


class _Generation(Body, kw_only=True, forbid_unknown_fields=True):
    """`keep_alive` says when to unload the model: taken, not used, since it stays loaded."""

    NEUTRAL: ClassVar[Mapping[str, tuple[Any, ...]]] = {
        "truncate": (False,),
        "shift": (False,),
    }
    ALLOWED: ClassVar[Mapping[str, str]] = {
        "messages[].images": "an empty list, since this server reads text only",
        "images": "an empty list, since this server reads text only",
        "format": "json, or a JSON schema, an object",
        "think": "true, false, low, medium or high",
        "tool_choice": "auto, none, required or an object that names tools",
    }
    INSTEAD: ClassVar[Mapping[str, str]] = {
        "truncate": "shorten the prompt yourself, since nothing is cut here",
        "context": "use /api/chat, and send the messages so far",
        "template": "the checkpoint's own template is used; for another prompt set raw",
    }
    NESTED: ClassVar[Mapping[str, type[Body]]] = {"options": Options}

    model: str
    stream: bool | None = None
    think: Think | None = None
    format: Format | None = None
    options: Options | None = None
    keep_alive: float | str | None = None
    logprobs: bool | None = None
    top_logprobs: Likeliest | None = None

    @classmethod
    def complete(cls, data: dict[str, Any]) -> None:
        """Some clients put options beside `options`, and call one by the name that it has at OpenAI."""
        options = data.get("options", {})
        if isinstance(options, dict):
            beside = {name: data.pop(name) for name in (*Options.__struct_fields__, *_LIMITS) if name in data}
            named = {_LIMITS.get(name, name): value for name, value in beside.items()}
            if named:
                data["options"] = named | options


class ChatBody(_Generation, kw_only=True, forbid_unknown_fields=True):
    """POST /api/chat; without messages it only says that the model is loaded.

    Ollama has no `tool_choice`, but some of its clients send one.
    """

    messages: list[Message] | None = None
    tools: list[Tool] | None = None
    tool_choice: ToolChoice | None = None


class GenerateBody(_Generation, kw_only=True, forbid_unknown_fields=True):
    """POST /api/generate; `raw` sends the prompt as it is, without the chat template."""

    NEUTRAL: ClassVar[Mapping[str, tuple[Any, ...]]] = {
        **_Generation.NEUTRAL,
        "suffix": ("",),
        "template": ("",),
        "context": ([],),
        "width": (0,),
        "height": (0,),
        "steps": (0,),
    }

    prompt: str | None = None
    system: str | None = None
    raw: bool | None = None
    images: NoImages | None = None


class ShowBody(Body, kw_only=True, forbid_unknown_fields=True):
    """POST /api/show; `name` is the older name of `model`."""

    NEUTRAL: ClassVar[Mapping[str, tuple[Any, ...]]] = {
        "system": ("",),
        "template": ("",),
        "options": ({},),
        "verbose": (False, True),
    }

    model: str | None = None
    name: str | None = None
