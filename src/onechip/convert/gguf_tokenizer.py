"""A checkpoint's tokenizer.json and template in; out come the `tokenizer.*` keys of a GGUF file.

llama.cpp has three kinds of BPE for us: "gemma4" (merges over text in which blanks are "▁", bytes as <0xE2>),
"llama" (SentencePiece: the same spelling with a blank in front, merged by the tokens' scores) and "gpt2"
(merges over the byte alphabet). What it does with each key is in its src/llama-vocab.cpp (2026-11).
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from onechip.convert.gguf_writer import Metadata, Value
from onechip.errors import CheckpointError
from onechip.models.architecture import ModelConfig
from onechip.models.chat_template import ChatTemplate
from onechip.models.gguf.pretokenizers import IGNORE_MERGES, PRE_TOKENIZERS
from onechip.models.tokenizer import Tokenizer
from onechip.models.tokenizer_config import TokenizerConfig

_NORMAL, _CONTROL, _USER_DEFINED, _UNUSED, _BYTE = 1, 3, 4, 5, 6
_BYTE_TOKEN = re.compile(r"<0x[0-9A-F]{2}>")

_READ_BY_PARSERS = frozenset(
    (
        "<|channel>",
        "<channel|>",
        "<|tool_call>",
        "<tool_call|>",
        "<|tool_response>",
        "<tool_response|>",
        '<|"|>',
    )
)
"""Control tokens of Gemma 4 that llama.cpp must print, or its parser of tool calls never sees them."""

_TURN_ENDS = ("<turn|>", "<end_of_turn>", "<|eot_id|>", "<|im_end|>")

_SPECIAL_KEYS = {
    "bos_token": "bos_token_id",
    "eos_token": "eos_token_id",
    "unk_token": "unknown_token_id",
    "sep_token": "seperator_token_id",  # so spelled in the format
    "pad_token": "padding_token_id",
    "mask_token": "mask_token_id",
}


def tokenizer_metadata(folder: Path, config: ModelConfig) -> Metadata:
    """The `tokenizer.*` keys for the checkpoint in `folder`.

    Raises CheckpointError if a file is missing or damaged, the vocabulary is larger than the model's, or the
    tokenizer is of a kind that llama.cpp's three do not do.
    """
    tokenizer = Tokenizer.load(folder, config.eos_ids)
    path = folder / "tokenizer.json"
    raw = json.loads(path.read_text("utf-8"))
    kind = _kind(raw, path)
    tokens, types = _vocabulary(raw, config.vocab, path)
    keys = {
        "model": Value("STRING", kind),
        "tokens": Value("STRING", tokens, is_list=True),
        "token_type": Value("I32", types, is_list=True),
        "add_bos_token": Value("BOOL", tokenizer.bos_id is not None),
    }
    merges = _merges(raw)
    if kind == "llama":
        keys["scores"] = Value("F32", _scores(tokens, merges), is_list=True)
    else:
        keys["merges"] = Value("STRING", [" ".join(merge) for merge in merges], is_list=True)
    if kind == "gemma4":  # the published files have them, all alike: merges decide
        keys["scores"] = Value("F32", [-1000.0] * len(tokens), is_list=True)
    if kind == "gpt2":
        keys["pre"] = Value("STRING", _split_name(raw, path))
    else:
        keys["add_space_prefix"] = Value("BOOL", kind == "llama")
    keys |= _special_ids(TokenizerConfig.load(folder), config, tokenizer, tokens)
    metadata = {f"tokenizer.ggml.{key}": value for key, value in keys.items()}
    template = ChatTemplate.load(folder)
    if template is not None:
        metadata["tokenizer.chat_template"] = Value("STRING", template.source)
    return metadata


def _refused(path: Path, what: str) -> CheckpointError:
    return CheckpointError(
        f"{path} has {what}: GGUF can hold byte-fallback BPE (Gemma, Llama 2) and byte-level BPE that cuts "
        f"text as one of these: {', '.join(PRE_TOKENIZERS)}."
    )


def _kind(raw: dict[str, Any], path: Path) -> str:
    """llama.cpp's name for this kind of tokenizer."""
    model = raw["model"]
    if model.get("type") != "BPE":
        raise _refused(path, f"a model of type {model.get('type')}")
    if not model.get("byte_fallback"):
        return "gpt2"
    in_front = {"Prepend", "Metaspace"} & {
        step.get("type") for step in _steps(raw, "normalizer", "pre_tokenizer")
    }
    return "llama" if in_front else "gemma4"


def _steps(raw: dict[str, Any], *parts: str) -> list[dict[str, Any]]:
    """The steps of these parts of a tokenizer.json, sequences flattened."""
    steps: list[dict[str, Any]] = []
    for part in parts:
        step = raw.get(part) or {}
        steps += step.get("normalizers") or step.get("pretokenizers") or [step]
    return steps


def _split_name(raw: dict[str, Any], path: Path) -> str:
    """llama.cpp's name for the way in which a byte-level tokenizer cuts text before it merges."""
    whole = bool(raw["model"].get("ignore_merges"))
    wanted = _told_apart(_steps(raw, "pre_tokenizer"))
    for name, cut in PRE_TOKENIZERS.items():
        same_cut = _told_apart(_steps({"pre_tokenizer": cut}, "pre_tokenizer")) == wanted
        if same_cut and (name in IGNORE_MERGES) == whole:
            return name
    kinds = [step.get("type") for step in _steps(raw, "pre_tokenizer")]
    merges = ", with ignore_merges" if whole else ""
    raise _refused(path, f"the pre_tokenizer {' + '.join(map(str, kinds))}{merges}")


def _told_apart(steps: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The steps without what does not change where text is cut."""
    unheard = ("trim_offsets", "add_prefix_space") if len(steps) > 1 else ("trim_offsets",)
    kept = [{key: value for key, value in step.items() if key not in unheard} for step in steps]
    return [{"use_regex": True} | step if step.get("type") == "ByteLevel" else step for step in kept]


def _vocabulary(raw: dict[str, Any], size: int, path: Path) -> tuple[list[str], list[int]]:
    """Tokens and their types, by id; ids that the tokenizer leaves out are filled up to the model's size."""
    found = {id: (token, _NORMAL) for token, id in raw["model"]["vocab"].items()}
    if raw["model"].get("byte_fallback"):
        found |= {id: (token, _BYTE) for id, (token, _) in found.items() if _BYTE_TOKEN.fullmatch(token)}
    for added in raw.get("added_tokens") or ():
        token = added["content"]
        control = added.get("special") and token not in _READ_BY_PARSERS
        found[added["id"]] = (token, _CONTROL if control else _USER_DEFINED)
    if max(found) >= size:
        raise CheckpointError(f"{path} has the token id {max(found)}, config.json only {size} tokens.")
    entries = [found.get(id, (f"[PAD{id}]", _UNUSED)) for id in range(size)]
    return [token for token, _ in entries], [kind for _, kind in entries]


def _merges(raw: dict[str, Any]) -> list[tuple[str, str]]:
    """Pairs, whether the file has them so or as one string."""
    pairs = (m.split(" ") if isinstance(m, str) else m for m in raw["model"].get("merges") or ())
    return [(left, right) for left, right in pairs]


def _scores(tokens: Sequence[str], merges: Iterable[tuple[str, str]]) -> list[float]:
    """SentencePiece's scores: of two merges that can be made, that with the higher score is made first."""
    first: dict[str, float] = {}
    for rank, (left, right) in enumerate(merges):
        first.setdefault(left + right, -float(rank))
    return [first.get(token, -1e6) for token in tokens]


def _special_ids(
    files: TokenizerConfig, config: ModelConfig, tokenizer: Tokenizer, tokens: Sequence[str]
) -> Metadata:
    """Ids of special tokens: as the tokenizer's files name them, else config.json's."""
    ids = {"bos_token_id": config.bos_id, "eos_token_id": config.eos_ids[0]}
    for name, key in _SPECIAL_KEYS.items():
        id = tokenizer.token_id(files.special_tokens.get(name, ""))
        if id is not None:
            ids[key] = id
    ends = (tokenizer.token_id(token) for token in _TURN_ENDS)
    end = next((id for id in ends if id is not None and id in tokenizer.stop_ids), None)
    if end is not None:
        ids["eot_token_id"] = end
    return {key: Value("U32", id) for key, id in ids.items() if id < len(tokens)}
