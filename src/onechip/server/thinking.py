"""Whether a model is to think before it answers, and for how many tokens, whichever protocol says it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from onechip.engine.guides.thoughts import AfterThought, ThoughtBudget
from onechip.engine.types import Guide
from onechip.errors import RequestError
from onechip.models.chat_parser import ThoughtMarkers, open_thought
from onechip.models.tokenizer import Tokenizer
from onechip.server.schemas import Effort

EFFORT_BUDGETS = {"minimal": 256, "low": 1024, "medium": 4096, "high": 16_384}
"""Tokens of thoughts at the most; efforts beyond set no bound."""


@dataclass(frozen=True, slots=True)
class Thinking:
    """What a request says of thoughts.

    Attributes:
        wanted: whether to think; None leaves it to the template.
        field: what the client calls `wanted`.
        budget: tokens of thoughts at the most; None: as many as the model likes.
        budget_field: what the client calls `budget`; "" if it said an effort and no number. A number that
            cannot be kept is refused, an effort is not.
    """

    wanted: bool | None = None
    field: str = ""
    budget: int | None = None
    budget_field: str = ""

    @classmethod
    def of_effort(cls, effort: Effort | None, field: str) -> Thinking:
        """What an effort asks for: `none` does not think, every other one does."""
        if effort is None:
            return cls()
        return cls(effort != "none", field, EFFORT_BUDGETS.get(effort))


@dataclass(frozen=True, slots=True)
class Thoughts:
    """The thoughts of the answers to one prompt.

    Attributes:
        may: an answer may begin with thoughts.
        opened: the prompt has opened them.
        budget: their tokens at the most.
    """

    tokenizer: Tokenizer
    markers: ThoughtMarkers
    may: bool
    opened: bool
    budget: int | None

    @classmethod
    def of(
        cls, tokenizer: Tokenizer, prompt: Sequence[int], thinking: Thinking, told: bool, calls: bool
    ) -> Thoughts | None:
        """Those of a conversation; None where the model's thoughts cannot be told from its text.

        Args:
            prompt: token ids.
            told: the prompt tells the model to think.
            calls: the answers may have calls.

        Raises:
            RequestError: a budget is asked for that cannot be kept.
        """
        markers = ThoughtMarkers.of(tokenizer, calls)
        if markers is None:
            if thinking.budget is not None and thinking.budget_field:
                raise RequestError(
                    f"{thinking.budget_field} cannot be kept, since this model does not mark its thoughts as "
                    "Gemma 4 does; ask without a number of tokens.",
                    param=thinking.budget_field,
                )
            return None
        opened = open_thought(tokenizer, prompt) is not None
        return cls(tokenizer, markers, told or opened, opened, thinking.budget)

    def leave_alone(self, guide: Guide) -> Guide:
        """`guide` for what comes behind them."""
        return AfterThought(guide, self.markers, self.opened) if self.may else guide

    def within(self, max_tokens: int) -> tuple[Guide, ...]:
        """What ends them in an answer of `max_tokens` at the most, if there is a need: guides cost time."""
        if self.budget is None or self.budget >= max_tokens:
            return ()
        return (ThoughtBudget(self.tokenizer, self.markers, self.budget, self.opened),)
