"""Two arms in A B B A blocks, whole and killed: the order, equal repeats, starts of their own, one result."""

from __future__ import annotations

import random
import signal
import subprocess
from collections import Counter
from functools import partial
from itertools import groupby
from pathlib import Path

import pytest

from onechip.ladder import manifest as manifests
from onechip.ladder.journal import NAME
from onechip.ladder.records import CellRecord
from onechip.ladder.summary import summarise
from tests.ladder.whole_ladders import ROOT, arm, asked, command, engines_of, journal, ladder, wait_until

WORDS = [
    *("--compare", "fast", "slow", "--jobs", "start,sweep,acc", "--levels", "2", "--shapes", "24/6"),
    *("--repeats", "4", "--acc-limit", "5", "--cell-seconds", "0", "--cool-down", "0", "--quick"),
]


def arms(log: Path) -> list[str]:
    return [*arm("fast", log=str(log)), *arm("slow", gap_s=0.001, log=str(log))]


Whole = tuple[str, list[CellRecord], manifests.Manifest, Path]


@pytest.fixture(scope="module")
def whole(model: Path, tmp_path_factory: pytest.TempPathFactory) -> Whole:
    out = tmp_path_factory.mktemp("compare") / "out"
    return *ladder(out, model, *arms(out.parent / "asked"), *WORDS), out


def named(records: list[CellRecord]) -> list[tuple[str, str, str, int, int, int]]:
    cells = (record.cell for record in records)
    return [(c.arm, c.job, c.variant, c.level, c.repeat, c.block) for c in cells]


def test_blocks_are_in_order_and_each_is_a_start(whole: Whole) -> None:
    said, records, manifest, _ = whole
    order = [key for key, _ in groupby((r.cell.block, r.cell.arm) for r in records)]
    assert order == [
        (0, "fast"),
        (0, "slow"),
        *zip(range(1, 9), ["fast", "slow", "slow", "fast"] * 2, strict=True),
    ]
    for name in ("fast", "slow"):
        visits = manifest.arm(name).visits
        assert [visit.block for visit in visits] == [block for block, arm in order if arm == name]
        assert all(visit.finished and visit.state["memory_available_bytes"] for visit in visits)
        starts = [r.cell for r in records if (r.cell.arm, r.cell.job) == (name, "start")]
        assert [(c.variant, c.repeat) for c in starts] == [("cold", 0), *(("warm", n) for n in range(4))]
    assert "Order: A B B A, again and again, with A fast and B slow" in said
    assert "fast, block 1" in said
    assert manifest.design[0].startswith("Order: A B B A")


def test_both_arms_get_the_same_cells_and_prompts(whole: Whole) -> None:
    _, records, _, _ = whole
    of_arm = {
        name: sorted(
            (r.cell.job, r.cell.variant, r.cell.level, r.cell.repeat, [q.prompt_sha256 for q in r.requests])
            for r in records
            if r.cell.arm == name
        )
        for name in ("fast", "slow")
    }
    assert of_arm["fast"] == of_arm["slow"]
    counts = Counter((r.cell.arm, r.cell.level) for r in records if r.cell.job == "sweep")
    assert counts == {("fast", 2): 4, ("slow", 2): 4}
    assert all(r.cell.block == 0 for r in records if r.cell.job == "acc")


def test_the_report_compares_by_blocks(whole: Whole) -> None:
    _, records, manifest, _ = whole
    for record in records:
        record.invalid.clear()
    summary = summarise(manifest, records)
    assert not summary.one_block
    found = {c.figure: c.ratio for c in summary.contrasts if c.place.job == "sweep"}
    found.pop("inter_token_ms", None)  # a cell has none if a busy client reads each answer's tokens in one go
    assert {"whole_batch_tok_s", "ttft_ms"} <= found.keys()
    assert all(ratio and ratio.blocks and ratio.n_a == 4 for ratio in found.values())


def test_machine_state_is_kept_for_each_cell(whole: Whole) -> None:
    for record in whole[1]:
        assert record.measured["memory_available_bytes"] > 0
        if record.cell.job == "sweep":
            assert record.measured["canary_copy_after_s"] > 0
            assert record.measured["others_cpu_cores"] >= 0


def reached(out: Path, cells: int, ladder: subprocess.Popen[bytes]) -> bool:
    return len(journal(out)) >= cells or ladder.poll() is not None


def test_killed_inside_blocks_and_resumed_equals_uninterrupted(
    whole: Whole, model: Path, tmp_path: Path
) -> None:
    """No finished cell is asked twice, no finished block starts an engine again."""
    out, log = tmp_path / "out", tmp_path / "asked"
    start = command(str(model), "--out", str(out), *arms(log), *WORDS)
    rng, kills = random.Random(3), 0
    while True:
        known = {q.prompt_sha256 for r in journal(out) for q in r.requests if r.cell.arm == "fast"}
        known &= {q.prompt_sha256 for r in journal(out) for q in r.requests if r.cell.arm == "slow"}
        before, cells = len(asked(log)), len(journal(out))
        process = subprocess.Popen(start, cwd=ROOT, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        if kills == 2:
            assert process.wait(600) == 0
            break
        more = cells + rng.randrange(3, 8)
        wait_until(partial(reached, out, more, process), "more cells")
        process.send_signal(signal.SIGKILL)
        process.wait()
        kills += 1
        wait_until(lambda: not engines_of(out), "the engine's end after its ladder's")
        assert not known & set(asked(log)[before:]), "a finished cell was asked again"
        start = command("resume", str(out))
    assert named(journal(out)) == named(whole[1])
    assert (out / NAME).read_bytes().count(b"\n") == len(journal(out))
    manifest = manifests.load(out)
    assert manifest.finished_at is not None
    assert len(manifest.resumed_at) == 2
    assert all(arm.finished for arm in manifest.arms)
    done = [visit.block for arm in manifest.arms for visit in arm.visits if visit.finished]
    assert sorted(done) == [0, 0, *range(1, 9)]


def test_a_wide_interval_adds_whole_quads(model: Path, tmp_path: Path) -> None:
    """Cells of a few milliseconds scatter by more than 2 %; with luck two do not."""
    words = ["--repeats", "2-4", "--jobs", "sweep"]
    _, records, _ = ladder(tmp_path / "out", model, *arms(tmp_path / "asked"), *WORDS, *words)
    counts = Counter(record.cell.arm for record in records)
    assert counts["fast"] == counts["slow"]
    assert counts["fast"] in (2, 4)
    assert {r.cell.block for r in records} == set(range(1, 1 + 2 * counts["fast"]))
