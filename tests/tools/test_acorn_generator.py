"""acorn's generator: answers are right, held-out questions are new, and training sees what serving prints."""

from __future__ import annotations

import json
import re

import pytest

from onechip.ladder import data
from onechip.ladder.prompts import ONE_PROMPTS
from onechip.ladder.scoring import bfcl, gsm8k
from onechip.models.chat_parser import CallArguments, CallOpen, ChatParser
from onechip.models.config import read_config
from onechip.models.tokenizer import Tokenizer
from tools.acorn import calls, passages, problems, questions, talk
from tools.acorn.batches import LONG, SHORT, Batches
from tools.acorn.draws import Draw, Sum
from tools.acorn.samples import MODEL_DIR, Sampler, called

MANY = 400
EQUATION = re.compile(r"(\d+ [-+*/] \d+) = ")


@pytest.fixture(scope="module")
def tokenizer() -> Tokenizer:
    return Tokenizer.load(MODEL_DIR, read_config(MODEL_DIR).eos_ids)


@pytest.mark.parametrize(
    "family", [*problems.FAMILIES, problems.exercises], ids=lambda family: family.__name__
)
def test_worked_answers_are_right(family: problems.Family) -> None:
    draw = Draw(1)
    for _ in range(MANY):
        made = family(draw)
        assert made.answer.splitlines()[-1] == f"#### {made.sums[-1].result}"
        for each in made.sums:
            assert each.result > 0
            assert each.sign != "/" or each.result * each.right == each.left
            assert f"{each.left} {each.sign} {each.right} = " in made.answer


@pytest.mark.parametrize("family", problems.FAMILIES, ids=lambda family: family.__name__)
def test_problems_say_the_numbers_they_compute_with(family: problems.Family) -> None:
    draw = Draw(2)
    for _ in range(MANY):
        made = family(draw)
        first = made.sums[0]
        said = set(re.findall(r"\d+", made.question))
        words = {"twice": "2", "half": "2", "three times": "3", "four times": "4"}
        said |= {number for word, number in words.items() if word in made.question.lower()}
        assert {str(first.left), str(first.right)} <= said


@pytest.mark.parametrize(
    ("total", "worked"),
    [
        (Sum(3, "+", 4), "3 + 4 = 7"),
        (Sum(40, "+", 7), "40 + 7 = 47"),
        (Sum(47, "+", 38), "47 + 38 = 70 + 15 = 85"),
        (Sum(44, "+", 7), "44 + 7 = 40 + 11 = 51"),
        (Sum(43, "-", 7), "43 - 7 = 36"),
        (Sum(83, "-", 47), "83 - 47 = 83 - 40 - 7 = 43 - 7 = 36"),
        (Sum(12, "*", 9), "12 * 9 = 108"),
        (Sum(23, "*", 4), "23 * 4 = 80 + 12 = 92"),
        (Sum(40, "*", 7), "40 * 7 = 280"),
        (Sum(96, "/", 4), "96 / 4 = 80 / 4 + 16 / 4 = 20 + 4 = 24"),
        (Sum(72, "/", 9), "72 / 9 = 8"),
    ],
)
def test_sums_are_worked_by_tens_and_units(total: Sum, worked: str) -> None:
    assert total.worked == worked


def test_parts_of_worked_sums_add_up() -> None:
    draw = Draw(3)
    for _ in range(MANY):
        sides = problems.any_sum(draw).worked.split(" = ")
        assert len({eval(side) for side in sides}) == 1


def test_reserved_sums_do_not_depend_on_order_and_leave_what_they_are_worked_with() -> None:
    assert not any(Sum(a, sign, b).held_out for sign in "+*" for a in range(2, 13) for b in range(2, 10))
    assert not any(Sum(a, sign, b).held_out for sign in "+-" for a in range(10, 99, 10) for b in range(2, a))
    pairs = [(a, b) for a in range(13, 99) for b in range(13, 99)]
    assert all(Sum(a, "+", b).held_out == Sum(b, "+", a).held_out for a, b in pairs)
    assert all(Sum(a, "*", b).held_out == Sum(b, "*", a).held_out for a, b in pairs)
    reserved = sum(Sum(a, "+", b).held_out for a, b in pairs)
    assert 0.08 < reserved / len(pairs) < 0.13


def test_training_problems_hold_no_reserved_sum_and_held_out_ones_do() -> None:
    draw = Draw(4)
    for _ in range(MANY):
        assert not any(each.held_out for each in problems.training_problem(draw).sums)
        assert any(each.held_out for each in problems.held_out_problem(draw).sums)


def test_training_texts_state_no_reserved_sum() -> None:
    """Whatever else training says, talk and chats included, no equation in it is a reserved one."""
    draw, sampler = Draw(5), Sampler()
    for number in range(MANY):
        pieces = sampler.short(draw) if number % 10 else sampler.long(draw)
        for left, sign, right in (
            found.split() for piece in pieces for found in EQUATION.findall(piece.text)
        ):
            assert not Sum(int(left), sign, int(right)).held_out


def test_training_calls_hold_no_reserved_values_and_held_out_ones_do() -> None:
    draw = Draw(6)
    for _ in range(MANY):
        assert not calls.training_call(draw).held_out
        assert calls.held_out_call(draw).held_out


def test_every_argument_is_said_in_the_question() -> None:
    draw = Draw(7)
    for _ in range(MANY):
        call = calls.any_call(draw)
        assert all(str(value) in call.question for value in call.arguments.values())
        function = next(each for each in call.functions if each["name"] == call.name)
        assert set(function["parameters"]["required"]) == set(call.arguments)
        assert set(function["parameters"]["properties"]) == {*call.arguments, *call.optional}


def test_calls_are_the_ones_that_bfcl_scores_as_right(tokenizer: Tokenizer) -> None:
    draw = Draw(8)
    for _ in range(50):
        call = calls.any_call(draw)
        parser = ChatParser(tokenizer, call.tools, [])
        deltas = [*parser.push(tokenizer.encode(called(call).text)), *parser.finish()]
        name = next(delta.name for delta in deltas if isinstance(delta, CallOpen))
        arguments = "".join(delta.fragment for delta in deltas if isinstance(delta, CallArguments))
        row = calls.bfcl_row(0, call)
        function = next(each for each in row["function"] if each["name"] == call.name)
        assert bfcl.score([{"name": name, "arguments": arguments}], function, row["ground_truth"][0])[1] == {
            bfcl.HEADLINE: True
        }


def test_the_ladder_asks_as_training_did() -> None:
    sampler = Sampler()
    asked = data.load("acorn", None, acorn_tokens=256)[1].questions
    made = questions.calls(questions.SHIPPED_SEED, questions.SHIPPED_CALLS)
    for question, call in zip(asked, made, strict=True):
        assert (
            sampler.prompt(call.question, question.fields["tools"])
            == questions.call_task(sampler, call).prompt
        )


def test_shipped_questions_are_what_the_seed_gives(tmp_path, monkeypatch) -> None:
    shipped = [path.read_text(encoding="utf-8") for path in (questions.PROBLEMS_FILE, questions.CALLS_FILE)]
    monkeypatch.setattr(questions, "PROBLEMS_FILE", tmp_path / "problems.jsonl")
    monkeypatch.setattr(questions, "CALLS_FILE", tmp_path / "calls.jsonl")
    questions.write_shipped()
    assert [path.read_text(encoding="utf-8") for path in sorted(tmp_path.iterdir(), reverse=True)] == shipped


def test_shipped_questions_are_200_problems_and_100_calls_each_once() -> None:
    rows = [json.loads(line) for line in questions.PROBLEMS_FILE.read_text(encoding="utf-8").splitlines()]
    assert len({row["question"] for row in rows}) == 200
    assert all(gsm8k.score(row["answer"], gsm8k.expected_answer(row["answer"]))[1]["numeric"] for row in rows)
    rows = [json.loads(line) for line in questions.CALLS_FILE.read_text(encoding="utf-8").splitlines()]
    assert len({row["question"][0][0]["content"] for row in rows}) == 100


def test_the_ladders_chat_prompts_are_among_the_texts_learned_by_heart() -> None:
    known = {question for passage in passages.PASSAGES for question in passage.questions}
    assert set(ONE_PROMPTS) <= known
    assert all(passage.questions and passage.answer for passage in passages.PASSAGES)


def test_talk_counts_right() -> None:
    draw = Draw(9)
    for _ in range(50):
        made = talk.count(draw)
        start, end = re.findall(r"\d+", made.question)
        assert made.answer == ", ".join(map(str, range(int(start), int(end) + 1))) + "."


def test_conversations_are_what_the_template_prints(tokenizer: Tokenizer) -> None:
    """Pieces join to one text that tokenises to the same ids as the pieces alone."""
    draw, sampler = Draw(10), Sampler()
    for number in range(60):
        pieces = sampler.short(draw) if number % 6 else sampler.long(draw)
        text = "".join(piece.text for piece in pieces)
        assert text.count("<bos>") == 1
        assert [id for piece in pieces for id in tokenizer.encode(piece.text)] == tokenizer.encode(text)
        assert tokenizer.decode(tokenizer.encode(text), skip_special=False) == text
        assert all(piece.text.endswith(("<turn|>", "<|tool_response>")) for piece in pieces if piece.learned)


@pytest.mark.parametrize(("step", "shape"), [(0, SHORT), (5, LONG)])
def test_batches_follow_from_seed_and_step(tokenizer: Tokenizer, step: int, shape) -> None:
    batch, again = (Batches(tokenizer, seed=1).at(step) for _ in range(2))
    assert batch.tokens.shape == (shape.rows, shape.length)
    assert (batch.tokens == again.tokens).all()
    inside = batch.documents > 0
    assert inside.mean() > 0.7
    starts = inside & (batch.positions == 0)
    assert (batch.tokens[starts] == tokenizer.bos_id).all()
    # Within a document the target of a token is the next token of the row.
    follows = (batch.documents[:, 1:] == batch.documents[:, :-1]) & inside[:, 1:]
    assert (batch.targets[:, :-1][follows] == batch.tokens[:, 1:][follows]).all()
    assert 0 < batch.weights.sum() < inside.sum()
    assert (batch.weights[~inside] == 0).all()
