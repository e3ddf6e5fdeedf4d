"""The report in a real browser: no errors, no network, no sideways scrolling, dark, light and on paper."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from onechip.ladder import published
from onechip.ladder.manifest import Failure
from onechip.ladder.prices import load
from onechip.ladder.report import rollup as rolled
from onechip.ladder.report.html import page
from onechip.ladder.rollup import roll_up
from onechip.ladder.summary import summarise
from tests import browser
from tests.browser import CONTRAST, OUTSIDE, WIDE, Tab
from tests.ladder.made_ladder import MadeLadder

pytestmark = pytest.mark.skipif(
    browser.CHROMIUM is None, reason="there is no chromium here (Debian: chromium)"
)


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """A report with everything in it, and a roll-up."""
    arms = {"vllm w4a16": 60.0, "an-engine-with-a-long-name:of-many-words bf16": 78.0, "llama.cpp q4_0": 55.0}
    made = MadeLadder(arms, meters=True, machine={"gpu": "NVIDIA L4"}, model="google/gemma-4-E2B-it")
    manifest, records = made.manifest(), made.records()
    manifest.arms[0].failures = [Failure("start cold", "It did not come up.", ("x" * 400, "boom"))]
    manifest.arms[1].command += ["--a-flag", "/a/long/path/" * 20]
    for entry in manifest.arms:
        entry.probe = {"fixed": "ignore_eos", "usage": True, "prompts": "ids"}
    records[-2].invalid = ["It broke a rule of measurement, which is told in a sentence of some length."]
    summary = summarise(manifest, records, load())
    where = tmp_path_factory.mktemp("pages")
    shown = roll_up([("a", summary)], [published.load()], load())
    for name, text in {"report": page(summary), "rollup": rolled.page(shown)}.items():
        (where / f"{name}.html").write_text(text)
    return {name: where / f"{name}.html" for name in ("report", "rollup")}


@pytest.fixture(scope="module")
def tab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Tab]:
    with browser.started(tmp_path_factory.mktemp("profile")) as found:
        yield found.open_tab()


@pytest.fixture(params=["report", "rollup"])
def opened(request: pytest.FixtureRequest, tab: Tab, files: dict[str, Path]) -> Tab:
    tab.requests.clear()
    tab.complaints.clear()
    tab.look(1280)
    tab.open(files[request.param])
    return tab


def test_it_asks_for_nothing_and_complains_of_nothing(opened: Tab) -> None:
    assert [re.sub(r".*/", "", address) for address in opened.requests] in (["report.html"], ["rollup.html"])
    assert all(address.startswith("file:") for address in opened.requests)
    assert opened.complaints == []


@pytest.mark.parametrize("width", [360, 390, 768, 1280])
def test_no_page_scrolls_sideways(opened: Tab, width: int) -> None:
    opened.look(width)
    opened.ask('document.querySelectorAll("details").forEach(found => found.open = true)')
    assert opened.ask(WIDE) == width
    assert opened.ask(OUTSIDE) == []


@pytest.mark.parametrize("dark", [False, True])
def test_text_can_be_read_in_dark_and_light(opened: Tab, dark: bool) -> None:
    opened.look(1280, dark=dark)
    ground = opened.ask("getComputedStyle(document.body).backgroundColor")
    assert (int(re.findall(r"\d+", ground)[0]) < 128) == dark
    ratio, where = opened.ask(CONTRAST)
    assert ratio >= 4.5, where


def test_a_drawing_takes_the_colours_of_the_page(tab: Tab, files: dict[str, Path]) -> None:
    tab.open(files["report"])
    ink = 'getComputedStyle(document.querySelector("figure svg text")).fill'
    found = []
    for dark in (False, True):
        tab.look(1280, dark=dark)
        found.append((tab.ask(ink), tab.ask("getComputedStyle(document.body).color")))
    assert found[0][0] != found[1][0]
    assert all(drawn == written for drawn, written in found)


def test_paper_shows_what_is_folded_and_cuts_nothing_off(opened: Tab, tmp_path: Path) -> None:
    opened.look(718, paper=True)  # A4 less the browser's margins of 1 cm, at 96 dots an inch
    hidden = """[...document.querySelectorAll("details")].filter(
      found => !found.querySelector("table").getBoundingClientRect().height).length"""
    assert opened.ask(hidden) == 0
    over = """[...document.querySelectorAll("table")].filter(
      found => found.getBoundingClientRect().right > innerWidth + 1).length"""
    assert opened.ask(over) == 0
    opened.pdf(tmp_path / "printed.pdf")
    assert (tmp_path / "printed.pdf").read_bytes().startswith(b"%PDF")


def test_links_lead_to_their_sections(tab: Tab, files: dict[str, Path]) -> None:
    tab.look(390)
    tab.open(files["report"])
    dead = """[...document.querySelectorAll("a")].filter(
      found => !document.getElementById(found.getAttribute("href").slice(1))).length"""
    assert tab.ask(dead) == 0
    assert tab.ask('document.querySelectorAll("nav a").length') >= 8
