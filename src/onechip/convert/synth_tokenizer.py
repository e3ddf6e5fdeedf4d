"""A vocabulary size in; out comes a made-up tokenizer of exactly that size, built as Gemma 4's is.

Gemma's control tokens have their published ids; then come the newline, the bytes, the printable ASCII, and
strings of small letters up to the size. Nothing was learned: its checkpoints have nothing to say.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from string import ascii_lowercase

from tokenizers import AddedToken, Tokenizer, decoders, normalizers, pre_tokenizers
from tokenizers.models import BPE

SPACE = "▁"
CONTROL = {
    0: "<pad>",
    1: "<eos>",
    2: "<bos>",
    3: "<unk>",
    4: "<mask>",
    46: "<|tool>",
    47: "<tool|>",
    48: "<|tool_call>",
    49: "<tool_call|>",
    50: "<|tool_response>",
    51: "<tool_response|>",
    52: '<|"|>',
    98: "<|think|>",
    100: "<|channel>",
    101: "<channel|>",
    105: "<|turn>",
    106: "<turn|>",
}
"""Ids and names of Gemma 4's control tokens for text; ids between them are reserved."""

FIRST_ORDINARY = 107  # "\n", as in Gemma 4
_PRINTABLE = [SPACE, *(chr(code) for code in range(ord("!"), ord("~") + 1))]


def build_tokenizer(vocab_size: int) -> Tokenizer:
    """A byte-fallback BPE tokenizer with ids 0 to vocab_size - 1, in the form of Gemma's tokenizer.json.

    Raises ValueError if the control tokens, bytes and ASCII do not fit.
    """
    control = [CONTROL.get(i, f"<unused{i}>") for i in range(FIRST_ORDINARY)]
    tokens = [*control, "\n", *(f"<0x{byte:02X}>" for byte in range(256)), *_PRINTABLE]
    if vocab_size < len(tokens):
        raise ValueError(f"a vocabulary of {vocab_size} is too small: {len(tokens)} tokens are fixed")
    merges = list(islice(_merges(), vocab_size - len(tokens)))
    tokens += [left + right for left, right in merges]
    model = BPE(
        vocab={token: i for i, token in enumerate(tokens)},
        merges=merges,
        unk_token="<unk>",
        fuse_unk=True,
        byte_fallback=True,
    )
    tokenizer = Tokenizer(model)
    tokenizer.normalizer = normalizers.Replace(" ", SPACE)
    tokenizer.pre_tokenizer = pre_tokenizers.Split(" ", "merged_with_previous")
    tokenizer.decoder = decoders.Sequence(
        [decoders.Replace(SPACE, " "), decoders.ByteFallback(), decoders.Fuse()]
    )
    tokenizer.add_special_tokens([AddedToken(token, special=True, normalized=False) for token in control])
    return tokenizer


def _merges() -> Iterator[tuple[str, str]]:
    """(string, letter) for all strings of letters, with or without a space before, the shorter ones first."""
    longest = [SPACE, *ascii_lowercase]
    while True:
        following = [(string, letter) for string in longest for letter in ascii_lowercase]
        yield from following
        longest = [string + letter for string, letter in following]
