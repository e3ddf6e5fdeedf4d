"""The vocabulary of a GGUF file in; out come the tokenizer.json and tokenizer_config.json that say the same.

Three kinds are read: "gemma4" (BPE over text), "llama" (SentencePiece with scores), and "gpt2" (BPE over
bytes, with the ways of cutting text before it that models of Llama's architecture have).
"""

from __future__ import annotations

from typing import Any

from gguf.constants import TokenType

from onechip.errors import CheckpointError
from onechip.models.gguf.metadata import Metadata
from onechip.models.gguf.pretokenizers import IGNORE_MERGES, PRE_TOKENIZERS

_MODELS = ("gemma4", "llama", "gpt2")
_SPECIAL_TYPES = (TokenType.CONTROL, TokenType.UNKNOWN)
_GEMMA4_MARKUP = frozenset(
    {
        "<|channel>",
        "<channel|>",
        "<|tool_call>",
        "<tool_call|>",
        "<|tool_response>",
        "<tool_response|>",
        '<|"|>',
    }
)
"""Special tokens that llama.cpp's converter marks as text, so that its own parser gets to see them."""

_BLANK = "▁"
_TO_BLANK = {"type": "Replace", "pattern": {"String": " "}, "content": _BLANK}
_FROM_BLANK = [
    {"type": "Replace", "pattern": {"String": _BLANK}, "content": " "},
    {"type": "ByteFallback"},
    {"type": "Fuse"},
]
_CUT_AT_BLANKS = {
    "type": "Split",
    "pattern": {"String": " "},
    "behavior": "MergedWithPrevious",
    "invert": False,
}


def tokenizer_json(metadata: Metadata) -> dict[str, Any]:
    """The tokenizer.json. Raises CheckpointError naming what is missing or not served."""
    kind = _kind(metadata)
    tokens = metadata.strings("tokenizer.ggml.tokens")
    types = metadata.whole_numbers("tokenizer.ggml.token_type", len(tokens), int(TokenType.NORMAL))
    if len(types) != len(tokens):
        raise CheckpointError(f"{metadata.path} has {len(tokens)} tokens and {len(types)} types of tokens.")
    vocabulary: dict[str, int] = {}
    for id, token in enumerate(tokens):
        vocabulary.setdefault(token, id)
    if kind == "llama":
        merges = scored_merges(vocabulary, types, _scores(metadata, len(tokens)))
    else:
        merges = _merges(metadata, vocabulary)
    return {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": _added_tokens(tokens, types, kind),
        **_pipeline(metadata, kind),
        "model": {
            "type": "BPE",
            "dropout": None,
            "unk_token": None if kind == "gpt2" else _token(metadata, "unknown", tokens),
            "continuing_subword_prefix": None,
            "end_of_word_suffix": None,
            "fuse_unk": kind != "gpt2",
            "byte_fallback": kind != "gpt2" and int(TokenType.BYTE) in types,
            "ignore_merges": kind == "gpt2" and _pre(metadata) in IGNORE_MERGES,
            "vocab": vocabulary,
            "merges": merges,
        },
    }


def tokenizer_config_json(metadata: Metadata) -> dict[str, Any]:
    """The tokenizer_config.json: special tokens by name, and whether prompts begin with BOS."""
    kind = _kind(metadata)
    tokens = metadata.strings("tokenizer.ggml.tokens")
    # llama.cpp's defaults, by the kind of vocabulary.
    add_bos = kind != "gpt2" or _pre(metadata) in IGNORE_MERGES
    names = {"bos": "bos", "eos": "eos", "unk": "unknown", "pad": "padding", "mask": "mask"}
    found = {f"{name}_token": _token(metadata, key, tokens) for name, key in names.items()}
    return {
        "tokenizer_class": "PreTrainedTokenizerFast",
        **{name: token for name, token in found.items() if token is not None},
        "add_bos_token": metadata.flag("tokenizer.ggml.add_bos_token", add_bos),
        "clean_up_tokenization_spaces": False,
        "model_max_length": metadata.whole("context_length"),
    }


def scored_merges(vocabulary: dict[str, int], types: list[int], scores: list[float]) -> list[tuple[str, str]]:
    """SentencePiece's scores as a list of merges, first the best.

    SentencePiece joins the two neighbours whose join has the best score, from whatever parts it came; so each
    way of cutting a token into two tokens is a merge, in the order of the tokens' scores.
    """
    text = (TokenType.NORMAL, TokenType.USER_DEFINED, TokenType.UNUSED)
    joins = []
    for token, id in vocabulary.items():
        if types[id] not in text:
            continue
        for cut in range(1, len(token)):
            left, right = vocabulary.get(token[:cut]), vocabulary.get(token[cut:])
            if left is not None and right is not None:
                joins.append((-scores[id], id, left, cut, token))
    joins.sort()
    return [(token[:cut], token[cut:]) for *_, cut, token in joins]


def _kind(metadata: Metadata) -> str:
    kind = metadata.text("tokenizer.ggml.model")
    if kind not in _MODELS:
        raise CheckpointError(
            f"{metadata.path} has a tokenizer of kind {kind}: onechip reads {', '.join(_MODELS)}."
        )
    return kind


def _pre(metadata: Metadata) -> str:
    """How text is cut before byte-level BPE; files from before spring 2024 do not say it."""
    name = metadata.text("tokenizer.ggml.pre", "default")
    if name not in PRE_TOKENIZERS:
        raise CheckpointError(
            f"{metadata.path} cuts text as {name} does (tokenizer.ggml.pre): onechip knows "
            f"{', '.join(sorted(PRE_TOKENIZERS))}; take the safetensors checkpoint."
        )
    return name


def _pipeline(metadata: Metadata, kind: str) -> dict[str, Any]:
    """What stands around the model: normalizer, pre_tokenizer, post_processor, decoder."""
    if kind == "gpt2":
        return {
            "normalizer": None,
            "pre_tokenizer": PRE_TOKENIZERS[_pre(metadata)],
            "post_processor": None,
            "decoder": {
                "type": "ByteLevel",
                "add_prefix_space": True,
                "trim_offsets": True,
                "use_regex": True,
            },
        }
    prefix = kind == "llama" and metadata.flag("tokenizer.ggml.add_space_prefix", True)
    prepend = [{"type": "Prepend", "prepend": _BLANK}, _TO_BLANK]
    strip = [{"type": "Strip", "content": " ", "start": 1, "stop": 0}] if prefix else []
    return {
        "normalizer": {"type": "Sequence", "normalizers": prepend} if prefix else _TO_BLANK,
        "pre_tokenizer": None if prefix else _CUT_AT_BLANKS,
        "post_processor": None,
        "decoder": {"type": "Sequence", "decoders": [*_FROM_BLANK, *strip]},
    }


def _added_tokens(tokens: list[str], types: list[int], kind: str) -> list[dict[str, Any]]:
    """The tokens that are looked for in a text before anything else."""
    added = []
    for id, (token, type) in enumerate(zip(tokens, types, strict=True)):
        markup = type in _SPECIAL_TYPES or (kind == "gemma4" and token in _GEMMA4_MARKUP)
        if markup or type == TokenType.USER_DEFINED:
            flags = dict.fromkeys(("single_word", "lstrip", "rstrip", "normalized"), False)
            added.append({"id": id, "content": token, **flags, "special": markup})
    return added


def _merges(metadata: Metadata, vocabulary: dict[str, int]) -> list[tuple[str, str]]:
    """The pairs of the file, checked: over a wrong one the tokenizers library panics."""
    pairs = []
    for merge in metadata.strings("tokenizer.ggml.merges"):
        left, _, right = merge.partition(" ")
        if not (left in vocabulary and right in vocabulary and left + right in vocabulary):
            raise CheckpointError(
                f"{metadata.path} has the merge {merge!r}: it is no pair of tokens that makes a token."
            )
        pairs.append((left, right))
    return pairs


def _scores(metadata: Metadata, count: int) -> list[float]:
    scores = metadata.numbers("tokenizer.ggml.scores")
    if len(scores) != count:
        raise CheckpointError(f"{metadata.path} has {count} tokens and {len(scores)} scores.")
    return scores


def _token(metadata: Metadata, key: str, tokens: list[str]) -> str | None:
    """The spelling of a special token; None if the file names none."""
    name = f"tokenizer.ggml.{key}_token_id"
    if not metadata.has(name):
        return None
    id = metadata.whole(name)
    if not 0 <= id < len(tokens):
        raise CheckpointError(f"{metadata.path} has {name} {id}: there are {len(tokens)} tokens.")
    return tokens[id]
