"""What the answers to one request must keep to: forced calls, a form of the text, a budget of thoughts.

In: what a protocol asked for. Out: the guides that the engine asks before each token.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from onechip.engine.guides.either import Either
from onechip.engine.types import Guide
from onechip.errors import RequestError
from onechip.server.schemas import Sampling
from onechip.server.structure import Structure
from onechip.server.thinking import Thoughts
from onechip.server.work import GRAMMARS

if TYPE_CHECKING:
    from onechip.engine.guides.grammar import Grammar, Grammars

ToolDefinition = Mapping[str, Any]
"""One function in OpenAI's form: type, and function with name, description, parameters and strict."""


@dataclass(frozen=True, slots=True)
class CallRule:
    """Whether functions may or must be called.

    Attributes:
        mode: `none`: the prompt does not speak of the tools, so none is called; `required`: the answer is
            calls and nothing else; `named`: it is one call of the function in `names`.
        names: the functions that may be called; empty: all of them.
        one: not more than one call; the answer ends behind it.
        field: what the client calls this.
    """

    mode: Literal["auto", "none", "required", "named"] = "auto"
    names: tuple[str, ...] = ()
    one: bool = False
    field: str = "tool_choice"

    @property
    def must(self) -> bool:
        """Whether the answer is calls and nothing else."""
        return self.mode in ("required", "named")

    @property
    def single(self) -> bool:
        """Whether the answer has one call at the most."""
        return self.one or self.mode == "named"

    def check(self, tools: Sequence[ToolDefinition]) -> None:
        """Raises RequestError if there is no such tool, or none at all although one must be called."""
        known = [tool["function"]["name"] for tool in tools]
        for name in self.names:
            if name not in known:
                there_are = f"there are {', '.join(known)}" if known else "there are none"
                raise RequestError(
                    f"{self.field} names {name!r}, which is not in tools: {there_are}.", param=self.field
                )
        if self.must and not tools:
            raise RequestError(
                f"{self.field} requires a call, but there are no tools: send some, or leave it out.",
                param=self.field,
            )


@dataclass(frozen=True, slots=True)
class Constraints:
    """What each answer to one request is held to.

    Attributes:
        forms: grammars, one of which the answer must keep to, its thoughts left aside; none: any answer.
        thoughts: None where they cannot be told from text.
    """

    forms: tuple[Grammar, ...] = ()
    thoughts: Thoughts | None = None

    def guides(self, max_tokens: int) -> tuple[Guide, ...]:
        """Guides for one answer of `max_tokens` at the most."""
        within = self.thoughts.within(max_tokens) if self.thoughts else ()
        if not self.forms:
            return within
        forms = [form.guide() for form in self.forms]
        guide: Guide = forms[0] if len(forms) == 1 else Either(forms)
        return (self.thoughts.leave_alone(guide) if self.thoughts else guide, *within)


async def forms_of(
    grammars: Grammars,
    sampling: Sampling,
    structure: Structure | None,
    rule: CallRule,
    tools: Sequence[ToolDefinition] = (),
) -> tuple[Grammar, ...]:
    """Grammars, one of which an answer must keep to; they are compiled in another thread.

    Args:
        tools: those that the prompt speaks of.

    Raises:
        RequestError: one cannot be compiled, or the answer is to go on where its form ends.
    """
    text = None if structure is None or rule.must else await structure.grammar(grammars)
    usable = [tool for tool in tools if not rule.names or tool["function"]["name"] in rule.names]
    bound = rule.must or bool(rule.names) or any(tool["function"].get("strict") for tool in usable)
    calls = None
    if usable and (bound or text is not None):
        # Beside text that has a form, calls cannot stand behind any text.
        alone = rule.must or text is not None
        calls = await GRAMMARS.run(grammars.calls, usable, required=alone, many=not rule.single)
    forms = tuple(form for form in (text, calls) if form is not None)
    if forms:
        why = rule.field if rule.must or rule.names else "a strict tool"
        _check_end(sampling, structure.param if text is not None and structure else why)
    return forms


def _check_end(sampling: Sampling, field: str) -> None:
    """Raises RequestError if the answer is to go on where its form ends."""
    for name in ("min_tokens", "ignore_eos"):
        if getattr(sampling, name):
            raise RequestError(
                f"{name} does not go with {field}: an answer ends where its form does; leave {name} out.",
                param=name,
            )
