"""How to make prompts of exact length for one engine, found by asking it: its features in, a recipe out.

A recipe that was found is tried: the engine itself, by usage or /tokenize, must count a made prompt as long
as it was asked for.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial

from msgspec.structs import replace

from onechip.errors import LadderError
from onechip.ladder import prompts
from onechip.ladder.checkpoint import TokenCounter
from onechip.ladder.probe import Features, Prober, tokenize
from onechip.ladder.prompts import Prompt, Recipe, Way
from onechip.ladder.target import Target

USAGE_CANDIDATES = 48
"""Words tried where each count costs a request."""
TRIED_TOKENS = 16
"""Of a prompt that is tried, beyond what all prompts share."""

Encode = Callable[[str], list[int]]


def find(target: Target, features: Features, counter: TokenCounter | None) -> Recipe:
    """The first of these ways that gives prompts of the length asked for: token ids, text, chat.

    Raises:
        LadderError: no way of counting tokens was found, or the engine counts the prompts otherwise.
    """
    asker = _Asker(target, features)
    wrong = ""
    for recipe in _recipes(asker, _encoder(target, features, counter)):
        tried = asker.tried(recipe)
        if isinstance(tried, Recipe):
            return tried
        wrong = tried
    if wrong:
        raise LadderError(f"{wrong} Leave the sweep out with --jobs start,one,acc.")
    raise LadderError(
        f"{features.model} at {target.url} reports no usage and takes no token ids, so the length of a"
        " prompt cannot be known. Leave the sweep out with --jobs start,one,acc."
    )


def _recipes(asker: _Asker, encode: Encode | None) -> Iterator[Recipe]:
    """One a way, those that cost the engine least first."""
    features = asker.features
    if features.token_ids and encode is not None:
        yield prompts.with_ids(prompts.calibrate("ids", lambda text: len(encode(text))), encode)
    if not features.usage:
        return
    ways: tuple[Way, ...] = ("text", "chat") if features.completions else ("chat",)
    for way in ways:
        known = None if encode is None else prompts.calibrate(way, lambda text: len(encode(text)))
        agreed = None if known is None else asker.agreed(known)
        if agreed is None:
            candidates = prompts.CANDIDATES[:USAGE_CANDIDATES]
            agreed = prompts.calibrate(way, partial(asker.count, way), candidates)
        yield agreed


def _encoder(target: Target, features: Features, counter: TokenCounter | None) -> Encode | None:
    if counter is not None:
        return counter.encode
    if features.tokenize:
        return lambda text: tokenize(target, features.model, {"prompt": text}) or []
    return None


class _Asker:
    """Counts by asking the engine. No prompt that is measured later gets into a cache by it."""

    def __init__(self, target: Target, features: Features) -> None:
        self.target = target
        self.features = features
        self._prober = Prober(target, features.model, limit=features.limit)
        self._prober.options = {"include_usage": True} if features.usage else {}

    def count(self, way: Way, text: str) -> int:
        """Tokens of a short text as a prompt, by a request with one output token.

        Raises:
            LadderError: the engine does not say.
        """
        record = (
            self._prober.chat({}, 1, text)
            if way == "chat"
            else self._prober.ask("/v1/completions", {"prompt": text}, 1)
        )
        if record.prompt_tokens is None:
            raise LadderError(f"{self.target.url} did not say how many tokens {text!r} has: {record.error}")
        return record.prompt_tokens

    def agreed(self, known: Recipe) -> Recipe | None:
        """A recipe by another tokenizer with this engine's overhead, if the engine counts all words alike.

        Two requests in place of two a word, which would take a slow engine many minutes.
        """
        overhead = self.count(known.way, prompts.FIRST)
        whole = self.count(known.way, " ".join([prompts.FIRST, *known.words]))
        return replace(known, overhead=overhead) if whole == overhead + len(known.words) else None

    def tried(self, recipe: Recipe) -> Recipe | str:
        """The recipe itself, or mended for an engine that puts a BOS of its own before token ids; one
        sentence if the engine counts a made prompt otherwise."""
        wanted = recipe.overhead + TRIED_TOKENS
        counted = self._length(prompts.make(recipe, wanted, "tried"))
        if counted is None or counted == wanted:
            return recipe
        if recipe.way == "ids" and counted == wanted + 1 and len(recipe.first_ids) > 1:
            bare = replace(recipe, first_ids=recipe.first_ids[1:])
            if self._length(prompts.make(bare, wanted, "tried")) == wanted:
                return bare
        return (
            f"{self.features.model} at {self.target.url} counts {counted} tokens in a prompt that was made to"
            f" have {wanted}, so prompts of exact length cannot be made."
        )

    def _length(self, prompt: Prompt) -> int | None:
        """Tokens of a prompt by the engine's own count: usage, else /tokenize; None if it has neither for
        it."""
        record = self._prober.ask(prompt.path, prompt.fields, 1)
        if record.error is not None or record.prompt_tokens is not None:
            return record.prompt_tokens
        if not self.features.tokenize or isinstance(prompt.fields.get("prompt"), list):
            return None
        found = tokenize(self.target, self.features.model, prompt.fields)
        return None if found is None else len(found)
