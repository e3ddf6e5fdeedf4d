"""Prompts of exactly the length asked for, each one unique: a seed and a position in, the same prompt for
every arm out.

A prompt is a row of common words, each of which is one token wherever it stands. Which words are, and how
many tokens the engine adds around them (BOS, chat template), is found by asking a tokenizer: the checkpoint's
own, the engine's `/tokenize`, or the engine's usage. Words are drawn anew for each request, so no two prompts
share more than what the engine adds itself and a word or two by chance; a prefix cache finds nothing.
"""

from __future__ import annotations

import hashlib
import json
import random
from collections.abc import Callable, Sequence
from string import ascii_lowercase
from typing import Any, Literal

import msgspec

from onechip.errors import LadderError

VERSION = 1
"""Raised when the same seed would give other prompts."""

Way = Literal["ids", "text", "chat"]
"""How prompts are sent: token ids or text to /v1/completions, or one user message to /v1/chat/completions."""

_COMMON = """
time year people way day man thing woman life child world school state family student group country problem
hand part place case week company system program question work number night point home water room mother
area money story fact month lot right study book eye job word business issue side kind head house service
friend father power hour game line end member law car city community name team minute idea body back parent
face others level office door health person art war history party result change morning reason research girl
guy moment air teacher force education the and with from have this that they will would there their what
about which when make can like just know take into your good some could them see other than then now look
only come over think also after use two how our first well even new want because any these give most red
blue green long short small large old young high low early late
"""
CANDIDATES = tuple(dict.fromkeys(_COMMON.split()))
FIRST = "the"
"""Every text begins with this word: many words are other tokens at the start than behind a space."""
FEWEST_WORDS = 16
"""With fewer, two prompts of a sweep would too often begin alike."""

ONE_PROMPTS = (
    "Explain to a child why the sky is blue in the day and red in the evening.",
    "Write a short story about a lighthouse keeper who finds a letter in a bottle.",
    "A shop sells apples at 3 for 2 dollars. How much do 12 apples cost? Show each step.",
    "List the planets of the solar system in order, with one fact about each.",
    "Write a Python function that returns the n-th Fibonacci number, and explain it line by line.",
    "What should I think about before I adopt a dog from a shelter? Give me advice in a few paragraphs.",
)
"""The chat prompts of job `one`."""


class Recipe(msgspec.Struct, frozen=True):
    """How to make prompts for one engine.

    Attributes:
        words: each is one token behind a space.
        ids: with way "ids", the token ids of FIRST as a text begins (BOS included) and then of each word.
        overhead: tokens of a prompt that holds FIRST alone: what all prompts share.
    """

    way: Way
    words: tuple[str, ...]
    overhead: int
    first_ids: tuple[int, ...] = ()
    word_ids: tuple[int, ...] = ()

    @property
    def sha256(self) -> str:
        """Names the whole set of prompts that this recipe can make."""
        return digest({"version": VERSION, "first": FIRST} | msgspec.to_builtins(self))


class Prompt(msgspec.Struct, frozen=True):
    """`fields` go into the request's body."""

    path: str
    fields: dict[str, Any]
    tokens: int

    @property
    def sha256(self) -> str:
        return digest(self.fields)


def digest(value: Any) -> str:
    """SHA-256 of a value's canonical JSON."""
    return hashlib.sha256(json.dumps(value, sort_keys=True, ensure_ascii=False).encode()).hexdigest()


def calibrate(way: Way, count: Callable[[str], int], candidates: Sequence[str] = CANDIDATES) -> Recipe:
    """Finds words that are one token each; letters too, where a tokenizer knows too few words as a whole.

    Args:
        count: tokens of a prompt with this text, everything that the engine adds included.

    Raises:
        LadderError: too few words are single tokens.
    """
    overhead = count(FIRST)
    words = tuple(word for word in candidates if _single(word, count, overhead))
    if len(words) < FEWEST_WORDS:
        words += tuple(letter for letter in ascii_lowercase if _single(letter, count, overhead))
    if len(words) < FEWEST_WORDS:
        raise LadderError(
            f"Only {len(words)} of {len(candidates)} common words and {len(ascii_lowercase)} letters are"
            f" single tokens of this tokenizer; prompts of exact length need {FEWEST_WORDS}. Leave the sweep"
            " out with --jobs start,one,acc."
        )
    return Recipe(way, words, overhead)


def _single(word: str, count: Callable[[str], int], overhead: int) -> bool:
    """One token the first time and each time after; a merge of two words would show."""
    return count(f"{FIRST} {word}") == overhead + 1 and count(" ".join([FIRST, *[word] * 4])) == overhead + 4


def with_ids(recipe: Recipe, encode: Callable[[str], Sequence[int]]) -> Recipe:
    """The recipe for token-id prompts; `encode` gives the ids of a text, BOS included."""
    first = tuple(encode(FIRST))
    word_ids = tuple(encode(f"{FIRST} {word}")[-1] for word in recipe.words)
    return msgspec.structs.replace(recipe, way="ids", first_ids=first, word_ids=word_ids, overhead=len(first))


def make(recipe: Recipe, tokens: int, key: str) -> Prompt:
    """The prompt of `tokens` tokens that belongs to `key` (seed, shape, level, repeat, position).

    Raises:
        LadderError: the engine adds more around a prompt than `tokens`.
    """
    free = tokens - recipe.overhead
    if free < 1:
        raise LadderError(
            f"A prompt of {tokens} tokens has no room: the engine adds {recipe.overhead} by itself."
        )
    rng = random.Random(hashlib.sha256(f"{VERSION}/{key}".encode()).digest())
    picks = [rng.randrange(len(recipe.words)) for _ in range(free)]
    if recipe.way == "ids":
        ids = [*recipe.first_ids, *(recipe.word_ids[pick] for pick in picks)]
        return Prompt("/v1/completions", {"prompt": ids}, tokens)
    text = " ".join([FIRST, *(recipe.words[pick] for pick in picks)])
    if recipe.way == "text":
        return Prompt("/v1/completions", {"prompt": text}, tokens)
    return Prompt("/v1/chat/completions", {"messages": [{"role": "user", "content": text}]}, tokens)
