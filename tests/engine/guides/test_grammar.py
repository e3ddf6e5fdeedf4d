"""Grammars over tokens: what they let through, where they end, and what is said of those that are none."""

from __future__ import annotations

import json
import random
import re
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import jsonschema
import numpy as np
import pytest

from onechip.engine.guides.grammar import Grammar, Grammars
from onechip.engine.guides.vocabulary import Vocabulary
from onechip.errors import RequestError
from onechip.models.tokenizer import Tokenizer
from tests.engine.guides.vocabularies import grammars
from tests.engine.guides.walks import allowed_ids, taken, walk
from tests.models.small_tokenizers import CHATML, byte_level, save

PERSON = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "minLength": 1},
        "age": {"type": "integer", "minimum": 0, "maximum": 150},
        "tags": {"type": "array", "items": {"enum": ["a", "b", None]}, "maxItems": 3},
        "home": {"$ref": "#/$defs/Place"},
    },
    "required": ["name", "age", "home"],
    "additionalProperties": False,
    "$defs": {
        "Place": {"anyOf": [{"type": "null"}, {"type": "object", "properties": {"city": {"type": "string"}}}]}
    },
}


def holds(name: str, grammar: Grammar, text: str) -> bool:
    """Whether `text`, as the tokenizer writes it, is allowed as a whole answer."""
    _, tokenizer, vocab = grammars(name)
    guide = grammar.guide()
    ids = tokenizer.encode(text)
    return taken(guide, ids, vocab) == len(ids) and guide.complete


@pytest.mark.parametrize("name", ["acorn", "llama3", "sentence_piece", "gemma"])
def test_whatever_is_allowed_satisfies_the_schema(name: str) -> None:
    made, tokenizer, vocab = grammars(name)
    grammar = made.json_schema(PERSON, "schema")
    ended, walks = 0, 3 if name == "gemma" else 10
    for seed in range(walks):
        ids = walk(grammar.guide(), tokenizer, vocab, random.Random(seed))
        if ids is not None:
            jsonschema.validate(json.loads(tokenizer.decode(ids)), PERSON)
            ended += 1
    assert ended > walks / 2


def test_text_is_written_without_the_tokens_that_only_the_tokenizer_knows() -> None:
    tokenizer = grammars("chatml")[1]
    vocab = tokenizer.vocab_size - 1
    text = tokenizer.decode([vocab] * 2)
    grammar = Grammars(tokenizer, vocab).choice([text], "choice")
    ids = walk(grammar.guide(), tokenizer, vocab, random.Random(0))
    assert ids is not None
    assert max(ids) < vocab
    assert tokenizer.decode(ids) == text


def test_json_is_compact_but_may_have_the_blanks_that_models_have_learnt() -> None:
    grammar = grammars("acorn")[0].json_object("response_format")
    for text in ('{"a":1,"b":[1,2]}', '{"a": 1, "b": [1, 2]}', "{}"):
        assert holds("acorn", grammar, text)
    for text in ('{ "a":1}', '{"a":\n1}', '{"a":  1}', '{"a":1} ', "[1]", "1", ""):
        assert not holds("acorn", grammar, text), text


@pytest.mark.parametrize(
    ("pattern", "good", "bad"),
    [
        (r"[A-Z][a-z]+ \d{2}", "Tom 12", "tom 12"),
        ("^(yes|no)$", "yes", "yes!"),
        ("(?i)abc", "aBc", "abd"),
        ("漢+", "漢漢", "字"),
    ],
)
def test_a_regex_holds_for_the_whole_answer(pattern: str, good: str, bad: str) -> None:
    grammar = grammars("acorn")[0].regex(pattern, "guided_regex")
    assert holds("acorn", grammar, good)
    assert not holds("acorn", grammar, bad)


@pytest.mark.parametrize("name", ["acorn", "llama3", "gemma"])
def test_a_choice_is_one_of_the_texts(name: str) -> None:
    options = ["yes", "yes, please", 'a "quoted" \\ one', "two\nlines", "🌰", "\x00\x7f", ""]
    made, tokenizer, vocab = grammars(name)
    grammar = made.choice(options, "guided_choice")
    for option in options:
        assert holds(name, grammar, option)
    assert not holds(name, grammar, "ye")
    found = {
        tokenizer.decode(walk(grammar.guide(), tokenizer, vocab, random.Random(seed)) or [])
        for seed in range(30)
    }
    assert found <= set(options)
    assert len(found) > 2


def test_grammars_are_lark_or_gbnf() -> None:
    made = grammars("acorn")[0]
    lark = 'start: word ("," word)*\nword: /[a-z]+/'
    gbnf = 'root ::= word ("," word)*\nword ::= [a-z]+'
    for grammar in (made.lark(lark, "g"), *(made.ebnf(text, "g") for text in (lark, f"?{lark}", gbnf))):
        assert holds("acorn", grammar, "ab,c")
        assert not holds("acorn", grammar, "ab,")


@pytest.mark.parametrize("name", ["acorn", "llama3", "gemma"])
def test_all_stop_tokens_end_a_complete_answer_and_nothing_else_is_an_end(name: str) -> None:
    made, tokenizer, vocab = grammars(name)
    guide = made.choice(["ab"], "x").guide()
    for id in tokenizer.encode("ab"):
        assert tokenizer.stop_ids.isdisjoint(allowed_ids(guide, vocab))
        guide.take(id)
    assert set(allowed_ids(guide, vocab)) == tokenizer.stop_ids
    guide.take(max(tokenizer.stop_ids))
    assert set(allowed_ids(guide, vocab)) == tokenizer.stop_ids
    longer = made.choice(["ab", "abab"], "x").guide()
    assert taken(longer, tokenizer.encode("ab"), vocab) == len(tokenizer.encode("ab"))
    assert set(allowed_ids(longer, vocab)) > tokenizer.stop_ids
    longer.take(min(tokenizer.stop_ids))
    assert set(allowed_ids(longer, vocab)) == tokenizer.stop_ids


@pytest.mark.parametrize("name", ["acorn", "llama3"])
def test_rows_without_a_token_are_never_allowed(name: str) -> None:
    made, tokenizer, vocab = grammars(name)
    allowed = allowed_ids(made.lark("start: <[*]>* ", "x").guide(), vocab)
    assert allowed.max() == tokenizer.vocab_size - 1
    assert vocab > tokenizer.vocab_size


def test_text_is_not_spelled_with_markers_and_markers_are_not_taken_for_text() -> None:
    made, tokenizer, vocab = grammars("acorn")
    anything = made.regex("(?s:.*)", "x").guide()
    assert not (tokenizer.special_ids - tokenizer.stop_ids) & set(allowed_ids(anything, vocab))
    marker = tokenizer.token_id("<|tool_call>")
    spelled = made.choice(["<|tool_call>"], "x").guide()
    assert marker not in allowed_ids(spelled, vocab)


def test_where_a_grammar_leaves_no_choice_the_text_is_tokenized_as_the_model_has_learnt() -> None:
    for name in ("acorn", "gemma", "llama3", "sentence_piece"):
        made, tokenizer, vocab = grammars(name)
        guide = made.choice(["Tom has twelve apples."], "x").guide()
        written = []
        while tokenizer.stop_ids.isdisjoint(allowed_ids(guide, vocab)):
            (id,) = allowed_ids(guide, vocab)
            written.append(int(id))
            guide.take(int(id))
        assert tokenizer.decode(written) == "Tom has twelve apples."
        if name != "sentence_piece":  # which puts a blank before every text
            assert written == tokenizer.encode("Tom has twelve apples.")


def test_a_mask_only_forbids() -> None:
    made, _, vocab = grammars("acorn")
    mask = np.zeros(-(-vocab // 32), np.uint32)
    guide = made.json_object("x").guide()
    guide.forbid(mask)
    assert not mask.any()
    assert len(allowed_ids(guide, vocab))  # asked again, it says the same


def test_grammars_are_compiled_once_and_answers_do_not_share_a_state() -> None:
    made, _, vocab = grammars("acorn")
    grammar = made.regex("ab", "x")
    assert made.regex("ab", "other field") is grammar
    first, second = grammar.guide(), grammar.guide()
    before = list(allowed_ids(second, vocab))
    first.take(int(allowed_ids(first, vocab)[0]))
    assert list(allowed_ids(second, vocab)) == before


def test_a_token_that_was_not_allowed_is_an_error_of_the_answer() -> None:
    made, tokenizer, vocab = grammars("acorn")
    guide = made.regex("[0-9]+", "x").guide()
    guide.take(tokenizer.encode("a")[0])
    with pytest.raises(RequestError, match=r"The answer cannot be held to its grammar any longer: .*[^.]\.$"):
        allowed_ids(guide, vocab)


def test_many_threads_read_the_vocabulary_once(monkeypatch: pytest.MonkeyPatch) -> None:
    tokenizer = grammars("acorn")[1]
    made, read = Grammars(tokenizer, 2048), []
    spellings = tokenizer.spellings
    monkeypatch.setattr(tokenizer, "spellings", lambda: read.append(1) or spellings())
    with ThreadPoolExecutor(8) as pool:
        found = list(pool.map(lambda n: made.choice([f"{n}"], "x").guide(), range(10)))
    assert len(read) == 1
    for n, guide in enumerate(found):
        assert list(allowed_ids(guide, 2048)) == tokenizer.encode(f"{n}")


def test_a_model_without_a_stop_token_has_no_grammars(tmp_path: Path) -> None:
    tokenizer = Tokenizer.load(save(byte_level(["<|x|>"]), tmp_path / "x"), [])
    assert not tokenizer.stop_ids
    with pytest.raises(RequestError, match="This model has no stop token"):
        Vocabulary.read(tokenizer, tokenizer.vocab_size)


def test_a_vocabulary_smaller_than_the_tokenizers_is_cut(tmp_path: Path) -> None:
    tokenizer = Tokenizer.load(save(byte_level(CHATML), tmp_path / "x", eos_token="<|im_end|>"), [])
    vocab = max(tokenizer.stop_ids) + 1
    assert vocab < tokenizer.vocab_size
    guide = Grammars(tokenizer, vocab).regex("(?s:.*)", "x").guide()
    assert allowed_ids(guide, 32 * -(-vocab // 32)).max() < vocab


def _schema(schema: Any) -> Callable[[Grammars], Grammar]:
    return lambda made: made.json_schema(schema, "schema")


@pytest.mark.parametrize(
    ("make", "says"),
    [
        (_schema({"properties": {"a": {"items": {"type": "string", "pattern": "(?=x)"}}}}),
         r"schema\.properties\.a\.items cannot be compiled: look-around"),
        (_schema({"$defs": {"N": {"properties": {"v": {"not": {}}}}}, "items": {"$ref": "#/$defs/N"}}),
         r"schema\.\$defs\.N\.properties\.v cannot be compiled: \"not\" cannot be held to"),
        (_schema({"anyOf": [{"type": "string"}, {"properties": {"a": {"$ref": "#/$defs/x"}}}]}),
         r"schema\.anyOf\[1\]\.properties\.a cannot be compiled: Pointer '/\$defs/x' does not exist"),
        (_schema({"type": "strin"}), r"schema cannot be compiled: Invalid type: strin"),
        (_schema({"type": "object", "required": ["a"], "properties": {"a": False}}), "schema .*: Unsat"),
        (_schema({"type": "array", "uniqueItems": True}), 'schema .*: "uniqueItems" cannot be held to'),
        (_schema({"oneOf": [{"type": "number"}, {"minimum": 1}]}), "schema .*: the alternatives of oneOf"),
        (lambda made: made.regex("a(", "regex"), r'regex is "a\(", which cannot be compiled: unclosed group'),
        (lambda made: made.regex(r"\ba", "regex"), "regex is .*cannot be compiled: .*lookarounds"),
        (lambda made: made.regex(r"(a)\1", "regex"), "regex is .*cannot be compiled: backreferences"),
        (lambda made: made.choice([], "choice"), "choice is empty"),
        (lambda made: made.lark('start: "a" b', "grammar"), r'grammar .*: at 1\(8\): unknown name: "b"'),
        (lambda made: made.lark("", "grammar"), "grammar cannot be compiled: Empty grammar"),
        (lambda made: made.ebnf('root ::= "a" (', "grammar"), r"grammar .*: at 1\(14\): this group is not"),
        (lambda made: made.ebnf("root: y", "grammar"), "grammar cannot be compiled: no start rule found"),
        (lambda made: made.ebnf("x ::= y", "grammar"), r"grammar .*: at 1\(7\): there is no rule y"),
    ],
)  # fmt: skip
def test_what_cannot_be_compiled_is_refused_with_its_place(
    make: Callable[[Grammars], Grammar], says: str
) -> None:
    with pytest.raises(RequestError) as refused:
        make(grammars("acorn")[0])
    assert re.search(says, refused.value.message), refused.value.message
    assert re.fullmatch(r"[^\n]*[^.]\.", refused.value.message)
    assert refused.value.param == re.match(r"\w+", refused.value.message)[0]


def test_annotations_are_passed_over() -> None:
    said = {"title": "T", "default": 1, "examples": [2], "$comment": "c", "readOnly": True, "x-order": 1}
    grammar = grammars("acorn")[0].json_schema({"type": "integer", **said}, "schema")
    assert holds("acorn", grammar, "12")
