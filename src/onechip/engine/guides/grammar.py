"""Grammars over tokens: what a JSON schema, a regex, a list of choices, a Lark grammar or tools allow.

llguidance says which tokens may come next; here its grammars are made, checked and kept, and each answer gets
the state of its own. Use: `grammar = grammars.json_schema(schema, "response_format.json_schema.schema")`,
then `Request(..., guides=(grammar.guide(),))`.
"""

from __future__ import annotations

import json
import re
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import llguidance
import numpy as np
from llguidance.numpy import fill_next_token_bitmask

from onechip.engine.guides.kept import Kept
from onechip.engine.guides.large_stack import on_large_stack
from onechip.engine.guides.masks import Mask, allow
from onechip.engine.guides.vocabulary import Vocabulary
from onechip.errors import RequestError
from onechip.models.call_grammar import call_grammar
from onechip.models.gbnf import gbnf_to_lark, is_gbnf
from onechip.models.json_grammar import check_json_schema, json_grammar
from onechip.models.schema_limits import MAX_TEXT, SchemaError, check_limits, check_numbers, estimated_bytes
from onechip.models.string_forms import regex_reason
from onechip.models.tokenizer import Tokenizer

_KEPT = 64 << 20
"""Bytes of grammars that are kept compiled, as `estimated_bytes` has it."""

_KEPT_COUNT = 128
"""Of them: automata grow while answers use them, by 20 MB each at llguidance's limit of states."""

_MAX_TEXT = 100_000
"""Characters of a regex or a grammar: a chain of as many rules as fit takes 0.1 s, and 50 MB of stack."""

_MAX_CALLS = 1_000_000
"""Characters of the grammar that tools become."""

_BEGINNING = 3
"""Masks that are made on trial, so that what can never be held to is refused before the engine is asked."""

_LIMITS = llguidance.LLParserLimits(max_items_in_row=10_000, max_lexer_states=50_000, verbose_errors=False)
"""Its own limit of 2,000 items ends answers in objects of 600 optional members. A state takes 0.4 kB
or more. Verbose errors would have the state of the parser in them.
"""

_TOO_COMPLEX = re.compile(
    "^panic|fuel exhausted|too many (expressions|states)|Too many items|Current row has|schema too large"
    "|grammar size|[(]grammar[)] too big|precomputation failed|Unable to determine"
)
"""What llguidance says where one of its limits is met."""


_MAX_TOGETHER = 8
"""How many terminals may hold together: with 60, llguidance takes minutes, whatever its limits."""

_TOGETHER = re.compile(r"&|~(?!\s*[0-9])")
_LITERALS = re.compile(r'"(?:\\.|[^"\\\n])*"|/(?:\\.|[^/\\\n])+/')


@dataclass(frozen=True, slots=True, eq=False)
class Grammar:
    """A grammar that is compiled for one vocabulary; any number of answers may be held to it at once.

    Attributes:
        size: bytes, by estimate.
    """

    _start: llguidance.LLMatcher
    _vocabulary: Vocabulary
    size: int

    def guide(self) -> GrammarGuide:
        """The state of one answer, before its first token. It takes some microseconds."""
        return GrammarGuide(self._start.deep_copy(), self._vocabulary)


class GrammarGuide:
    """Holds one answer to a grammar; the Guide of `engine.types`.

    Where the grammar may end, the tokenizer's stop ids are allowed too; where it must end, and after a stop
    token, nothing else is.
    """

    def __init__(self, matcher: llguidance.LLMatcher, vocabulary: Vocabulary) -> None:
        self._matcher = matcher
        self._vocabulary = vocabulary
        self._mask = np.zeros((1, len(vocabulary.known)), np.int32)
        self._ended = False

    @property
    def complete(self) -> bool:
        """Whether the answer so far is one that the grammar allows as a whole."""
        return bool(self._matcher.is_accepting())

    def forbid(self, allowed: Mask) -> None:
        if self._ended:
            self._mask.fill(0)
            for id in self._vocabulary.stop_ids:
                allow(self._mask.view(np.uint32)[0], id)
        else:
            fill_next_token_bitmask(self._matcher, self._mask)
            if self._matcher.is_error():
                reason = _first_line(_plain(self._matcher.get_error()))
                raise RequestError(f"The answer cannot be held to its grammar any longer: {reason}.")
        allowed &= self._mask.view(np.uint32)[0]
        allowed &= self._vocabulary.known

    def take(self, token: int) -> None:
        if token in self._vocabulary.stop_ids:
            self._ended = True
        else:
            self._matcher.consume_token(token)


class Grammars:
    """The grammars of one model. Every method may be called from any thread.

    The first one that is compiled waits until llguidance has read the vocabulary; see `warm`. `param` is the
    field of the request that a grammar came from: it is named where the grammar cannot be compiled.
    """

    def __init__(self, tokenizer: Tokenizer, vocab: int) -> None:
        """Args: vocab: rows of the model's logits; the tokenizer may have fewer."""
        self._tokenizer = tokenizer
        self._size = vocab
        self._lock = threading.Lock()
        self._read: Vocabulary | None = None
        self._kept: Kept[Grammar] = Kept(_KEPT, _KEPT_COUNT)

    def warm(self) -> None:
        """Read the vocabulary now; see Vocabulary.read for what it costs.

        Raises:
            RequestError: the model has no stop token.
        """
        self._vocabulary()

    def _vocabulary(self) -> Vocabulary:
        """The vocabulary, read at the first call; threads that come meanwhile wait for it."""
        with self._lock:
            if self._read is None:
                self._read = Vocabulary.read(self._tokenizer, self._size)
            return self._read

    def json_object(self, param: str) -> Grammar:
        """Any JSON object, in one line."""
        return self.json_schema({"type": "object"}, param)

    def json_schema(self, schema: Mapping[str, Any] | bool, param: str) -> Grammar:
        """JSON that satisfies `schema`, in one line: a blank may follow "," and ":", none is elsewhere.

        Members come in the order of `properties`; keywords that say nothing of a value are passed over.

        Raises:
            RequestError: `schema` uses what llguidance does not enforce, or allows nothing. It says where.
        """
        return self._made("json_schema", schema, lambda: self._json_schema(schema, param))

    def _json_schema(self, schema: Mapping[str, Any] | bool, param: str) -> Grammar:
        schema = {} if schema is True else schema
        try:
            check_json_schema(schema)
            assert isinstance(schema, Mapping)
            return self._compile(json_grammar(schema))
        except SchemaError as error:
            message = f"{param}{error.where} cannot be compiled: {error.reason}."
        except ValueError as error:
            message = f"{param} cannot be compiled: {_first_line(str(error))}."
        raise RequestError(message, param=param)

    def regex(self, pattern: str, param: str) -> Grammar:
        """Text that `pattern`, in the syntax of Rust's regex crate, matches as a whole.

        Raises:
            RequestError: it is no regex, or has what an automaton cannot do (look-around, back-references).
        """
        _check_length(pattern, _MAX_TEXT, param)
        return self._made("regex", pattern, lambda: self._regex(pattern, param))

    def _regex(self, pattern: str, param: str) -> Grammar:
        try:
            return self._compile(llguidance.LLMatcher.grammar_from_regex(pattern))
        except ValueError as error:
            reason = regex_reason(str(error)).partition("; ")[0]
            message = f"{param} is {json.dumps(pattern)[:80]}, which cannot be compiled: {reason}."
            raise RequestError(message, param=param) from None

    def choice(self, options: Sequence[str], param: str) -> Grammar:
        """One of the texts `options`.

        Raises:
            RequestError: there are none, or too many for an automaton.
        """
        if not options:
            raise RequestError(f"{param} is empty: it must list at least one text.", param=param)
        literals = " | ".join(json.dumps(option) for option in options)
        text = f"start: CHOICE\nCHOICE: {literals}"
        _check_length(text, MAX_TEXT, param)
        return self._made("lark", text, lambda: self._lark(text, param, _checked_lark))

    def lark(self, text: str, param: str) -> Grammar:
        """What a grammar in llguidance's dialect of Lark allows, from its rule `start`.

        Raises:
            RequestError: it cannot be compiled; line and column are said.
        """
        _check_length(text, _MAX_TEXT, param)
        return self._made("lark", text, lambda: self._lark(text, param, _checked_lark))

    def ebnf(self, text: str, param: str) -> Grammar:
        """As `lark`, but `text` may also be GBNF (llama.cpp's EBNF, with `root ::= ...`), as vLLM takes both.

        Raises:
            RequestError: it cannot be compiled; line and column are said.
        """
        if not is_gbnf(text):
            return self.lark(text, param)
        _check_length(text, _MAX_TEXT, param)
        return self._made("gbnf", text, lambda: self._lark(text, param, gbnf_to_lark))

    def _lark(self, text: str, param: str, read: Callable[[str], str]) -> Grammar:
        """Args: read: makes Lark of `text`, or raises ValueError."""
        try:
            return self._compile(llguidance.LLMatcher.grammar_from_lark(read(text)))
        except ValueError as error:
            reason = _first_line(str(error))
            raise RequestError(f"{param} cannot be compiled: {reason}.", param=param) from None

    def calls(
        self, tools: Sequence[Mapping[str, Any]], *, required: bool, many: bool = True, param: str = "tools"
    ) -> Grammar:
        """Calls of `tools` whose arguments satisfy the tools' schemas, in the notation that the model writes.

        Where the model may think first, `AfterThought` puts this behind the thought.

        Args:
            tools: OpenAI's tool definitions, those that may be called.
            required: the answer is calls and nothing else. Otherwise text is free until a call begins, and a
                tool that is not `strict` may be called with any object.
            many: several calls may come, one after the other.

        Raises:
            RequestError: the schema of a tool cannot be held to; it says which, where and why.
        """
        asked = [list(tools), required, many]
        return self._made("calls", asked, lambda: self._calls(tools, required, many, param))

    def _calls(self, tools: Sequence[Mapping[str, Any]], required: bool, many: bool, param: str) -> Grammar:
        text = call_grammar(self._tokenizer, tools, required=required, many=many, param=param)
        _check_length(text, _MAX_CALLS, param)
        try:
            return self._compile(llguidance.LLMatcher.grammar_from_lark(text))
        except ValueError as error:
            reason = _first_line(str(error))
            raise RequestError(
                f"{param}: calls cannot be held to their schemas: {reason}.", param=param
            ) from None

    def _made(self, kind: str, content: Any, make: Callable[[], Grammar]) -> Grammar:
        """The grammar that is kept for this, or else a new one."""
        key = f"{kind} {json.dumps(content)}"
        found = self._kept.get(key)
        if found is None:
            found = on_large_stack(make)
            self._kept.put(key, found, found.size + len(key))
        return found

    def _compile(self, text: str) -> Grammar:
        """Compile what llguidance's `grammar_from_*` gave. Raises ValueError with its message."""
        vocabulary = self._vocabulary()
        matcher = llguidance.LLMatcher(vocabulary.backend, text, log_level=0, limits=_LIMITS)
        if matcher.is_error():
            raise ValueError(_plain(matcher.get_error()))
        _check_beginning(matcher.deep_copy(), vocabulary)
        return Grammar(matcher, vocabulary, estimated_bytes(text))


def _check_beginning(matcher: llguidance.LLMatcher, vocabulary: Vocabulary) -> None:
    """Raises ValueError if nothing may come first, or if masks meet a limit at once."""
    mask = np.zeros((1, len(vocabulary.known)), np.int32)
    for _ in range(_BEGINNING):
        fill_next_token_bitmask(matcher, mask)
        if matcher.is_error():
            raise ValueError(_plain(matcher.get_error()))
        allowed = np.flatnonzero(np.unpackbits(mask.view(np.uint8), bitorder="little"))
        first = next((int(id) for id in allowed if int(id) not in vocabulary.stop_ids), None)
        if first is None:
            return
        matcher.consume_token(first)


def _checked_lark(lark: str) -> str:
    """The grammar itself. Raises ValueError if schemas inside it are too large, or much must hold at once."""
    together = len(_TOGETHER.findall(_LITERALS.sub("", lark)))
    if together > _MAX_TOGETHER:
        raise ValueError(f"it has {together} of & and ~, and {_MAX_TOGETHER} may be")
    schemas = []
    for found in re.finditer("%json", lark):
        try:
            schema, _ = json.JSONDecoder().raw_decode(lark[found.end() :].lstrip())
        except (ValueError, RecursionError):  # llguidance says where
            continue
        schemas.append(schema)
    check_limits({"%json": schemas})
    check_numbers({"%json": schemas})
    return lark


def _check_length(text: str, most: int, param: str) -> None:
    if len(text) > most:
        raise RequestError(
            f"{param} is too large: {len(text):,} characters, and {most:,} are the limit.", param=param
        )


def _plain(message: str) -> str:
    """What llguidance says, for a client."""
    if "NoExtension" in message:
        return "no answer satisfies it"
    if "invalid regex" not in message and _TOO_COMPLEX.search(message):
        return "it is too complex"
    return message


def _first_line(message: str) -> str:
    return message.split("\n")[0][:300].rstrip(". ")
