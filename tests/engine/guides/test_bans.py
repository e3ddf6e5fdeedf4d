"""Bad words and allowed tokens, against their definitions, word by word and token by token."""

from __future__ import annotations

import random

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from onechip.engine.guides.bans import AllowedTokens, BadWords
from onechip.engine.guides.masks import has
from onechip.engine.types import Guide
from onechip.errors import RequestError

VOCABULARY = 70  # three words, the last one in part
TOKENS = st.integers(0, VOCABULARY - 1)


def allowed(guide: Guide) -> set[int]:
    mask = np.full(3, 0xFFFFFFFF, np.uint32)
    guide.forbid(mask)
    return {token for token in range(VOCABULARY) if has(mask, token)}


def ends_with(tokens: list[int], word: list[int]) -> bool:
    return tokens[len(tokens) - len(word) :] == word if len(word) <= len(tokens) else False


@given(st.lists(st.lists(st.integers(0, 3), min_size=1, max_size=4), max_size=5), st.randoms())
def test_no_bad_word_is_ever_complete(words: list[list[int]], rng: random.Random) -> None:
    guide, answer = BadWords(words), []
    for _ in range(12):
        expected = {
            token
            for token in range(VOCABULARY)
            if not any(ends_with([*answer, token], word) for word in words)
        }
        assert allowed(guide) == expected
        token = rng.choice(sorted(expected)[:6])
        guide.take(token)
        answer.append(token)


@given(st.lists(TOKENS, min_size=1))
def test_only_allowed_tokens(tokens: list[int]) -> None:
    guide = AllowedTokens(tokens)
    assert allowed(guide) == set(tokens)
    guide.take(tokens[0])
    assert allowed(guide) == set(tokens)


def test_a_token_that_only_the_tokenizer_knows_never_comes() -> None:
    stranger = 96  # the mask ends before it
    assert allowed(BadWords([[stranger], [1]])) == set(range(VOCABULARY)) - {1}
    assert allowed(AllowedTokens([1, stranger])) == {1}
    with pytest.raises(RequestError, match="allowed_token_ids"):
        allowed(AllowedTokens([stranger]))


def test_nothing_left_is_said_by_name() -> None:
    with pytest.raises(RequestError, match="bad_words"):
        BadWords([[2]]).forbid(np.array([0b100, 0, 0], np.uint32))
    with pytest.raises(RequestError, match="allowed_token_ids"):
        AllowedTokens([3]).forbid(np.array([0, 1, 0], np.uint32))
