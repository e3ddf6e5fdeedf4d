"""The tables of a report and of the terminal: their order, medals and verdicts."""

from __future__ import annotations

import io
from pathlib import Path

from rich.console import Console

from onechip.ladder.report import tables, terminal_table, write_report
from onechip.ladder.summary import Summary, summarise
from tests.ladder.made_ladder import MadeLadder, folder_of


def test_medals_only_where_a_difference_is_established(summary: Summary, folder: Path):
    states = {row.label: [cell.state for cell in row.cells] for row in tables.medal_rows(summary)}
    verdicts = {row.label: row.verdict for row in tables.medal_rows(summary)}
    assert states["One request, decode"] == ["plain", "medal"]
    assert states["One request, first token"] == ["plain", "plain"]
    assert "not separated from" in verdicts["One request, first token"]
    assert states["Start, warm cache"] == ["plain", "plain"]
    assert verdicts["Start, warm cache"] == "no claim: 1 of 6 repeats"
    html = (folder / "report.html").read_text()
    assert html.count('class="number medal"') == sum(row.count("medal") for row in states.values())


def test_a_row_of_invalid_cells_only_says_so(tmp_path: Path):
    made = MadeLadder({"a": 60.0, "b": 60.0}, repeats=2)
    records = [record for record in made.records() if record.cell.variant == "four"]
    for record in records:
        record.invalid = ["The client was the bottleneck."]
    (row,) = tables.medal_rows(write_report(folder_of(made, records, tmp_path)))
    assert [cell.text for cell in row.cells] == ["INVALID", "INVALID"]
    assert row.verdict == "no valid figure"


def test_an_arm_that_has_not_run_is_no_arm_without_a_figure(tmp_path: Path):
    made = MadeLadder({"a": 60.0, "b": 50.0})
    records = [record for record in made.records() if record.cell.arm == "a"]
    found = write_report(folder_of(made, records, tmp_path))
    row = next(row for row in tables.medal_rows(found) if row.label == "Repeats its own text")
    assert [cell.text for cell in row.cells] == ["6/6", "–"]


def test_the_arm_to_which_no_question_flips_is_named_where_another_flips(tmp_path: Path):
    """Of three arms two answer alike, and one question is answered otherwise by the third."""
    rights = {"a": frozenset(range(149)), "b": frozenset(range(150)), "c": frozenset(range(150))}
    made = MadeLadder({"a": 60.0, "b": 60.0, "c": 60.0}, rights)
    records = [record for record in made.records() if record.cell.job == "acc"]
    (row,) = tables.medal_rows(write_report(folder_of(made, records, tmp_path)))
    assert row.verdict.endswith("no question of 200 flips to c")


def test_scores_that_are_shown_to_differ_are_said_to(tmp_path: Path):
    made = MadeLadder({"a": 60.0, "b": 60.0}, {"a": frozenset(), "b": frozenset(range(150))})
    records = [record for record in made.records() if record.cell.job == "acc"]
    found = write_report(folder_of(made, records, tmp_path))
    assert tables.pairs(found).rows[0][-1] == "b is better"


def test_arms_stand_next_to_each_other_in_the_tables(summary: Summary):
    for table in (tables.speed(summary, "one", ""), tables.latency(summary), *tables.sweep(summary)):
        assert [row[2] for row in table.rows] == ["slow", "fast"] * (len(table.rows) // 2)
        assert all(one[:2] == other[:2] for one, other in zip(table.rows[::2], table.rows[1::2], strict=True))
    assert [row[1] for row in tables.scores(summary).rows] == ["slow", "fast"]


def test_levels_rise_in_the_tables_whatever_was_measured_first():
    made = MadeLadder({"a": 60.0, "b": 50.0})
    records = sorted(made.records(), key=lambda record: (-record.cell.repeat, -record.cell.level))
    found = summarise(made.manifest(), records)
    levels = [int(row[0].rpartition(" ")[2]) for row in tables.latency(found).rows]
    assert levels == [1] * 4 + [8] * 4 + [64] * 4 + [1] * 4 + [8] * 4 + [64] * 4
    assert [row[1] for row in tables.latency(found).rows[:4]] == ["time to first token"] * 2 + [
        "between tokens"
    ] * 2


def test_one_value_has_no_spread_and_repeats_count_from_one(summary: Summary):
    spread = tables.speed(summary, "start", "").head.index("spread")
    assert {row[spread] for row in tables.speed(summary, "start", "").rows} == {"–"}
    assert [row[2] for row in tables.invalid(summary).rows] == ["1"]


def test_the_terminal_table_has_the_medals(summary: Summary):
    console = Console(width=200, record=True, file=io.StringIO())
    console.print(terminal_table(summary))
    lines = console.export_text().splitlines()
    (decode,) = [line for line in lines if line.strip().startswith("One request, decode")]
    assert decode.index("🥇") > decode.index("tok/s")


def test_a_terminal_of_80_columns_keeps_estimates_whole(tmp_path: Path):
    made = MadeLadder({"onechip bf16": 60.0, "onechip w4a16": 75.0})
    found = write_report(made.write(tmp_path))
    console = Console(width=80, record=True, file=io.StringIO())
    console.print(terminal_table(found))
    table = console.export_text().split("•")[0]
    assert max(map(len, table.splitlines())) <= 80
    won = [row for row in tables.medal_rows(found) if any(cell.state == "medal" for cell in row.cells)]
    assert len(won) >= 5
    assert all(row.brief in table and row.verdict == f"onechip w4a16, {row.brief}" for row in won)
    assert "no claim (1 of 6)" in table
    assert "level, no question" in table
    assert table.count("onechip w4a16") == 1
