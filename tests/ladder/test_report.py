"""The report of a made ladder: self-contained, escaped, and saying nothing that the summary does not hold."""

from __future__ import annotations

import io
import json
import re
from html.parser import HTMLParser
from pathlib import Path

import msgspec
import pytest
from rich.console import Console

from onechip.errors import LadderError
from onechip.ladder.journal import Journal
from onechip.ladder.manifest import Failure
from onechip.ladder.records import CellRecord
from onechip.ladder.report import tables, terminal_table, write_report
from onechip.ladder.report.differences import differences
from onechip.ladder.report.findings import findings, notices
from onechip.ladder.report.html import page as page_of
from onechip.ladder.report.markdown import markdown
from onechip.ladder.report.plots import plots
from onechip.ladder.summary import Summary, summarise
from tests.ladder.made_ladder import MadeLadder

EVIL = "<script>alert(1)</script>"
VOID = {"meta", "link", "br", "img", "hr", "input"}


class Page(HTMLParser):
    """Parses a page: text, ids, references to ids, and tags that were not closed."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.ids: list[str] = []
        self.references: set[str] = set()
        self.attributes: list[tuple[str, str]] = []
        self.tags: list[str] = []
        self.open: list[str] = []
        self.text: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)
        if tag not in VOID:
            self.open.append(tag)
        self._look(attrs)

    def handle_startendtag(self, tag, attrs):
        self.tags.append(tag)
        self._look(attrs)

    def _look(self, attrs):
        for name, value in attrs:
            self.attributes.append((name, value or ""))
            if name == "id":
                self.ids.append(value)
            if name == "aria-labelledby":
                self.references |= set(value.split())
            if name.endswith("href"):
                self.references.add(value.removeprefix("#"))
            self.references |= set(re.findall(r"url\(#([^)]+)\)", value or ""))

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.text.append(data)


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    made = MadeLadder(
        {"slow": 60.0, "fast": 78.0}, {"slow": frozenset(range(150)), "fast": frozenset(range(148))}
    )
    where = made.write(tmp_path_factory.mktemp("ladder"))
    broken = made.cell("fast", "sweep", "512/128", 2, 0)
    broken.invalid = [f"Request 0 has 511 prompt tokens, 512 were asked {EVIL} | pipe."]
    journal = Journal(where)
    journal.append(broken)
    journal.close()
    return where


@pytest.fixture(scope="module")
def summary(folder: Path) -> Summary:
    return write_report(folder)


@pytest.fixture(scope="module")
def html(folder: Path, summary: Summary) -> str:
    return (folder / "report.html").read_text()


@pytest.fixture(scope="module")
def page(html: str) -> Page:
    return Page(html)


def test_the_folder_gets_three_files_and_the_summary_is_the_one_returned(folder: Path, summary: Summary):
    assert {"summary.json", "report.md", "report.html"} <= {path.name for path in folder.iterdir()}
    assert msgspec.json.decode((folder / "summary.json").read_bytes(), type=Summary) == summary


def test_the_same_records_give_the_same_files(folder: Path, summary: Summary):
    names = ("summary.json", "report.md", "report.html")
    before = [(folder / name).read_bytes() for name in names]
    write_report(folder)
    assert [(folder / name).read_bytes() for name in names] == before


def test_the_page_needs_no_network(html: str, page: Page):
    assert not re.search(r"https?:|//[a-z]|@import|url\((?!#)", html)
    assert not {"script", "link", "iframe", "img"} & set(page.tags)
    assert all(value.startswith("#") for name, value in page.attributes if name.endswith("href"))


def test_the_page_is_well_formed(page: Page):
    assert page.open == []
    assert len(page.ids) == len(set(page.ids))
    assert page.references <= set(page.ids)


def test_every_plot_has_a_title_a_description_and_the_pages_colours(summary: Summary, html: str):
    drawn = plots(summary)
    assert [plot.name for plot in drawn] == [
        "start",
        *("throughput-0", "ttft-0", "waits-ttft-0", "waits-inter_token-0"),
        *("throughput-1", "ttft-1", "waits-ttft-1", "waits-inter_token-1"),
        "accuracy",
    ]
    for plot in drawn:
        assert f'<desc id="{plot.name}-d">{plot.alt}</desc>' in html
        assert "var(--ink)" in plot.svg
        assert not re.search(r"#0072b2|#d55e00|#0a0b0", plot.svg)


def test_what_came_from_outside_is_escaped(folder: Path, html: str):
    assert EVIL not in html
    assert "&lt;script&gt;alert(1)&lt;/script&gt;" in html
    assert EVIL not in (folder / "report.md").read_text()


def test_dark_print_and_phone_are_served(html: str):
    for rule in ("prefers-color-scheme: dark", "@media print", "max-width: 40rem", 'name="viewport"'):
        assert rule in html


def test_what_went_wrong_and_what_engines_lack_stand_in_both_reports(tmp_path: Path):
    made = MadeLadder({"good": 60.0, "bad": 50.0, "poor": 40.0})
    manifest = made.manifest()
    log = ("Traceback (most recent call last):", f"  raise {EVIL} | pipe", "boom")
    manifest.arms[1].failures = [Failure("start cold", "It did not come up.", log)] * 2
    can = {"fixed": "ignore_eos", "usage": True, "prompts": "ids"}
    manifest.arms[0].probe = can
    manifest.arms[2].probe = can | {"fixed": None, "prompts": "chat"}
    summary = summarise(manifest, made.records())
    assert "bad, start cold: It did not come up. (1 more in the report.)" in notices(summary)
    assert any(
        notice.startswith("poor has no field that holds an answer to a length") for notice in notices(summary)
    )
    table = differences(summary)
    assert table.head == ("asked of it", "good", "bad", "poor", "what its lack costs")
    cost = "cells of fixed length (sweep) are INVALID where the model stops early"
    assert table.rows[0] == ("holds an answer to a length, by", "ignore_eos", "–", "no", cost)
    assert table.rows[1] == ("usage at the end of a stream", "yes", "–", "yes", "")
    assert table.rows[-1] == ("the sweep's prompts are", "ids", "–", "chat", "")
    text, html = markdown(summary), page_of(summary)
    assert text.count("**bad**, start cold: It did not come up.\n\n    Traceback") == 2
    assert "    boom\n" in text
    assert html.count("<b>start cold</b> It did not come up.") == 2
    assert "boom</pre>" in html
    assert EVIL not in html
    assert all(f"{cost}" in form for form in (text, html))


def test_a_ladder_in_which_nothing_went_wrong_has_no_such_section(html: str, folder: Path):
    assert "What went wrong" not in html
    assert "What went wrong" not in (folder / "report.md").read_text()
    assert "What each engine can do" not in html


def test_an_invalid_cell_is_shown_with_its_reason(page: Page, folder: Path):
    text = " ".join(page.text)
    assert "sweep 512/128 at 2" in text
    assert "Request 0 has 511 prompt tokens, 512 were asked" in text
    assert "Request 0 has 511 prompt tokens, 512 were asked" in (folder / "report.md").read_text()


def test_medals_only_where_a_difference_is_established(summary: Summary, html: str):
    states = {row.label: [cell.state for cell in row.cells] for row in tables.medal_rows(summary)}
    verdicts = {row.label: row.verdict for row in tables.medal_rows(summary)}
    assert states["One request, decode"] == ["plain", "medal"]
    assert states["One request, first token"] == ["plain", "plain"]
    assert "not separated from" in verdicts["One request, first token"]
    assert states["Start, warm cache"] == ["plain", "plain"]
    assert verdicts["Start, warm cache"] == "no claim: 1 of 6 repeats"
    assert html.count('class="number medal"') == sum(row.count("medal") for row in states.values())


def test_an_arm_with_other_work_is_shown_marked_and_named(tmp_path: Path):
    made = MadeLadder({"slow": 60.0, "fast": 78.0, "other": 99.0}, work={"other": "longer prompts"})
    found = write_report(made.write(tmp_path))
    row = next(row for row in tables.medal_rows(found) if row.label == "One request, decode")
    assert [cell.state for cell in row.cells] == ["plain", "medal", "apart"]
    assert [cell.remark for cell in row.cells] == ["", "", "other work"]
    assert row.verdict.endswith("; other work, not compared: other")
    page, text = ((tmp_path / name).read_text() for name in ("report.html", "report.md"))
    assert re.search(r'class="number apart">.*tok/s <b class="flag">other work</b>', page)
    assert re.search(r"tok/s \(other work\)", text)
    said = [finding.text for finding in findings(found)]
    assert any(text.startswith("fast wins “One request, decode”") for text in said)
    (scores,) = [text for text in said if text.startswith("acorn-problems: other")]
    assert scores.endswith(": other work, not compared.")
    assert "other work, not compared" in [row[-1] for row in tables.pairs(found).rows]


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


def test_a_row_of_invalid_cells_only_says_so(tmp_path: Path):
    made = MadeLadder({"a": 60.0, "b": 60.0}, repeats=2)
    records = [record for record in made.records() if record.cell.variant == "four"]
    for record in records:
        record.invalid = ["The client was the bottleneck."]
    (row,) = tables.medal_rows(write_report(folder_of(made, records, tmp_path)))
    assert [cell.text for cell in row.cells] == ["INVALID", "INVALID"]
    assert row.verdict == "no valid figure"


def test_whose_repeats_are_too_few_is_said(tmp_path: Path):
    made = MadeLadder({"a": 60.0, "b": 50.0})
    records = [record for record in made.records() if record.cell.job == "one"]
    records = [record for record in records if record.cell.arm == "a" or record.cell.repeat < 2]
    found = write_report(folder_of(made, records, tmp_path))
    verdicts = {row.label: row.verdict for row in tables.medal_rows(found)}
    assert verdicts["Four at once"] == "no claim: b has 2 of 6 repeats"
    assert findings(found)[0].text == f"None of the {len(found.rows)} rows has an established winner."


def test_an_arm_that_has_not_run_is_no_arm_without_a_figure(tmp_path: Path):
    made = MadeLadder({"a": 60.0, "b": 50.0})
    records = [record for record in made.records() if record.cell.arm == "a"]
    found = write_report(folder_of(made, records, tmp_path))
    row = next(row for row in tables.medal_rows(found) if row.label == "Repeats its own text")
    assert [cell.text for cell in row.cells] == ["6/6", "–"]


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


def test_unstable_figures_are_counted_by_arm(tmp_path: Path):
    made = MadeLadder({"a": 60.0, "b": 50.0}, noise=0.3)
    said = [f.text for f in findings(write_report(made.write(tmp_path))) if f.text.startswith("UNSTABLE")]
    assert len(said) == 1
    assert re.fullmatch(r"UNSTABLE figures, marked in the table: \d+ of a, \d+ of b\.", said[0])


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


def test_the_stand_in_and_the_cuts_are_told(summary: Summary, page: Page, folder: Path):
    told = notices(summary)
    assert told[0].startswith("The model is acorn, a small stand-in")
    assert "--quick: this ladder was made by a test." in told
    text, markdown = " ".join(page.text), (folder / "report.md").read_text()
    assert all(notice in text for notice in told)
    assert "--quick: this ladder was made by a test." in markdown


def test_a_real_model_is_no_stand_in(tmp_path: Path):
    made = MadeLadder({"a": 60.0}, repeats=1, model="google/gemma-4-E2B-it")
    assert not any("stand-in" in told for told in notices(write_report(made.write(tmp_path))))


def test_what_ran_is_shown(page: Page):
    text = " ".join(page.text)
    for fact in ("onechip serve --dtype fast", "Made CPU <2 cores>", "Linux 6.1", "ffffffffffff", "A=1"):
        assert fact in text


def test_the_markdown_tables_are_rectangular(folder: Path):
    blocks = re.findall(r"(?:^\|.*\n)+", (folder / "report.md").read_text(), flags=re.MULTILINE)
    assert len(blocks) >= 6
    for block in blocks:
        widths = {len(re.findall(r"(?<!\\)\|", line)) for line in block.splitlines()}
        assert len(widths) == 1, block


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


def test_a_report_needs_a_results_folder(tmp_path: Path):
    with pytest.raises(LadderError, match=r"holds no manifest\.json"):
        write_report(tmp_path)


def test_a_ladder_of_an_earlier_version_reports(tmp_path: Path):
    """Its plan has an option that is gone, its manifest and its cells lack what came later."""
    where = MadeLadder({"a": 60.0}, repeats=1).write(tmp_path)
    manifest = json.loads((where / "manifest.json").read_text())
    plan = manifest["plan"] | {"one_repeats": 6}
    for later in ("compare", "pin", "most_repeats", "half_width", "per_start"):
        del plan[later]
    for entry in manifest["arms"]:
        del entry["visits"]
    del manifest["design"], manifest["rest"]
    (where / "manifest.json").write_text(json.dumps(manifest | {"plan": plan}))
    journal = (where / "journal.jsonl").read_text().replace(',"block":0', "")
    (where / "journal.jsonl").write_text(journal)
    assert '"block"' not in journal
    assert write_report(where).rows
    (where / "manifest.json").write_text(json.dumps(manifest | {"plan": plan | {"new": 1}}))
    with pytest.raises(LadderError, match="unknown field `new`"):
        write_report(where)


def test_an_unfinished_ladder_gets_a_report_that_says_so(tmp_path: Path):
    made = MadeLadder({"a": 60.0, "b": 60.0})
    where = folder_of(made, [], tmp_path)
    manifest = json.loads((where / "manifest.json").read_text()) | {"finished_at": None}
    (where / "manifest.json").write_text(json.dumps(manifest))
    summary = write_report(where)
    assert "The ladder is not finished: this report rests on the 0 cells measured so far." in notices(summary)
    assert "No cell broke a rule" in (where / "report.html").read_text()


def folder_of(made: MadeLadder, records: list[CellRecord], where: Path) -> Path:
    """A results folder with only these records."""
    made.speeds, speeds = {}, made.speeds
    made.write(where)
    made.speeds = speeds
    (where / "manifest.json").write_bytes(msgspec.json.encode(made.manifest()))
    journal = Journal(where)
    for record in records:
        journal.append(record)
    journal.close()
    return where


def resolve(document: object, pointer: str) -> object:
    """The value at a JSON pointer."""
    for part in pointer.strip("/").split("/"):
        document = document[int(part)] if isinstance(document, list) else document[part]
    return document
