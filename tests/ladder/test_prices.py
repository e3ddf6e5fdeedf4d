"""What a million tokens cost, and price files that are none."""

from __future__ import annotations

import datetime
from pathlib import Path

import pytest
from typer.testing import CliRunner

from onechip.cli import app
from onechip.errors import LadderError
from onechip.ladder import prices
from onechip.ladder.prices import Price, Prices
from onechip.ladder.summary import summarise
from tests.ladder.made_ladder import MadeLadder

MADE = Prices("made", (Price("Made", "made", 3.6, "a made machine", "a test", datetime.date(2026, 11, 1)),))


def test_a_million_tokens_cost_the_time_that_they_take() -> None:
    # 3.6 dollars an hour are a tenth of a cent a second; at 1,000 tok/s a million take 1,000 s.
    assert MADE.chip[0].usd_per_million(1000.0) == pytest.approx(1.0)


@pytest.mark.parametrize(
    ("chip", "listed"),
    [
        ("Tesla T4", "NVIDIA T4"),
        ("NVIDIA L4", "NVIDIA L4"),
        ("NVIDIA L40S", None),
        ("NVIDIA A100-SXM4-40GB", "NVIDIA A100, 40 GB"),
        ("NVIDIA A100-SXM4-80GB", "NVIDIA A100, 80 GB"),
        ("NVIDIA A100 80GB PCIe", "NVIDIA A100, 80 GB"),
        ("NVIDIA H100 80GB HBM3", "NVIDIA H100"),
        ("TPU v5e", "TPU v5e"),
        ("TPU v5e-1", "TPU v5e"),
        ("NVIDIA GeForce RTX 3050", None),
        ("AMD EPYC", None),
    ],
)
def test_chips_of_the_package(chip: str, listed: str | None) -> None:
    found = prices.load().find(chip)
    assert (None if found is None else found.name) == listed


def test_every_price_of_the_package_says_from_where_and_when() -> None:
    listed = prices.load()
    assert listed.title
    for price in listed.chip:
        assert price.usd_per_hour > 0
        assert price.what
        assert price.source
        assert datetime.date(2025, 1, 1) < price.date <= datetime.date.today()


def test_a_machine_has_the_price_of_its_one_chip() -> None:
    listed = prices.load()

    def name(**machine: str) -> str | None:
        found = prices.of_machine(listed, machine)
        return None if found is None else found.name

    assert name(gpu="NVIDIA L4", cpu="AMD EPYC") == "NVIDIA L4"
    assert name(gpu="NVIDIA L4, NVIDIA L4") is None
    assert name(gpu="not available", tpu="TPU v5e", cpu="AMD EPYC") == "TPU v5e"
    assert name(gpu="not available", cpu="AMD EPYC") is None
    assert name() is None


def test_costs_are_of_the_sweep_and_the_cheaper_end_is_the_faster_one() -> None:
    made = MadeLadder({"slow": 60.0, "fast": 78.0})
    summary = summarise(made.manifest(), made.records(), MADE)
    speeds = {
        (m.arm, m.place): m
        for m in summary.measures
        if m.figure == "whole_batch_tok_s" and m.place.job == "sweep"
    }
    assert {(cost.arm, cost.place) for cost in summary.costs} == set(speeds)
    for cost in summary.costs:
        speed = speeds[cost.arm, cost.place]
        assert cost.usd == pytest.approx(1000.0 / speed.headline)
        assert cost.interval is not None
        assert speed.spread.interval is not None
        assert cost.interval.low == pytest.approx(1000.0 / speed.spread.interval.high)
        assert cost.interval.low < cost.usd < cost.interval.high
    assert summarise(made.manifest(), made.records(), Prices("none")).costs == ()
    assert summarise(made.manifest(), made.records()).price is None


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("title = ", "is not as it should be"),
        ('title = "x"\nprices = 1', "unknown field `prices`"),
        ('title = "x"\n[[chip]]\nname = "x"', "missing required field `match`"),
        (
            'title = "x"\n[[chip]]\nname = "x"\nmatch = "("\nusd_per_hour = 1\nwhat = ""\nsource = ""\n'
            "date = 2026-11-30",
            "is no regular expression",
        ),
        (
            'title = "x"\n[[chip]]\nname = "x"\nmatch = "x"\nusd_per_hour = 0\nwhat = ""\nsource = ""\n'
            "date = 2026-11-30",
            "usd_per_hour of x must be above 0",
        ),
        (None, "cannot be read: No such file or directory"),
    ],
)
def test_a_file_that_holds_no_prices_is_named_with_what_is_wrong(
    tmp_path: Path, text: str | None, said: str
) -> None:
    path = tmp_path / "mine.toml"
    if text is not None:
        path.write_text(text)
    with pytest.raises(LadderError, match=r"mine\.toml") as raised:
        prices.load(path)
    assert said in raised.value.message
    assert "\n" not in raised.value.message


def test_the_report_takes_a_file_of_one_s_own(tmp_path: Path) -> None:
    where = MadeLadder({"x": 50.0}, repeats=1).write(tmp_path / "ladder")
    mine = tmp_path / "mine.toml"
    mine.write_text(
        'title = "ours"\n[[chip]]\nname = "Our box"\nmatch = "made cpu"\nusd_per_hour = 0.36\n'
        'what = "a box in the cellar"\nsource = "the electricity bill"\ndate = 2026-11-01\n'
    )
    for arguments, shown in (((), False), (("--prices", str(mine)), True)):
        said = CliRunner().invoke(app, ["ladder", "report", str(where), *arguments], env={"COLUMNS": "200"})
        assert said.exit_code == 0
        for name in ("report.html", "report.md"):
            text = (where / name).read_text()
            assert ("Our box at $0.36 an hour: a box in the cellar; the electricity bill" in text) == shown
    error = CliRunner().invoke(app, ["ladder", "report", str(where), "--prices", "none.toml"]).exception
    assert isinstance(error, LadderError)
