"""The names in GGUF files for ways of cutting text before byte-level BPE -> the same in tokenizer.json.

Names and patterns are facts of llama.cpp's src/llama-vocab.cpp (2026-11) and of the tokenizers that it names.
"""

from __future__ import annotations

from typing import Any

_BYTES = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": False}
_GPT2 = _BYTES | {"use_regex": True}  # the library's own pattern is GPT-2's
_GPT2_PATTERN = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
_WORDS = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+"
_REST = r" ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
_UPPER, _LOWER = r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]", r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]"
_LEAD = r"[^\r\n\p{L}\p{N}]?"
_TEKKEN_PATTERN = (
    rf"{_LEAD}{_UPPER}*{_LOWER}+|{_LEAD}{_UPPER}+{_LOWER}*"
    r"|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)


def _sequence(*steps: dict[str, Any]) -> dict[str, Any]:
    return {"type": "Sequence", "pretokenizers": list(steps)}


def _split(pattern: str) -> dict[str, Any]:
    return {"type": "Split", "pattern": {"Regex": pattern}, "behavior": "Isolated", "invert": False}


_LLAMA3 = _sequence(_split(rf"{_WORDS}|\p{{N}}{{1,3}}|{_REST}"), _BYTES)
_QWEN2 = _sequence(_split(rf"{_WORDS}|\p{{N}}|{_REST}"), _BYTES)
_SMOLLM = _sequence({"type": "Digits", "individual_digits": True}, _GPT2)
_TEKKEN = _sequence(_split(_TEKKEN_PATTERN), _BYTES)
_DEFAULT = _sequence(
    _split(r"[\p{P}\$\+<=>\^~\|]+"),
    _split(_GPT2_PATTERN),
    _split(r"\p{N}+"),
    _split(r"[0-9][0-9][0-9]"),
    _BYTES,
)

IGNORE_MERGES = frozenset({"llama-bpe", "llama3", "llama-v3", "falcon3", "pixtral", "tekken"})
"""Where a word that is a token stays whole, whatever the merges say; prompts of these begin with BOS."""

PRE_TOKENIZERS: dict[str, dict[str, Any]] = {
    "default": _DEFAULT,
    **dict.fromkeys(("gpt-2", "phi-2", "olmo", "mpt", "gigachat"), _GPT2),
    **dict.fromkeys(("smollm", "starcoder", "refact", "command-r"), _SMOLLM),
    **dict.fromkeys(("llama-bpe", "llama3", "llama-v3", "falcon3", "pixtral", "dbrx", "smaug-bpe"), _LLAMA3),
    **dict.fromkeys(("qwen2", "stablelm2"), _QWEN2),
    "tekken": _TEKKEN,
}
