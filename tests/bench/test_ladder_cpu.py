"""The page of all engines on a CPU, whose chapters come from different machines."""

from __future__ import annotations

from pathlib import Path

import pytest
from bench import ladder_cpu


def test_a_chapter_without_results_here_stays_as_it_stands(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    page = tmp_path / "page.md"
    acorn, e2b = (bench.title for bench in ladder_cpu.BENCHES.values())
    page.write_text(f"# Old\n\n## {acorn}\n\nmeasured elsewhere\n\n### Scores\n\n1\n\n## {e2b}\n\nold\n")
    monkeypatch.setattr(ladder_cpu, "PAGE", page)
    monkeypatch.setattr(ladder_cpu, "RESULTS", tmp_path)
    monkeypatch.setattr(ladder_cpu, "chapter", lambda name: f"## {ladder_cpu.BENCHES[name].title}\n\nnew")
    (tmp_path / "e2b").mkdir()
    (tmp_path / "e2b" / "report.md").touch()
    ladder_cpu.write()
    found = ladder_cpu.chapters(page.read_text())
    assert list(found) == [acorn, e2b]
    assert found[acorn] == f"## {acorn}\n\nmeasured elsewhere\n\n### Scores\n\n1"
    assert found[e2b] == f"## {e2b}\n\nnew"
    assert page.read_text().startswith(ladder_cpu.HEAD)


@pytest.mark.parametrize(
    ("rows", "end"), [(2, "| 2 |"), (3, "| 2 |\n\nAnd 1 more rows of this kind in the report.")]
)
def test_long_tables_are_shortened(rows: int, end: str) -> None:
    table = "\n".join(["| cell |", "| --- |", *(f"| {row} |" for row in range(1, rows + 1))])
    assert ladder_cpu.shortened(table, rows=2) == "| cell |\n| --- |\n| 1 |\n" + end
