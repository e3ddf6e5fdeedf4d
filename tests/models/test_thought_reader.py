"""Thoughts between marks, as text or as tokens, however the answer is split into tokens and windows."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from onechip.models.chat_parser import CallArguments, CallOpen, Delta, Reasoning, Text
from onechip.models.json_calls import JsonCallParser
from onechip.models.think_marks import ThinkMarks
from onechip.models.thought_reader import ThoughtReader
from onechip.models.tokenizer import Tokenizer
from tests.models.small_tokenizers import LLAMA3, byte_level, save, sentence_piece

TEMPLATE = "{{ messages[0].content.split('</think>')[-1] }}<think>\n"
PIECES = [
    "</",
    "<t",
    "hink",
    "k>",
    ">H",
    ">\n",
    "m.<",
    "m.</th",
    "ink>\n\nSo",
    "><think>\nHm.\n",
    "\n</think>",
]
TOOLS: list[Any] = [{"type": "function", "function": {"name": "f"}}]
CALL = '{"name": "f", "arguments": {"a": "</think> <think> [/THINK]"}}'


def tokenizer_of(backend: Any, tokens: Sequence[str] = (), special: Sequence[str] = ()) -> Tokenizer:
    backend.add_tokens(list(tokens))
    backend.add_special_tokens(list(special))
    with tempfile.TemporaryDirectory() as folder:
        return Tokenizer.load(save(backend, Path(folder), eos_token=LLAMA3[-1]), [])


SPELLED = tokenizer_of(byte_level(LLAMA3))
PIECED = tokenizer_of(byte_level(LLAMA3), PIECES)
TOKENS = tokenizer_of(byte_level(LLAMA3), ["<think>", "</think>"])
SPECIAL = tokenizer_of(byte_level(LLAMA3), special=["[THINK]", "[/THINK]"])
BYTES = tokenizer_of(sentence_piece())
MODELS = {"spelled": SPELLED, "tokens": TOKENS, "special": SPECIAL, "bytes": BYTES}
END = SPELLED.token_id("<|eot_id|>")


class Outcome(NamedTuple):
    thoughts: str
    text: str
    calls: list[tuple[str, Any]]
    count: int


def marks_of(tokenizer: Tokenizer) -> ThinkMarks:
    marks = ThinkMarks.of(tokenizer, None if tokenizer is SPECIAL else TEMPLATE)
    assert marks is not None
    return marks


def reader_of(tokenizer: Tokenizer, opened: bool = False, calls: bool = False, **how: bool) -> ThoughtReader:
    marks = marks_of(tokenizer)
    prompt = tokenizer.encode(f"Hi{marks.open}\n" if opened else "Hi")
    return ThoughtReader(tokenizer, marks, prompt, JsonCallParser(tokenizer, TOOLS) if calls else None, **how)


def outcome(reader: ThoughtReader, windows: Sequence[Sequence[int]], cut_off: bool = False) -> Outcome:
    deltas: list[Delta] = [delta for window in windows for delta in reader.push(window)]
    deltas += reader.finish(cut_off)
    calls: list[tuple[str, str]] = []
    for delta in deltas:
        if isinstance(delta, CallOpen):
            calls.append((delta.name, ""))
        elif isinstance(delta, CallArguments):
            calls[-1] = (calls[-1][0], calls[-1][1] + delta.fragment)
    return Outcome(
        "".join(delta.text for delta in deltas if isinstance(delta, Reasoning)),
        "".join(delta.text for delta in deltas if isinstance(delta, Text)),
        [(name, json.loads(arguments)) for name, arguments in calls],
        reader.reasoning_tokens,
    )


def ids_of(tokenizer: Tokenizer, answer: str) -> list[int]:
    """The tokens of `answer`, in which `<think>` stands for the model's own marks."""
    if tokenizer is SPECIAL:
        answer = answer.replace("<think>", "[THINK]").replace("</think>", "[/THINK]")
    return tokenizer.encode(answer)


def read(
    tokenizer: Tokenizer, answer: str, window: int = 1000, cut_off: bool = False, **how: bool
) -> Outcome:
    """What is read of `answer`."""
    ids = ids_of(tokenizer, answer)
    windows = [ids[start : start + window] for start in range(0, len(ids), window)]
    return outcome(reader_of(tokenizer, **how), windows, cut_off)


@pytest.mark.parametrize("window", [1, 3, 1000])
@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize(
    ("answer", "opened", "thoughts", "text"),
    [
        ("<think>\nHm.\n\nYes.\n</think>\n\nSo 7.\n", False, "Hm.\n\nYes.", "So 7.\n"),
        ("\n <think>Hm.</think>So 7.", False, "Hm.", "So 7."),
        ("Hm.\n</think>\n\nSo 7.", True, "Hm.", "So 7."),
        ("<think>\nHm.</think>So 7.", True, "Hm.", "So 7."),  # opened once more
        ("<think>\n\n</think>\n\nSo 7.", False, "", "So 7."),
        ("</think>So 7.", True, "", "So 7."),
        ("<think>a</think>\n<think>b</think>c", False, "ab", "c"),
        ("<think>a < b, </ c, <think d", False, "a < b, </ c, <think d", ""),
        ("a 漢字\n", True, "a 漢字", ""),
        ("<think>a</think>", False, "a", ""),
        ("<think>a</think>\n\n", False, "a", ""),
        ("<think></think>", False, "", ""),
        ("\n\nSo 7.", False, "", "\n\nSo 7."),
        ("  ", False, "", "  "),
        ("<thin king", False, "", "<thin king"),
        ("<thi", False, "", "<thi"),
        ("", False, "", ""),
        ("", True, "", ""),
    ],
)
def test_thoughts_and_text(
    model: str, answer: str, opened: bool, thoughts: str, text: str, window: int
) -> None:
    tokenizer = MODELS[model]
    found = read(tokenizer, answer, window, opened=opened)
    assert found[:3] == (thoughts, text, [])
    assert (found.count > 0) >= bool(thoughts)


SPLIT = "<think>\nHm.\n</think>\n\nSo 7."


@st.composite
def splits(draw: st.DrawFn, text: str) -> list[str]:
    """`text` in pieces that PIECED has tokens for."""
    pieces = []
    while text:
        ways = [piece for piece in (*PIECES, text[0]) if text.startswith(piece)]
        pieces.append(draw(st.sampled_from(ways)))
        text = text[len(pieces[-1]) :]
    return pieces


@given(splits(SPLIT), st.integers(1, 4), st.integers(0, 40))
def test_any_split_of_tokens(pieces: list[str], window: int, length: int) -> None:
    ids = [id for piece in pieces for id in PIECED.encode(piece)]
    assert PIECED.decode(ids) == SPLIT
    whole = outcome(reader_of(PIECED), [ids])
    assert whole[:3] == ("Hm.", "So 7.", [])
    starts = [len("".join(pieces[:place])) for place in range(len(pieces))]
    inside = range(SPLIT.index("\nHm"), SPLIT.index("</think>"))
    assert whole.count == sum(start in inside for start in starts)
    windows = [ids[start : start + window] for start in range(0, len(ids), window)]
    assert outcome(reader_of(PIECED), windows) == whole
    cut = outcome(reader_of(PIECED), [ids[:length]], cut_off=True)
    assert (whole.thoughts.startswith(cut.thoughts), whole.text.startswith(cut.text)) == (True, True)
    assert cut.count <= whole.count


def test_tokens_that_are_thoughts_are_counted() -> None:
    """Without the marks, with the blanks around, also where characters are broken."""
    assert read(TOKENS, "<think>abc</think>def").count == 3
    assert read(SPELLED, "<think>abc</think>def").count == 3
    assert read(TOKENS, "\nabc\n</think>def", opened=True).count == 5
    broken = TOKENS.encode("漢")[:1] + TOKENS.encode("</think>x")
    assert outcome(reader_of(TOKENS, opened=True), [broken]) == ("\ufffd", "x", [], 1)


@pytest.mark.parametrize("tokenizer", [SPELLED, TOKENS, SPECIAL])
def test_an_answer_that_is_cut_off(tokenizer: Tokenizer) -> None:
    assert read(tokenizer, "<think>Hm. So", cut_off=True)[:2] == ("Hm. So", "")
    assert read(tokenizer, "Hm. So", cut_off=True, opened=True)[:2] == ("Hm. So", "")
    assert read(tokenizer, "So 7", cut_off=True)[:2] == ("", "So 7")
    if tokenizer is SPELLED:  # half a mark is neither thought nor text
        assert read(tokenizer, "Hm.\n</thin", cut_off=True, opened=True)[:2] == ("Hm.", "")
        assert read(tokenizer, "<thi", cut_off=True, opened=True)[:2] == ("", "")
        assert read(tokenizer, "<thi", cut_off=True)[:2] == ("", "")


@pytest.mark.parametrize("window", [1, 1000])
@pytest.mark.parametrize("tokenizer", [SPELLED, TOKENS, SPECIAL])
@pytest.mark.parametrize("opened", [False, True])
def test_calls_behind_thoughts(tokenizer: Tokenizer, opened: bool, window: int) -> None:
    """A call in the thoughts is none, and marks in a call's arguments are text."""
    idea = '<tool_call>{"name": "f"}</tool_call>'
    start = ids_of(tokenizer, f"{'' if opened else '<think>'}\nCall f? {idea}\n</think>\n\n")
    marked = f"<tool_call>{CALL}</tool_call>"
    for answer, text in ((CALL, ""), (f"[{CALL}]", ""), (marked, ""), (f"Look.\n{marked}\n", "Look.\n")):
        ids = [*start, *(id for letter in answer for id in tokenizer.encode(letter))]
        windows = [ids[at : at + window] for at in range(0, len(ids), window)]
        found = outcome(reader_of(tokenizer, opened, calls=True), windows)
        assert found[:3] == (f"Call f? {idea}", text, [("f", {"a": "</think> <think> [/THINK]"})])


def test_calls_without_thoughts_are_read_as_ever() -> None:
    for tokenizer in (SPELLED, TOKENS, SPECIAL):
        for answer in (CALL, f"\n\n{CALL}", f"So. <tool_call>{CALL}</tool_call>"):
            ids = [id for letter in answer for id in tokenizer.encode(letter)]
            plain = JsonCallParser(tokenizer, TOOLS)
            expected = [*plain.push(ids), *plain.finish()]
            found = outcome(reader_of(tokenizer, calls=True), [ids])
            assert found.text == "".join(delta.text for delta in expected if isinstance(delta, Text))
            assert [name for name, _ in found.calls] == ["f"]


@pytest.mark.parametrize("tokenizer", [SPELLED, TOKENS])
@pytest.mark.parametrize("start", ["", "<think>Hm.</think>"])
@pytest.mark.parametrize(
    "text",
    [
        "Put it between <think> and </think>.",
        "So:\n<think>\nx\n</think>\n",
        "`</think>` ends it",
        "Sure. <think>Hm.",
    ],
)
def test_an_answer_may_speak_of_marks(tokenizer: Tokenizer, start: str, text: str) -> None:
    if text.startswith("`") and not start:
        assert read(tokenizer, text)[:2] == ("", text)
    assert read(tokenizer, start + text)[:2] == ("Hm." if start else "", text)


def test_thoughts_may_speak_of_the_opening_mark() -> None:
    for tokenizer in (SPELLED, TOKENS):
        assert read(tokenizer, "The <think> tag.</think>x", opened=True)[:2] == ("The <think> tag.", "x")


def test_what_only_spells_a_mark_that_is_a_token_is_text() -> None:
    for tokenizer in (TOKENS, SPECIAL):
        ids = [id for letter in "<think>Hm.</think> [THINK]x[/THINK]" for id in tokenizer.encode(letter)]
        assert outcome(reader_of(tokenizer), [ids])[:2] == ("", tokenizer.decode(ids))


def test_a_special_token_is_a_mark_wherever_it_stands() -> None:
    assert read(SPECIAL, "Sure. <think>Hm.</think> So 7.</think>!")[:2] == ("Hm.", "Sure. So 7.!")
    assert read(SPECIAL, "<think>a <think>b</think>c", skip_special=False)[:2] == ("a [THINK]b", "c")


def test_a_mark_that_closes_once_more_is_dropped() -> None:
    """As where a budget has ended the thoughts, and the model goes on with them."""
    assert read(TOKENS, "Hm</think>\nYes.\n</think>\n\nSo 7.", opened=True)[:2] == ("Hm", "Yes.\n\n\nSo 7.")
    assert read(TOKENS, "</think>\n\nSo 7.")[:2] == ("", "So 7.")
    assert read(TOKENS, "a</think></think>b", opened=True)[:2] == ("a", "b")


def test_a_stop_token_inside_ends_the_thoughts() -> None:
    """It comes there only where `ignore_eos` lets the answer go on."""
    for tokenizer in (SPELLED, TOKENS):
        ids = [*tokenizer.encode("Hm."), END, *tokenizer.encode("So"), END, *tokenizer.encode(" 7.")]
        assert outcome(reader_of(tokenizer, opened=True), [ids])[:2] == ("Hm.", "So 7.")
        shown = outcome(reader_of(tokenizer, opened=True, skip_special=False), [ids])
        assert shown[:2] == ("Hm.", "So<|eot_id|> 7.")


@pytest.mark.parametrize(
    ("tokenizer", "template", "open", "ids", "in_template"),
    [
        (SPELLED, None, None, False, False),
        (SPELLED, "{{ messages }} think", None, False, False),
        (SPELLED, TEMPLATE, "<think>", False, True),
        (SPELLED, "{{ content.split('</think>') }}", "<think>", False, True),
        (SPELLED, "[THINK]{{ content }}", "[THINK]", False, True),
        (TOKENS, None, "<think>", True, False),
        (TOKENS, TEMPLATE, "<think>", True, True),
        (SPECIAL, "{{ messages }}", "[THINK]", True, False),
        (SPECIAL, TEMPLATE, "<think>", False, True),
    ],
)
def test_which_marks_a_model_writes(
    tokenizer: Tokenizer, template: str | None, open: str | None, ids: bool, in_template: bool
) -> None:
    marks = ThinkMarks.of(tokenizer, template)
    if open is None or marks is None:
        assert (open, marks) == (None, None)
        return
    assert (marks.open, marks.in_template) == (open, in_template)
    assert (marks.open_id is not None, marks.close_id is not None) == (ids, ids)
    assert (marks.markers(tokenizer) is not None) == ids
    assert marks.anywhere == (open == "[THINK]" and ids)


def test_a_token_that_text_may_pass_by_is_no_mark() -> None:
    """An ordinary piece of a vocabulary that spells the mark: the same text can be cut otherwise."""
    backend = byte_level(LLAMA3)
    content = json.loads(backend.to_str())
    for token in ("<think>", "</think>"):
        content["model"]["vocab"][token] = 5000 + len(token)
    tokenizer = tokenizer_of(type(backend).from_str(json.dumps(content)))
    assert tokenizer.token_id("<think>") is not None
    assert ThinkMarks.of(tokenizer, None) is None
    marks = ThinkMarks.of(tokenizer, TEMPLATE)
    assert marks is not None
    assert (marks.open_id, marks.close_id) == (None, None)
    assert read(tokenizer, "<think>a</think>b")[:2] == ("a", "b")


@pytest.mark.parametrize("model", MODELS)
def test_where_a_prompt_stands(model: str) -> None:
    tokenizer, marks = MODELS[model], marks_of(MODELS[model])
    for prompt, opened, closed in [
        ("a{}", True, False),
        ("a{}\n\n ", True, False),
        ("a{} b", False, False),
        ("a{}\n{}\n", False, True),
        ("a", False, False),
        ("", False, False),
    ]:
        ids = tokenizer.encode(prompt.format(marks.open, marks.close))
        assert marks.opened_by(tokenizer, ids) == opened, prompt
        assert marks.closed_by(tokenizer, ids) == closed, prompt
