"""One of several guides holds, and the tokens that come tell which."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from onechip.engine.guides.either import Either
from onechip.engine.guides.masks import Mask, forbid, has, keep_only

VOCABULARY = 40


class Says:
    """Allows one sequence of tokens."""

    def __init__(self, *tokens: int) -> None:
        self.tokens = list(tokens)

    def forbid(self, allowed: Mask) -> None:
        keep_only(allowed, self.tokens[0])

    def take(self, token: int) -> None:
        assert token == self.tokens.pop(0)


def allowed_by(guide: Either, banned: tuple[int, ...] = ()) -> list[int]:
    mask = np.full(2, 0xFFFFFFFF, np.uint32)
    forbid(mask, banned)
    guide.forbid(mask)
    return [token for token in range(VOCABULARY) if has(mask, token)]


def languages(guides: tuple[tuple[int, ...], ...]) -> Iterator[tuple[int, ...]]:
    """All that an Either of sequences lets through."""

    def walk(said: tuple[int, ...]) -> Iterator[tuple[int, ...]]:
        guide = Either([Says(*sequence, 0) for sequence in guides])
        for token in said:
            allowed_by(guide)
            guide.take(token)
        for token in allowed_by(guide):
            if token == 0:
                yield said
            else:
                yield from walk((*said, token))

    return walk(())


def test_it_lets_through_what_one_of_them_does() -> None:
    for sequences in (((1, 2, 3), (1, 2, 33)), ((5,), (5, 6), (7,)), ((39, 1),), ((1, 2), (1, 2))):
        assert sorted(languages(sequences)) == sorted(set(sequences))


def test_what_others_forbid_stays_forbidden() -> None:
    assert allowed_by(Either([Says(1), Says(2)]), banned=(1,)) == [2]
