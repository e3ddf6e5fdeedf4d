"""Several made ladders and the published one as one table: lined up by model, marked by source."""

from __future__ import annotations

import io
import json
import re
from pathlib import Path

import pytest
from markupsafe import escape
from rich.console import Console
from typer.testing import CliRunner

from onechip.cli import app
from onechip.errors import UsageError
from onechip.ladder import prices, published
from onechip.ladder.manifest import Failure
from onechip.ladder.report import html as report
from onechip.ladder.report import rollup as shown
from onechip.ladder.report.findings import notices
from onechip.ladder.rollup import Line, Rollup, Value, roll_up
from onechip.ladder.summary import Summary, summarise
from tests.ladder.made_ladder import MadeLadder

KNOWN = published.load()


@pytest.fixture(scope="module")
def acorn() -> Summary:
    made = MadeLadder({"slow": 60.0, "fast": 78.0})
    return summarise(made.manifest(), made.records())


@pytest.fixture(scope="module")
def e2b() -> Summary:
    """A ladder of the published model on a GPU, whose sweep at 64 is invalid, and which has another arm."""
    made = MadeLadder({"mine": 90.0, "other": 70.0}, model="google/gemma-4-E2B-it")
    manifest, records = made.manifest(), made.records()
    manifest.machine["gpu"] = "L4"
    manifest.arms[0].failures.append(Failure("start cold", "It had a cold."))
    for record in records:
        cell = record.cell
        if (cell.arm, cell.job, cell.variant, cell.level) == ("mine", "sweep", "128/512", 64):
            record.invalid = ["64 of 64 requests had another output length."]
    return summarise(manifest, records)


@pytest.fixture(scope="module")
def whole(acorn: Summary, e2b: Summary) -> Rollup:
    return roll_up([("a", acorn), ("b", e2b)], [KNOWN], prices.load())


def line(rollup: Rollup, source: str, engine: str) -> Line:
    return next(
        line
        for group in rollup.groups
        for line in group.lines
        if (line.source, line.engine) == (source, engine)
    )


def test_models_never_share_a_table(whole: Rollup) -> None:
    assert [(g.model, {found.source for found in g.lines}) for g in whole.groups] == [
        ("acorn, the stand-in", {"a"}),
        ("Gemma 4 E2B", {"b", "published"}),
    ]
    assert any("its figures say nothing about Gemma 4" in remark for remark in whole.remarks)


def test_lines_of_one_chip_stand_together(whole: Rollup) -> None:
    chips = [line.chip for line in whole.groups[1].lines]
    assert chips[:3] == ["L4", "L4", "L4"]
    assert chips == sorted(chips, key=chips.index)
    assert {line.source for line in whole.groups[1].lines if line.chip == "L4"} == {"b", "published"}


def test_figures_are_the_report_s(whole: Rollup, acorn: Summary) -> None:
    fast = line(whole, "a", "fast")
    rows = {(r.place.job, r.place.variant, r.place.level, r.figure): r for r in acorn.rows}
    entries = {key: next(e.value for e in row.entries if e.arm == "fast") for key, row in rows.items()}
    assert fast.one.value == entries["one", "alone", 1, "end_to_end_tok_s"]
    assert fast.many.value == entries["sweep", "128/512", 64, "whole_batch_tok_s"]
    assert fast.start_s.value == 30.0
    assert [(score.set, score.score, score.n) for score in fast.quality] == [("acorn-problems", 0.75, 200)]
    assert fast.drafter == fast.cost == Value()
    assert fast.chip == "Made CPU <2 cores>"


def test_costs_are_of_listed_chips_at_64_requests(whole: Rollup) -> None:
    other = line(whole, "b", "other")
    assert other.many.value is not None
    assert other.cost.value == pytest.approx(0.8048 / 3600 / other.many.value * 1e6)
    assert line(whole, "b", "mine").cost == Value()  # its cells at 64 are invalid
    known = {found.chip: found for found in whole.groups[1].lines if found.engine == "vLLM"}
    assert known["L4"].cost.value == pytest.approx(0.8048 / 3600 / 4516.3 * 1e6)
    assert known["RTX 3050 OEM"].cost == Value()
    assert any("list prices on demand" in remark for remark in whole.remarks)
    assert not any("Costs are" in remark for remark in roll_up([], [KNOWN]).remarks)
    assert "$0.0495" in shown.markdown(whole)


def test_an_engine_on_several_chips_has_a_line_for_each_speed(whole: Rollup) -> None:
    acorn, e2b = (shown.across(group) for group in whole.groups)
    assert acorn.rows == ()
    chips = e2b.head[2:]
    assert {"T4", "L4"} <= set(chips)
    rows = {row[:2]: dict(zip(chips, row[2:], strict=True)) for row in e2b.rows}
    of_vllm = next(
        cells for (engine, what), cells in rows.items() if engine.startswith("vLLM") and "64" in what
    )
    assert (of_vllm["T4"], of_vllm["L4"]) == ("1,165.5", "4,516.3")
    assert not any(engine.startswith(("mine", "other")) for engine, _ in rows)  # on one chip alone
    assert {what for engine, what in rows if engine == "PyTorch engine"} == {"1 request"}
    for form in (shown.markdown(whole), shown.page(whole)):
        assert form.count("The same engine on another chip") >= 1


def test_two_ladders_on_one_chip_stand_side_by_side() -> None:
    here, there = (
        summarise(made.manifest(), made.records())
        for made in (MadeLadder({"x": 50.0}), MadeLadder({"x": 70.0}, machine={"gpu": "T4"}))
    )
    (group,) = roll_up([("a", here), ("b", there), ("c", here)]).groups
    one, many = shown.across(group).rows
    assert one[:2] == ("x", "1 request")
    assert one[2] == "; ".join([one[2].split("; ")[0]] * 2)
    assert len(many) == 4


def test_what_is_invalid_or_failed_says_so(whole: Rollup) -> None:
    mine = line(whole, "b", "mine")
    assert mine.many == Value(None, "INVALID")
    assert mine.needs == "1 failure"
    assert line(whole, "published", "mistral.rs").many.value == 1825.2


def test_another_shape_is_said_beside_its_figure() -> None:
    made = MadeLadder({"x": 50.0})
    records = [record for record in made.records() if record.cell.level < 64]
    found = roll_up([("a", summarise(made.manifest(), records))]).groups[0].lines[0]
    assert found.many.value is not None
    assert found.many.remark == "8 requests, 128 in, 512 out"


def test_published_figures_without_a_ladder_of_their_model_compare_with_nothing(acorn: Summary) -> None:
    remarks = roll_up([("a", acorn)], [KNOWN]).remarks
    assert any(remark.startswith("No ladder here is of Gemma 4 E2B") for remark in remarks)
    assert not any("No ladder here" in remark for remark in roll_up([], [KNOWN]).remarks)


@pytest.mark.parametrize(
    ("model", "name"),
    [
        ("google/gemma-4-E2B-it", "Gemma 4 E2B"),
        ("/models/gemma-4-e2b-it-w4a16", "Gemma 4 E2B"),
        ("/models/gemma-4-e2b-it-q4_0.gguf", "Gemma 4 E2B"),
        ("/models/gemma-4-e2b-synth", "gemma-4-e2b-synth"),
        ("google/gemma-4-E4B-it", "gemma-4-E4B-it"),
        ("/work/models/acorn", "acorn, the stand-in"),
    ],
)
def test_which_model_a_ladder_is_of(model: str, name: str) -> None:
    made = MadeLadder({"x": 50.0}, model=model)
    assert roll_up([("a", summarise(made.manifest(), []))]).groups[0].model == name


def test_the_three_forms_say_the_same(whole: Rollup) -> None:
    console = Console(file=io.StringIO(), width=160)
    console.print(shown.terminal(whole))
    assert isinstance(console.file, io.StringIO)
    text = console.file.getvalue()
    for form in (text, shown.markdown(whole), shown.page(whole)):
        for said in (
            "4,249.4",
            "0.72×",
            "fails on dtype",
            "no backend",
            "INVALID",
            "2,055",
            "acorn-problems 75.0 %",
        ):
            assert said in form
        assert "pinned TPU image with int4 table patches" in form
    assert "Made CPU <2 cores>" not in shown.page(whole)
    assert "http" not in shown.page(whole)


def test_both_pages_stand_in_one_frame(whole: Rollup, acorn: Summary) -> None:
    pages = [shown.page(whole), report.page(acorn)]
    frames = [re.sub(r"<title>.*?</title>", "", page).partition("<header>")[0] for page in pages]
    assert frames[0] == frames[1]
    assert "prefers-color-scheme: dark" in frames[0]
    for page, told in zip(pages, (whole.remarks, notices(acorn)), strict=True):
        assert [f"<li>{escape(notice)}</li>" in page for notice in told] == [True] * len(told)
        assert page.rstrip().endswith("</html>")


def test_the_command_rolls_up_several_ladders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    folders = [str(MadeLadder({"x": 50.0}).write(tmp_path / name)) for name in ("one", "two")]
    said = CliRunner().invoke(app, ["ladder", "report", folders[0]], env={"COLUMNS": "200"})
    assert said.exit_code == 0
    assert not (tmp_path / "ladder-rollup").exists()
    said = CliRunner().invoke(app, ["ladder", "report", *folders], env={"COLUMNS": "200"})
    assert "All ladders side by side: ladder-rollup/rollup.html" in said.output
    groups = json.loads((tmp_path / "ladder-rollup" / "rollup.json").read_text())["groups"]
    assert [found["source"] for found in groups[0]["lines"]] == ["one", "two"]
    beside = ["ladder", "report", folders[0], "--beside", "published", "--out", "b"]
    assert CliRunner().invoke(app, beside).exit_code == 0
    assert {path.name for path in (tmp_path / "b").iterdir()} == {"rollup.json", "rollup.md", "rollup.html"}
    error = CliRunner().invoke(app, ["ladder", "report", folders[0], "--beside", "mine"]).exception
    assert isinstance(error, UsageError)
    assert "the only comparison that comes with the package is published" in error.message


def test_the_command_that_shows_the_published_comparison() -> None:
    said = CliRunner().invoke(app, ["ladder", "published"], env={"COLUMNS": "100"}).output
    assert "SGLang-JAX" in said
    assert "4,249.4" in said
