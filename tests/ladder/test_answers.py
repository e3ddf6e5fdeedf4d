"""Answers side by side: flips between arms, an engine's own flips, and the command that shows them."""

from __future__ import annotations

import msgspec
import pytest
from typer.testing import CliRunner

from onechip.cli import app
from onechip.errors import UsageError
from onechip.ladder import answers
from onechip.ladder.journal import Journal
from onechip.ladder.records import CellRecord
from onechip.ladder.report import tables
from onechip.ladder.report.findings import findings
from onechip.ladder.report.flips import marked
from onechip.ladder.summary import summarise
from tests.ladder.made_ladder import MadeLadder, answer

RIGHTS = {"a": frozenset(range(150)), "b": frozenset(range(3, 150))}


def asked_again(made: MadeLadder, arm: str, asking: int, rights: frozenset[int]) -> CellRecord:
    record = made.cell(arm, "acc", "acorn-problems", 1, asking)
    record.requests = [answer(i, i in rights) for i in range(200)]
    return record


@pytest.fixture
def made() -> MadeLadder:
    return MadeLadder({"a": 50.0, "b": 50.0}, RIGHTS, repeats=1)


@pytest.fixture
def records(made: MadeLadder) -> list[CellRecord]:
    """Both arms, and arm a twice more, with other verdicts."""
    asked = [record for record in made.records() if record.cell.job == "acc"]
    again = asked_again(made, "a", 1, frozenset(range(1, 151)))
    once_more = asked_again(made, "a", 2, frozenset(range(2, 152)) - {10, 11} | {0, 1})
    return [*asked, again, once_more]


@pytest.mark.parametrize(
    ("a", "b", "at", "shown"),
    [
        ("so 18", "so 19", 4, "so 1▶8"),
        ("so 18", "so 18", None, "so 18"),
        ("so 18", "so 180", 5, "so 18▶"),
        ("", "x", 0, "▶"),
        ("é1", "é2", 1, "é▶1"),
    ],
)
def test_the_first_character_that_differs(a: str, b: str, at: int | None, shown: str) -> None:
    assert answers.first_difference(a, b) == answers.first_difference(b, a) == at
    assert marked(a, at).plain == shown


def test_flips_hold_both_texts(records: list[CellRecord]) -> None:
    sheets = answers.sheets(records)
    found = answers.changes(sheets["a", "acorn-problems"], sheets["b", "acorn-problems"])
    assert [flip.question for flip in found] == ["q0", "q1", "q2"]
    assert found[0].texts == ("the answer is 0", "the answer is 1")
    assert (found[0].rights, found[0].differs_at, found[0].expected) == ((True, False), 14, "0")


def test_texts_that_differ_under_the_same_verdict_are_told_when_asked_for(records: list[CellRecord]) -> None:
    a, b = (answers.sheets(records)[arm, "acorn-problems"] for arm in "ab")
    b["q5"].text = "it is 5"
    assert len(answers.changes(a, b)) == 3
    assert [flip.question for flip in answers.changes(a, b, texts=True)] == ["q0", "q1", "q2", "q5"]


def test_an_engine_s_own_flips(made: MadeLadder, records: list[CellRecord]) -> None:
    (control,) = summarise(made.manifest(), records).controls
    assert (control.arm, control.variant, control.n, control.askings) == ("a", "acorn-problems", 200, 3)
    # First and second differ in 0 and 150, first and third in 10, 11, 150, 151, second and third in 0, 10, 11
    # and 151.
    assert control.flips == control.texts == pytest.approx(10 / 3)
    assert control.rate == pytest.approx(10 / 600)
    assert control.interval.low < control.rate < control.interval.high
    assert [flip.question for flip in control.flipped] == ["q0", "q10", "q11", "q150", "q151"]


def test_the_first_asking_alone_is_the_score(made: MadeLadder, records: list[CellRecord]) -> None:
    found = summarise(made.manifest(), records)
    assert [(score.arm, score.n, score.right) for score in found.scores] == [("a", 200, 150), ("b", 200, 147)]
    assert found.pairs[0].paired.n == 200


def test_what_was_asked_once_has_no_control(made: MadeLadder, records: list[CellRecord]) -> None:
    assert summarise(made.manifest(), records[:2]).controls == ()
    # Of an asking that broke off only what both askings answered counts.
    part = msgspec.structs.replace(records[2], requests=records[2].requests[:50])
    (control,) = summarise(made.manifest(), [*records[:2], part]).controls
    assert (control.n, control.flips) == (50, 1)


def show(*words: str):
    return CliRunner().invoke(app, ["ladder", "flips", *words], env={"COLUMNS": "100"})


def test_the_command_shows_both_answers(made: MadeLadder, records: list[CellRecord], tmp_path) -> None:
    folder = made.write(tmp_path / "out")
    (folder / "journal.jsonl").unlink()
    journal = Journal(folder)
    for record in records:
        journal.append(record)
    journal.close()
    said = show(str(folder), "a", "b").output
    assert "acorn-problems: 3 of 200 verdicts changed; only a is right in 3, only b in 0." in said
    assert "the answer is ▶0" in said
    assert "the answer is ▶1" in said
    assert "a: right" in said
    assert "q3" not in said
    own = show(str(folder), "a", "a").output
    assert "2 of 200 verdicts changed; only a, first is right in 1, only a, again in 1." in own
    for words, sentence in (
        (("a", "c"), "There is no arm 'c' with answers in this ladder; there are: a, b."),
        (("b", "b"), "b was asked once only; to compare it with itself run a ladder with --repeat-acc 1."),
    ):
        error = show(str(folder), *words).exception
        assert isinstance(error, UsageError)
        assert error.message == sentence


def test_own_flips_stand_in_the_report(made: MadeLadder, records: list[CellRecord]) -> None:
    summary = summarise(made.manifest(), records)
    table = tables.controls(summary)
    assert [row[:6] for row in table.rows] == [("acorn-problems", "a", "3", "200", "3.3", "1.7 %")]
    said = [finding.text for finding in findings(summary)]
    begins = "acorn-problems, asked 3 times: from one asking to another a flips 3.3 of 200"
    assert any(text.startswith(begins) for text in said)
