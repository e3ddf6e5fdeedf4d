"""Claims: the published comparison's hold, a false one is told, and a report's own sentences are claims."""

from __future__ import annotations

from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from onechip.cli import app
from onechip.errors import ClaimError, OnechipError, UsageError
from onechip.ladder import published
from onechip.ladder.claims import Claim, Verdict, dump, judge, load, read
from onechip.ladder.queries import Query, answer
from onechip.ladder.report import write_report
from onechip.ladder.results import LadderResults, PublishedResults
from onechip.ladder.summary import summarise
from tests.ladder.made_ladder import MadeLadder

PUBLISHED = PublishedResults(published.load())
FOUR = ("vLLM", "SGLang-JAX", "JAX engine", "Rust model over PJRT")
DECODE = "One request, decode"
RIGHT = {"slow": frozenset(range(150)), "fast": frozenset(range(20, 150))}


@pytest.fixture(scope="module")
def ladder() -> MadeLadder:
    return MadeLadder({"slow": 60.0, "fast": 78.0}, RIGHT, repeats=6)


@pytest.fixture(scope="module")
def results(ladder: MadeLadder) -> LadderResults:
    return LadderResults(summarise(ladder.manifest(), ladder.records()))


@pytest.fixture(scope="module")
def folder(ladder: MadeLadder, tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = ladder.write(tmp_path_factory.mktemp("ladder") / "out")
    write_report(made)
    return made


def said_of(query: Query, expected: str, results, text: str = "2.52 0.933 1.07 34 19.1 1.3") -> Verdict:
    return judge(Claim(text, query, expected), results)


def command(*words: str) -> Result:
    return CliRunner().invoke(app, ["ladder", "claims", *words])


def test_what_was_said_of_the_published_comparison_holds() -> None:
    done = command("published")
    assert done.exit_code == 0
    assert done.output == "2026-11.claims.yaml: 9 of 9 claims hold.\n"


@pytest.mark.parametrize(
    ("query", "expected", "value"),
    [
        (Query("ratio", ("SGLang-JAX", "vLLM"), "v5e-1: many"), "= 2.52", 4249.4 / 1689.1),
        (Query("ratio", ("JAX engine", "vLLM"), "v5e-1: one"), "= 0.933", 134.3 / 143.9),
        (Query("ratio", (143.9, 134.2), "v5e-1: one"), "= 1.07", 143.9 / 134.2),
        (Query("value", ("vLLM",), "v5e-1: start_s"), "= 34 min", 2055),
        (Query("spread", FOUR, "v5e-1: one"), "= 19.1 %", 159.9 / 134.3 - 1),
        (Query("farthest", FOUR, "v5e-1: one"), "< 12 %", 159.9 / 143.9 - 1),
    ],
)
def test_published_facts(query: Query, expected: str, value: float) -> None:
    assert answer(query, PUBLISHED).value == pytest.approx(value)
    assert said_of(query, expected, PUBLISHED).holds


def test_four_engines_are_not_within_12_percent_of_each_other() -> None:
    text = "On a TPU v5e-1 four engines are within 12 % of each other with one request."
    verdict = judge(Claim(text, Query("spread", FOUR, "v5e-1: one"), "< 12 %"), PUBLISHED)
    assert not verdict.holds
    assert verdict.why == "the value is 19.1 % (SGLang-JAX 159.9 tok/s and JAX engine 134.3 tok/s)"


def test_an_equality_holds_to_half_of_its_last_digit_or_to_its_tolerance() -> None:
    query = Query("ratio", ("SGLang-JAX", "vLLM"), "v5e-1: many")  # 2.5158
    for expected, holds in (("= 2.516", True), ("= 2.515", False), ("= 2.5", True), ("!= 2.5", False)):
        assert said_of(query, expected, PUBLISHED, "2.516 2.515 2.5").holds == holds
    assert judge(Claim("2.6", query, "= 2.6", tolerance=0.1), PUBLISHED).holds
    assert judge(Claim("over 2.52", query, ">= 2.52", tolerance=0.01), PUBLISHED).holds
    assert not judge(Claim("over 2.52", query, ">= 2.52"), PUBLISHED).holds


def test_a_sentence_must_say_the_number_that_it_is_bound_to() -> None:
    query = Query("ratio", ("SGLang-JAX", "vLLM"), "v5e-1: many")
    verdict = said_of(query, "= 2.52", PUBLISHED, "SGLang-JAX is 3.52 times as fast.")
    assert not verdict.holds
    assert verdict.why.startswith("its text does not say 2.52; the value is 2.516")
    speed = Query("value", ("SGLang-JAX",), "v5e-1: many")
    assert said_of(speed, "= 4249.4 tok/s", PUBLISHED, "It gives 4,249.4 tok/s.").holds


def test_an_inequality_between_arms_needs_its_whole_interval(results: LadderResults) -> None:
    query = Query("ratio", ("fast", "slow"), DECODE)
    found = answer(query, results)
    assert found.interval is not None
    assert said_of(query, "> 1.2", results).holds
    assert said_of(query, "= 1.3", results).holds
    inside = (float(found.value) + found.interval.low) / 2
    verdict = said_of(query, f"> {inside:.4f}", results)
    assert not verdict.holds
    assert verdict.why.endswith(", which does not lie wholly there")
    assert said_of(Query("spread", (), DECODE), "< 40 %", results).holds
    assert said_of(Query("farthest", ("slow",), DECODE), "> 20 %", results).holds
    assert not said_of(Query("farthest", ("slow", "fast"), DECODE), "< 25 %", results).holds


def test_a_claim_of_difference_needs_repeats(results: LadderResults) -> None:
    verdict = said_of(Query("ratio", ("fast", "slow"), "Start, cold cache"), "< 2", results)
    assert not verdict.holds
    assert verdict.why.endswith(", but no claim rests on fewer than 6 repeats an arm")


@pytest.mark.parametrize(
    ("query", "expected", "holds"),
    [
        (Query("winner", of=DECODE), "= fast", True),
        (Query("winner", of=DECODE), "!= fast", False),
        (Query("winner", of="Start, cold cache"), "= nobody", True),
        (Query("difference", ("slow", "fast"), "Accuracy, acorn-problems"), "> 5 points", True),
        (Query("difference", ("slow", "fast"), "acc acorn-problems: score"), "> 8 points", False),
        (Query("value", ("slow",), "acc acorn-problems: score"), "= 75.0 %", True),
        (Query("value", ("slow",), "sweep 512/128 at 8: whole_batch_tok_s"), "> 100 tok/s", True),
        (Query("value", ("slow",), "Start, cold cache"), "= 0.5 min", True),
        (Query("value", ("slow",), "Repeats its own text"), "= 6", True),
        (Query("cells"), "= 102", True),
        (Query("invalid"), "= 0", True),
    ],
)
def test_queries_of_a_ladder(query: Query, expected: str, holds: bool, results: LadderResults) -> None:
    verdict = said_of(query, expected, results, "75.0 0.5 6 102 0")
    assert verdict.holds == holds, verdict.why


@pytest.mark.parametrize(
    ("query", "expected", "sentence"),
    [
        (Query("value", ("quick",), DECODE), "> 1", "there is no arm 'quick'; the arms are: slow, fast."),
        (
            Query("value", ("slow",), "decode"),
            "> 1",
            "there is no figure 'decode'; give a row's label (Start",
        ),
        (
            Query("value", ("slow",), "sweep 512/128: ttft_ms"),
            "> 1",
            "there is no figure 'sweep 512/128: ttft_ms'",
        ),
        (Query("value", ("slow",), "Start, cold cache"), "> 1 GiB", "the value is in s; give s, ms, min, h."),
        (Query("value", ("slow", "fast"), DECODE), "> 1", "value takes one arm, not 2 (slow, fast)."),
        (Query("ratio", ("slow",), DECODE), "> 1", "ratio takes 2 arms, not 1 (slow)."),
        (Query("ratio", (0.0, "slow"), DECODE), "> 1", "a number in a ratio must be above 0, not 0."),
        (Query("value", (1.0,), DECODE), "> 1", "value takes names of arms, not a number (1)"),
        (Query("difference", ("slow", "fast"), DECODE), "> 1", "are not compared by difference in"),
        (Query("winner", of="decode"), "= fast", "there is no row 'decode'; the rows are: Start"),
        (Query("winner", of=DECODE), "> fast", "a name is = or !="),
        (Query("value", ("slow",), DECODE), "= fast", "must give a number"),
        (Query("spread", ("slow",), DECODE), "< 1 %", "spread takes 2 arms at the least"),
        (Query("wins", ("quick",)), "= 1", "there is no arm 'quick'"),
    ],
)
def test_a_query_that_cannot_be_answered_says_why(
    query: Query, expected: str, sentence: str, results: LadderResults
) -> None:
    verdict = said_of(query, expected, results)
    assert not verdict.holds
    assert verdict.why.startswith("it cannot be checked: ")
    assert sentence in verdict.why


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("- text: [", "is no YAML ("),
        (
            "- text: a\n  query: {ask: cells}\n  expected: > 1\n",
            "what begins with > or ! must stand in quotes",
        ),
        ("a: 1", "must be a list of claims, each with text, query and expected."),
        ("[]", "holds no claim."),
        ("- text: a\n  query: {ask: cells}\n", "claim 1: Object missing required field 'expected'."),
        (
            "- &one {text: a, query: {ask: cells}, expected: '= 1'}\n- {<<: *one, query: {ask: most}}",
            "claim 2: Invalid enum value 'most' - at '$.query.ask'.",
        ),
        ("- {text: a, query: {ask: cells, by: x}, expected: '= 1'}", "contains unknown field 'by'"),
        ("- {text: a, query: {ask: cells}, expected: '1'}", "'1' has no relation; begin with =, !=, <"),
        (
            "- {text: a, query: {ask: cells}, expected: '= 1', tolerance: -1}",
            "tolerance -1 must be 0 or more.",
        ),
    ],
)
def test_a_file_that_is_wrong_is_one_sentence(text: str, sentence: str, tmp_path: Path) -> None:
    path = tmp_path / "claims.yaml"
    path.write_text(text)
    with pytest.raises(UsageError) as error:
        load(path)
    assert error.value.message.startswith(str(path))
    assert sentence in error.value.message
    assert "\n" not in error.value.message


def test_claims_survive_their_file(tmp_path: Path) -> None:
    claims = [Claim("é is > 1", Query("ratio", ("é", 2.0), "a: b"), "> 1 %", 0.5)]
    (tmp_path / "claims.yaml").write_text(dump(claims), encoding="utf-8")
    assert load(tmp_path / "claims.yaml") == claims


def test_expected_is_taken_apart() -> None:
    assert read("= 4,249.4 tok/s") == ("=", "4,249.4 tok/s", 4249.4, "tok/s", 0.1)
    assert read("<= −0.5 points") == ("<=", "−0.5 points", -0.5, "points", 0.1)
    assert read("= onechip int4").number is None
    assert read("= 3 engines").number is None


def test_every_sentence_of_a_report_holds_until_its_records_change(folder: Path) -> None:
    own = load(folder / "sentences.yaml")
    assert any(claim.text.startswith("fast wins “One request, decode”") for claim in own)
    assert {claim.query.ask for claim in own} == {"wins", "winner", "value", "ratio", "difference", "cells"}
    done = command(str(folder))
    assert done.exit_code == 0, done.output
    assert done.output == f"{folder / 'sentences.yaml'}: {len(own)} of {len(own)} claims hold.\n"


def test_a_claim_that_does_not_hold_fails(folder: Path, tmp_path: Path) -> None:
    claims = [
        Claim("fast is twice as fast.", Query("ratio", ("fast", "slow"), DECODE), ">= 2"),
        Claim("fast is faster.", Query("ratio", ("fast", "slow"), DECODE), "> 1"),
    ]
    (folder / "claims.yaml").write_text(dump(claims))
    try:
        done = command(str(folder))
    finally:
        (folder / "claims.yaml").unlink()
    assert isinstance(done.exception, ClaimError)
    assert done.exception.exit_code == 7
    assert done.exception.message == "1 claim does not hold; what each rests on is above."
    assert "claims.yaml: 1 of 2 claims hold.\n  DOES NOT HOLD: fast is twice as fast.\n" in done.output
    assert "    Expected >= 2; the value is 1.3" in done.output


def test_a_report_of_other_records_is_found_out(ladder: MadeLadder, folder: Path, tmp_path: Path) -> None:
    other = MadeLadder({"slow": 60.0, "fast": 61.0}, RIGHT, repeats=6).write(tmp_path / "out")
    (other / "sentences.yaml").write_bytes((folder / "sentences.yaml").read_bytes())
    done = command(str(other))
    assert isinstance(done.exception, ClaimError)
    assert "DOES NOT HOLD: fast wins “One request, decode”" in done.output


def test_a_folder_without_claims(ladder: MadeLadder, tmp_path: Path) -> None:
    error = command(str(tmp_path)).exception
    assert isinstance(error, OnechipError)
    assert error.message == f"{tmp_path} is not a results folder: it holds no manifest.json."
    made = ladder.write(tmp_path / "out")
    error = command(str(made)).exception
    assert isinstance(error, UsageError)
    assert error.message.endswith(f"make the second with: onechip ladder report {made}")
