"""Memory, energy and the machine's state in a summary, in the report and in the CSV files."""

from __future__ import annotations

import csv
import io
from pathlib import Path

import msgspec
import pytest

from onechip.ladder import usage
from onechip.ladder.figures import KINDS, Place
from onechip.ladder.manifest import Visit
from onechip.ladder.records import CellRecord
from onechip.ladder.report import resources, tables, write_report
from onechip.ladder.report.sections import checks, sections
from onechip.ladder.report.sheets import figures_csv, requests_csv
from onechip.ladder.summary import Summary, summarise
from tests.ladder.made_ladder import MadeLadder

ARMS = {"slow": 60.0, "fast": 78.0}


def made(**options: object) -> tuple[MadeLadder, list[CellRecord]]:
    ladder = MadeLadder(ARMS, meters=True, **options)
    return ladder, ladder.records()


@pytest.fixture(scope="module")
def summary() -> Summary:
    ladder, records = made(machine={"gpu": "NVIDIA L4"})
    return summarise(ladder.manifest(), records)


def test_energy_is_per_output_token_of_the_cell(summary: Summary) -> None:
    found = {
        (m.place.variant, m.place.level): m.headline
        for m in summary.measures
        if m.figure == "gpu_j_per_token" and m.arm == "slow"
    }
    assert found["512/128", 64] == pytest.approx(80.0 / (64 * 24))
    assert found["alone", 1] == pytest.approx(80.0 / (6 * 32))
    assert not any(m.figure == "cpu_j_per_token" for m in summary.measures)


def test_the_peak_is_the_most_of_all_valid_cells() -> None:
    ladder, records = made()
    high, invalid = (
        r
        for r in records
        if r.cell.arm == "slow" and r.cell.level == 8 and r.cell.repeat < 2 and r.cell.variant == "512/128"
    )
    high.measured["resident_peak_bytes"] = float(9 << 30)
    invalid.measured["resident_peak_bytes"] = float(90 << 30)
    invalid.invalid = ["It broke a rule."]
    found = summarise(ladder.manifest(), records)
    (row,) = [row for row in found.rows if row.label == "Peak resident memory"]
    assert [entry.value for entry in row.entries] == [9 << 30, 1264 << 20]
    assert [entry.n for entry in row.entries] == [1, 1]
    assert row.verdict.outcome == "too few repeats"
    assert not any(row.label == "Resident memory" for row in found.rows)


def test_each_block_of_starts_has_its_own_peak() -> None:
    _, records = made()
    for record in records:
        block = 1 + record.cell.repeat
        record.cell = msgspec.structs.replace(record.cell, block=block)
        record.measured["resident_peak_bytes"] = float((1000 + block) << 20)
    peaks = {m.figure: m for m in usage.peaks(records) if m.arm == "fast"}
    assert peaks["resident_peak_bytes"].values == tuple(float(1000 + block << 20) for block in range(1, 7))
    assert peaks["resident_peak_bytes"].headline == 1003.5 * 2**20


def test_an_older_ladder_shows_the_memory_after_the_first_token() -> None:
    ladder = MadeLadder(ARMS)
    found = summarise(ladder.manifest(), ladder.records())
    assert [row.label for row in found.rows if row.unit == "bytes"] == ["Resident memory"]
    assert found.usages == found.readings == ()
    assert not {"Memory and energy", "Cost"} & {section.title for section in sections(found)}


def test_an_arm_that_was_not_metered_has_no_peak(summary: Summary) -> None:
    ladder, records = made()
    for record in records:
        if record.cell.arm == "fast":
            record.measured = {}
    (row,) = [r for r in summarise(ladder.manifest(), records).rows if r.label == "Peak resident memory"]
    assert [(entry.value is None, entry.remark) for entry in row.entries] == [
        (False, ""),
        (True, "not available"),
    ]


def test_power_is_the_median_of_the_cells(summary: Summary) -> None:
    (found,) = [u for u in summary.usages if (u.arm, u.place) == ("slow", Place("sweep", "512/128", 64))]
    assert (found.n, found.gpu_w, found.cpu_w) == (6, 40.0, None)
    assert found.resident_peak_bytes == 1264 << 20
    table = resources.memory(summary)
    assert table.head[-1] == "GPU power"  # nobody says the processor's
    assert (
        "sweep 512/128 at 64",
        "slow",
        "6",
        "1.23 GiB",
        "764 MiB",
        "1.27 GiB",
        "6.00 GiB",
        "40.0 W",
    ) in table.rows
    assert resources.missing(summary) == "Not available on this machine: energy of the processor."


def test_the_machine_is_shown_as_it_was_beside_each_arm(summary: Summary) -> None:
    rows = {row[:2]: row[2:] for row in resources.state(summary).rows}
    cells = str(len([r for r in made()[1] if r.cell.arm == "slow"]))
    assert rows["cores that other programs kept busy", "slow"] == (cells, *["0.02 cores"] * 3)
    assert rows["canary, copy, after the cell", "fast"] == (cells, *["2.20 ms"] * 3)
    assert ("gpu", "NVIDIA L4") in tables.machine(summary).rows


def test_starts_are_listed_in_order_with_the_rest_before_them() -> None:
    ladder = MadeLadder(ARMS)
    manifest = ladder.manifest()
    manifest.arms[0].visits = [
        Visit(1, "2026-11-30T10:00:00Z"),
        Visit(4, "2026-11-30T10:09:00Z", 12.0, False),
    ]
    manifest.arms[1].visits = [Visit(2, "2026-11-30T10:03:00Z", 3.0, True)]
    rows = resources.visits(summarise(manifest, ladder.records())).rows
    assert [row[1:] for row in rows] == [
        ("slow", "1", "0.00 s", "–"),
        ("fast", "2", "3.00 s", "yes"),
        ("slow", "4", "12.0 s", "no"),
    ]


def test_many_invalid_cells_are_counted_by_their_reason() -> None:
    ladder, records = made()
    sweep = [record for record in records if record.cell.job == "sweep" and record.cell.level > 1]
    for number, record in enumerate(sweep):
        record.invalid = [f"p99 of its loop lag was {5 + number / 10} ms (limit 5)."]
    found = summarise(ladder.manifest(), records)
    validity = checks(found)[0]
    (counted,), (each,) = validity.shown, validity.folded
    assert len(each.rows) == len(sweep) == 48
    assert [row[2] for row in counted.rows] == ["6"] * 8
    assert counted.rows[0][3] == "p99 of its loop lag was 5.0 ms (limit 5)."


def test_the_csv_files_have_every_figure_and_every_request() -> None:
    _, records = made()
    spoilt = next(record for record in records if record.cell.job == "sweep")
    spoilt.invalid = ['It said "no", twice.', "And again."]
    rows = list(csv.DictReader(io.StringIO(figures_csv(records))))
    assert {row["figure"] for row in rows} - {""} <= set(KINDS)
    (bad,) = [row for row in rows if row["invalid"]]
    assert (bad["figure"], bad["value"], bad["invalid"]) == ("", "", 'It said "no", twice. And again.')
    start = {row["figure"]: row for row in rows if row["job"] == "start" and row["variant"] == "cold"}
    assert (start["total_s"]["value"], start["total_s"]["unit"], start["total_s"]["repeat"]) == (
        "30",
        "s",
        "1",
    )
    assert float(start["resident_peak_bytes"]["value"]) == 1201 << 20
    requests = list(csv.DictReader(io.StringIO(requests_csv(records))))
    assert len(requests) == sum(len(record.requests) for record in records)
    assert sum(row["invalid"] == "True" for row in requests) == len(spoilt.requests)
    one = next(row for row in requests if row["variant"] == "alone")
    assert float(one["ttft_ms"]) == pytest.approx(100.0)
    assert {row["correct"] for row in requests if row["job"] == "acc"} == {"True", "False"}


def test_the_files_are_written_beside_the_report(tmp_path: Path) -> None:
    ladder, _ = made(machine={"gpu": "NVIDIA L4"})
    found = write_report(ladder.write(tmp_path))
    assert found.price is not None
    page, text = ((tmp_path / name).read_text() for name in ("report.html", "report.md"))
    for said in (
        "NVIDIA L4 at $0.8048 an hour: AWS g6.xlarge, us-east-1",
        "GPU energy per output token",
        "peak of its own pages",
        "cores that other programs kept busy",
        "Peak resident memory",
    ):
        assert said in page
        assert said in text
    assert (tmp_path / "figures.csv").read_text().startswith("arm,job,variant,level,repeat,block,")
    assert (tmp_path / "requests.csv").read_text().count("\n") > 1000
