"""What a report says in sentences: who wins what, by how much, and where no winner is named."""

from __future__ import annotations

import json
import re
from pathlib import Path

from onechip.ladder.report import tables, write_report
from onechip.ladder.report.findings import findings, notices
from onechip.ladder.summary import Summary
from tests.ladder.made_ladder import MadeLadder, folder_of


def test_two_arms_with_other_work_each_have_no_winner(tmp_path: Path):
    made = MadeLadder({"a": 60.0, "b": 78.0}, work={"b": "longer prompts"})
    found = write_report(made.write(tmp_path))
    row = next(row for row in tables.medal_rows(found) if row.label == "One request, decode")
    assert row.verdict == row.brief == "no two figures are of the same work"
    assert any(
        finding.text.startswith("Without a winner, because no two figures are of the same work: “One request")
        for finding in findings(found)
    )


def test_two_close_scores_are_not_called_equal(summary: Summary):
    (sentence,) = [f.text for f in findings(summary) if f.text.startswith("acorn-problems")]
    assert "difference −1.0 points" in sentence
    assert "neither shown to differ nor to be level" in sentence
    assert "200 questions show a difference of" in sentence


def test_few_flips_show_the_adjusted_interval_too(tmp_path: Path):
    made = MadeLadder({"a": 60.0, "b": 60.0})
    records = [record for record in made.records() if record.cell.job == "acc"]
    found = write_report(folder_of(made, records, tmp_path))
    sentence = next(f.text for f in findings(found) if f.text.startswith("acorn-problems"))
    assert "difference 0.0 points (95 % interval 0.0 to 0.0, adjusted for few flips −1.4 to +1.4)" in sentence
    assert sentence.endswith("level within 2 points.")
    (row,) = tables.medal_rows(found)
    assert row.verdict == "level within 2 points, no question of 200 flips"


def test_whose_repeats_are_too_few_is_said(tmp_path: Path):
    made = MadeLadder({"a": 60.0, "b": 50.0})
    records = [record for record in made.records() if record.cell.job == "one"]
    records = [record for record in records if record.cell.arm == "a" or record.cell.repeat < 2]
    found = write_report(folder_of(made, records, tmp_path))
    verdicts = {row.label: row.verdict for row in tables.medal_rows(found)}
    assert verdicts["Four at once"] == "no claim: b has 2 of 6 repeats"
    assert findings(found)[0].text == f"None of the {len(found.rows)} rows has an established winner."


def test_who_leads_is_said_where_nothing_is_established(tmp_path: Path):
    made = MadeLadder({"a": 60.0, "b": 50.0}, repeats=2)
    said = findings(write_report(made.write(tmp_path / "two")))
    rows = json.loads((tmp_path / "two" / "summary.json").read_text())["rows"]
    ahead = [
        row["verdict"]["leader"]
        for row in rows
        if row["verdict"]["outcome"] == "too few repeats" and len({e["value"] for e in row["entries"]}) == 2
    ]
    assert said[-1].text.startswith(
        f"If you have to choose today: a had the best figure in {ahead.count('a')} of the {len(ahead)} rows"
    )
    assert len(said[-1].sources) == len(ahead)
    made = MadeLadder({"a": 60.0, "b": 50.0})
    assert not any("choose" in f.text for f in findings(write_report(made.write(tmp_path / "six"))))


def test_unstable_figures_are_counted_by_arm(tmp_path: Path):
    made = MadeLadder({"a": 60.0, "b": 50.0}, noise=0.3)
    said = [f.text for f in findings(write_report(made.write(tmp_path))) if f.text.startswith("UNSTABLE")]
    assert len(said) == 1
    assert re.fullmatch(r"UNSTABLE figures, marked in the table: \d+ of a, \d+ of b\.", said[0])


def test_every_number_of_a_finding_stands_where_it_points(folder: Path, summary: Summary):
    document = json.loads((folder / "summary.json").read_text())
    for finding in findings(summary):
        assert finding.sources
        for pointer in finding.sources:
            resolve(document, pointer)
    win = next(f for f in findings(summary) if f.text.startswith("fast wins “One request, decode”"))
    rows, contrast = (resolve(document, pointer) for pointer in win.sources)
    assert f"{contrast['ratio']['ratio']:.2f} times as fast" in win.text
    assert (
        f"{rows['entries'][1]['value']:.1f} tok/s against {rows['entries'][0]['value']:.1f} tok/s" in win.text
    )


def test_a_lower_figure_wins_as_time_not_as_speed(tmp_path: Path):
    made = MadeLadder({"a": 60.0, "b": 60.0})
    records = [record for record in made.records() if record.cell.job == "one"]
    for record in records:
        if record.cell.arm == "a":
            for request in record.requests:
                request.event_ns = [
                    ns + 300_000_000 + 1_000_000 * record.cell.repeat for ns in request.event_ns
                ]
    said = [f.text for f in findings(write_report(folder_of(made, records, tmp_path)))]
    win = next(text for text in said if text.startswith("b wins “One request, first token”"))
    assert (
        "b wins “One request, first token”: 100.0 ms against 402.5 ms of a; a takes 4.02 times as long" in win
    )


def test_a_real_model_is_no_stand_in(tmp_path: Path):
    made = MadeLadder({"a": 60.0}, repeats=1, model="google/gemma-4-E2B-it")
    assert not any("stand-in" in told for told in notices(write_report(made.write(tmp_path))))


def resolve(document: object, pointer: str) -> object:
    """The value at a JSON pointer."""
    for part in pointer.strip("/").split("/"):
        document = document[int(part)] if isinstance(document, list) else document[part]
    return document
