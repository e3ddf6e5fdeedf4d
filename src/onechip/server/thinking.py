"""Whether a model is to think before it answers, and for how many tokens, whichever protocol says it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from onechip.engine.guides.thoughts import AfterThought, ThoughtBudget
from onechip.engine.types import Guide
from onechip.errors import RequestError
from onechip.models.chat_parser import ThoughtMarkers, open_thought
from onechip.models.think_marks import ThinkMarks
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
        markers: around them; None: they are spelled in ordinary tokens, so that no guide knows them.
        may: an answer may begin with thoughts.
        opened: the prompt has opened them.
        budget: their tokens at the most.
    """

    tokenizer: Tokenizer
    markers: ThoughtMarkers | None
    may: bool
    opened: bool
    budget: int | None

    @classmethod
    def of(
        cls,
        tokenizer: Tokenizer,
        marks: ThinkMarks | None,
        prompt: Sequence[int],
        thinking: Thinking,
        told: bool | None,
        calls: bool,
        begun: str = "",
    ) -> Thoughts | None:
        """Those of a conversation; None where the model's thoughts cannot be told from its text.

        Args:
            marks: the model's, if they are others than Gemma 4's.
            prompt: token ids.
            told: what the prompt tells the model of whether to think; None: nothing.
            calls: the answers may have calls.
            begun: what they begin with in the prompt.

        Raises:
            RequestError: a budget is asked for, or no thoughts at all, and that cannot be kept.
        """
        if marks is not None:
            return cls._between(marks, tokenizer, prompt, thinking, told, begun)
        markers = ThoughtMarkers.of(tokenizer, calls)
        if markers is None:
            _refuse_budget(thinking, "this model does not mark its thoughts in a way that is known here")
            return None
        opened = open_thought(tokenizer, prompt) is not None
        return cls(tokenizer, markers, bool(told) or opened, opened, thinking.budget)

    @classmethod
    def _between(
        cls,
        marks: ThinkMarks,
        tokenizer: Tokenizer,
        prompt: Sequence[int],
        thinking: Thinking,
        told: bool | None,
        begun: str,
    ) -> Thoughts:
        """Those between `marks`. A model whose template knows these thinks unless it is told not to, and it
        thinks where the prompt has opened the thoughts, whatever it is told.
        """
        opened = marks.opened_by(tokenizer, prompt, begun)
        unasked = told is None and marks.in_template and not marks.closed_by(tokenizer, prompt)
        may = opened or unasked or bool(told)
        unwanted = may and not told and thinking.wanted is False
        markers = marks.markers(tokenizer)
        if markers is None:
            _refuse_budget(
                thinking, f"{marks.open} and {marks.close} are no tokens of this model's vocabulary"
            )
            if unwanted and opened:
                raise RequestError(
                    f"{thinking.field}: the chat template of this model opens thoughts whatever it is asked, "
                    f"and {marks.close} is no token with which they could be closed; leave it out.",
                    param=thinking.field,
                )
            return cls(tokenizer, None, False, opened, None)
        budget = 0 if unwanted else thinking.budget
        return cls(tokenizer, markers, may, opened, budget)

    def leave_alone(self, guide: Guide) -> Guide:
        """`guide` for what comes behind them.

        Raises:
            RequestError: the prompt has opened them, and nobody would know where they end.
        """
        if self.markers is None and self.opened:
            raise RequestError(
                "An answer of this model cannot be held to a form or to a call: the chat template opens "
                "thoughts before it, and the marks around them are no tokens of the vocabulary. Ask without."
            )
        return AfterThought(guide, self.markers, self.opened) if self.may and self.markers else guide

    def within(self, max_tokens: int) -> tuple[Guide, ...]:
        """What ends them in an answer of `max_tokens` at the most, if there is a need: guides cost time."""
        if self.markers is None or self.budget is None or self.budget >= max_tokens:
            return ()
        return (ThoughtBudget(self.tokenizer, self.markers, self.budget, self.opened),)


def _refuse_budget(thinking: Thinking, why: str) -> None:
    """Raises RequestError if a number of tokens is asked for."""
    if thinking.budget is not None and thinking.budget_field:
        raise RequestError(
            f"{thinking.budget_field} cannot be kept, since {why}; ask without a number of tokens.",
            param=thinking.budget_field,
        )
