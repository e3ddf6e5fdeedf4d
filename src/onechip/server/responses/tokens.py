"""Log-probabilities of an answer's tokens -> those of its texts; thoughts and calls have no place for any."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

from onechip.server.answer import Answer
from onechip.server.blocks import Block, Grown, Step
from onechip.server.logprobs import TokenLogprob, TokenNames, Untold, token_logprobs


class BlockTokens:
    """Which tokens each text is made of. Special ones are not in it, even where they are shown."""

    def __init__(self, answer: Answer, names: TokenNames, wanted: bool) -> None:
        """Nothing has come yet.

        Args:
            wanted: log-probabilities were asked for.
        """
        self._untold = Untold(answer)
        self._names = names
        self._wanted = wanted
        self._pending: list[TokenLogprob] = []  # of a text that is held back: half a character, a stop string
        self._of: defaultdict[int, list[TokenLogprob]] = defaultdict(list)

    def take(self, steps: Sequence[Step]) -> list[TokenLogprob]:
        """Those of the text that grew in `steps`, which the latest window of the answer gave."""
        if not self._wanted:
            return []
        ids, told = self._untold.take()
        special = not self._names.tokenizer.special_ids.isdisjoint(ids)
        if not special:
            self._pending += token_logprobs(self._names, ids, told)
        texts = [step.block for step in steps if isinstance(step, Grown) and step.block.kind == "text"]
        if not (steps or special):
            return []
        found, self._pending = self._pending, []
        if not texts:  # what was held back was none of a text
            return []
        self._of[texts[0].index] += found
        return found

    def of(self, block: Block) -> list[TokenLogprob]:
        """All of a text."""
        return self._of[block.index]
