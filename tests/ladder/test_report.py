"""The report of a made ladder: self-contained, escaped, and saying nothing that the summary does not hold."""

from __future__ import annotations

import json
import re
from html.parser import HTMLParser
from pathlib import Path

import msgspec
import pytest

from onechip.errors import LadderError
from onechip.ladder.manifest import Failure
from onechip.ladder.report import tables, write_report
from onechip.ladder.report.differences import differences
from onechip.ladder.report.findings import findings, notices
from onechip.ladder.report.html import page as page_of
from onechip.ladder.report.markdown import markdown
from onechip.ladder.report.plots import plots
from onechip.ladder.summary import Summary, summarise
from tests.ladder.made_ladder import MadeLadder, folder_of, slow_and_fast

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
    return slow_and_fast(tmp_path_factory.mktemp("ladder"), EVIL)


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


def test_the_stand_in_and_the_cuts_are_told(summary: Summary, page: Page, folder: Path):
    told = notices(summary)
    assert told[0].startswith("The model is acorn, a small stand-in")
    assert "--quick: this ladder was made by a test." in told
    text, markdown = " ".join(page.text), (folder / "report.md").read_text()
    assert all(notice in text for notice in told)
    assert "--quick: this ladder was made by a test." in markdown


def test_what_ran_is_shown(page: Page):
    text = " ".join(page.text)
    for fact in ("onechip serve --dtype fast", "Made CPU <2 cores>", "Linux 6.1", "ffffffffffff", "A=1"):
        assert fact in text


@pytest.mark.usefixtures("summary")
def test_the_markdown_tables_are_rectangular(folder: Path):
    blocks = re.findall(r"(?:^\|.*\n)+", (folder / "report.md").read_text(), flags=re.MULTILINE)
    assert len(blocks) >= 6
    for block in blocks:
        widths = {len(re.findall(r"(?<!\\)\|", line)) for line in block.splitlines()}
        assert len(widths) == 1, block


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
