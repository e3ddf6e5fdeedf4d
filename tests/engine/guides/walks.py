"""Random answers that a guide allows: what any model, however bad, could write."""

from __future__ import annotations

import random
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from onechip.engine.types import Guide
from onechip.models.tokenizer import Tokenizer

_CLOSERS = ("<tool_call|>", "}", "]", '<|"|>', '"')
"""What ends something begins so."""


def allowed_ids(guide: Guide, vocab: int) -> NDArray[np.int64]:
    """The tokens that may come next."""
    mask = np.full(-(-vocab // 32), 0xFFFFFFFF, np.uint32)
    guide.forbid(mask)
    return np.flatnonzero(np.unpackbits(mask.view(np.uint8), bitorder="little"))


def taken(guide: Guide, ids: list[int], vocab: int) -> int:
    """How many of `ids` are allowed, one after the other."""
    for count, id in enumerate(ids):
        if id not in allowed_ids(guide, vocab):
            return count
        guide.take(id)
    return len(ids)


def walk(
    guide: Guide,
    tokenizer: Tokenizer,
    vocab: int,
    rng: random.Random,
    limit: int = 1000,
    liked: int | None = None,
) -> list[int] | None:
    """An answer with its stop token; None if it did not come to an end within `limit` tokens.

    The longer it gets, the more it is drawn to tokens that close something.

    Args:
        liked: a token that is often taken where it may come.
    """
    ranks = _ranks(tokenizer, vocab)
    stops = np.isin(np.arange(vocab), list(tokenizer.stop_ids))
    ids: list[int] = []
    while len(ids) < limit:
        allowed = allowed_ids(guide, vocab)
        assert len(allowed), f"nothing may follow {tokenizer.decode(ids, skip_special=False)!r}"
        ends = allowed[stops[allowed]]
        haste = min(0.95, 0.1 + len(ids) / 100)
        if liked is not None and liked in allowed and rng.random() > max(haste, 0.5):
            ids.append(liked)
            guide.take(liked)
            continue
        if len(ends) and (len(ends) == len(allowed) or rng.random() < max(haste, 0.5)):
            return [*ids, int(rng.choice(ends))]
        closers = np.flatnonzero(np.bincount(ranks[allowed], minlength=len(_CLOSERS) + 1))
        closers = closers[closers < len(_CLOSERS)]
        if len(closers) and rng.random() < haste:
            allowed = allowed[ranks[allowed] == rng.choice(closers)]
        ids.append(int(rng.choice(allowed)))
        guide.take(ids[-1])
    return None


@lru_cache
def _ranks(tokenizer: Tokenizer, vocab: int) -> NDArray[np.int64]:
    """For each token, which of the closers it begins with; their number if with none."""
    spelled = [tokenizer.token(id) for id in range(vocab)]
    found = ([rank for rank, closer in enumerate(_CLOSERS) if text.startswith(closer)] for text in spelled)
    return np.array([min(ranks, default=len(_CLOSERS)) for ranks in found])
