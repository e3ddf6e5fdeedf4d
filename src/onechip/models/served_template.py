"""The chat template that a checkpoint is served with: one that the user gives, or its own, unless that is
Gemma 4's first.

Checkpoints from before Google's of 2026-04-10 (llama.cpp#21704), GGUF files above all, carry one that prints
a tool's result as a turn of its own where the model knows `<|tool_response>`, None for null, and commas too
many. Nobody sees it but by the answers. Ours in its place makes the prompts of Google's of 2026-07-09.
"""

from __future__ import annotations

from pathlib import Path

import onechip.models
from onechip.errors import UsageError
from onechip.models.call_form import PROBE, PROBE_NAME
from onechip.models.chat_template import ChatTemplate
from onechip.models.config import ModelConfig
from onechip.models.tokenizer_config import TokenizerConfig

_OURS = Path(onechip.models.__file__).parent / "acorn" / "chat_template.jinja"
_REPLACED = (
    "The checkpoint's chat template is Gemma 4's first, which prints results of tools in a way that the "
    "model does not know; onechip's own is used, with the prompts of Google's of 2026-07-09. "
    "--chat-template FILE takes another."
)
_EMPTY_THOUGHT = "{%- set empty_thought = true -%}"
"""What tells ours to close the thoughts of a model that is not to think; E2B and E4B were trained without."""


def served_template(
    folder: Path, config: ModelConfig, given: Path | None = None
) -> tuple[ChatTemplate | None, str]:
    """The template, None if there is none; and what to tell the person who starts the server, "" if nothing.

    Args:
        folder, config: of the checkpoint.
        given: a file with a template, to be used whatever the checkpoint has.

    Raises:
        UsageError: `given` cannot be read.
        CheckpointError: a template, or a file that it stands in, is damaged.
    """
    if given is not None:
        return _with_tokens(folder, _read(given)), ""
    own = ChatTemplate.load(folder)
    if own is None or not _is_gemma4s_first(own):
        return own, ""
    ours = _OURS.read_text("utf-8")
    # Only the small ones have embeddings per layer.
    return _with_tokens(folder, ours if config.ple_dim else _EMPTY_THOUGHT + ours), _REPLACED


def _is_gemma4s_first(template: ChatTemplate) -> bool:
    """It writes Gemma 4's calls, but not their results."""
    prompt = template.tried(PROBE)
    return (
        prompt is not None and f"<|tool_call>call:{PROBE_NAME}" in prompt and "<|tool_response>" not in prompt
    )


def _with_tokens(folder: Path, source: str) -> ChatTemplate:
    return ChatTemplate(source, TokenizerConfig.load(folder).special_tokens)


def _read(path: Path) -> str:
    try:
        return path.expanduser().read_text("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8"
        raise UsageError(
            f"--chat-template {path} cannot be read: {reason}; give a file with a Jinja template."
        ) from None
