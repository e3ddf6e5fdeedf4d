"""The journal gives back what was put in, after any crash."""

from __future__ import annotations

from pathlib import Path

import pytest

from onechip.errors import LadderError
from onechip.ladder.journal import NAME, Journal, read_records
from onechip.ladder.records import Cell, CellRecord, RequestRecord


def record(repeat: int, text: str = "ü\n") -> CellRecord:
    cell = Cell("arm", "one", "alone", 1, repeat, "d")
    return CellRecord(cell, "2026-01-01T00:00:00+00:00", requests=[RequestRecord(0, "", text=text)])


@pytest.fixture
def filled(tmp_path: Path) -> Path:
    journal = Journal(tmp_path)
    for repeat in range(3):
        journal.append(record(repeat))
    journal.close()
    return tmp_path


def test_it_gives_back_what_was_put_in(filled: Path) -> None:
    journal = Journal(filled)
    assert journal.torn is None
    assert journal.records == read_records(filled) == [record(n) for n in range(3)]
    assert journal.get(record(1).cell.id) == record(1)
    journal.close()


def test_any_torn_last_line_is_dropped_and_the_rest_kept(filled: Path) -> None:
    whole = (filled / NAME).read_bytes()
    last = whole.rstrip(b"\n").rfind(b"\n") + 1
    for size in range(last + 1, len(whole), 37):
        (filled / NAME).write_bytes(whole[:size])
        assert read_records(filled) == [record(0), record(1)]
        journal = Journal(filled)
        assert journal.torn is not None
        assert f"{size - last} bytes" in journal.torn
        journal.append(record(2))
        journal.close()
        assert (filled / NAME).read_bytes() == whole


def test_damage_anywhere_else_is_no_torn_line(filled: Path) -> None:
    lines = (filled / NAME).read_bytes().splitlines(keepends=True)
    (filled / NAME).write_bytes(lines[0] + lines[1][:20] + b"\n" + lines[2])
    with pytest.raises(LadderError, match="line 2 is damaged"):
        Journal(filled)


def test_a_cell_measured_again_counts_once_with_its_newest_record(filled: Path) -> None:
    journal = Journal(filled)
    journal.append(record(1, "again"))
    journal.close()
    assert [found.requests[0].text for found in read_records(filled)] == ["ü\n", "again", "ü\n"]


def test_two_ladders_cannot_write_one_journal(filled: Path) -> None:
    first = Journal(filled)
    with pytest.raises(LadderError, match="being written by another ladder"):
        Journal(filled)
    first.close()


def test_a_folder_without_a_journal(tmp_path: Path) -> None:
    with pytest.raises(LadderError, match="is not a results folder"):
        read_records(tmp_path)
