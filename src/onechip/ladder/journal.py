"""The append-only journal of finished cells: records in, the same records out after any crash."""

from __future__ import annotations

import fcntl
import os
from pathlib import Path

import msgspec

from onechip.errors import LadderError
from onechip.ladder.disk import writing
from onechip.ladder.records import CellRecord

NAME = "journal.jsonl"


class Journal:
    """One JSON line a finished cell, on disk before `append` returns.

    Opening it reads what is there. A last line without its newline was being written when the process died:
    it is cut off, and `torn` says so. Where a cell was measured again (`resume --retry-invalid`), its newest
    record counts.
    """

    def __init__(self, folder: Path) -> None:
        self.path = folder / NAME
        self.torn: str | None = None
        self._records: dict[str, CellRecord] = {}
        # Unbuffered: what could not be written must not wait inside for the next try.
        self._file = self.path.open("ab", buffering=0)
        try:
            self._lock()
            self._read()
            _sync_folder(folder)
        except BaseException:
            self._file.close()
            raise

    def _lock(self) -> None:
        """The lock goes with the process, however it ends."""
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            raise LadderError(
                f"{self.path} is being written by another ladder; wait for it or stop it."
            ) from None

    def _read(self) -> None:
        data = self.path.read_bytes()
        whole = data.rfind(b"\n") + 1
        for number, line in enumerate(data[:whole].splitlines(), start=1):
            self._keep(_decode(line, self.path, number))
        if whole < len(data):
            torn = len(data) - whole
            self.torn = f"{self.path.name}: dropped a torn last line of {torn} bytes; its cell runs again."
            os.truncate(self.path, whole)

    def append(self, record: CellRecord) -> None:
        """Writes one record and waits until the disk has it; a record that does not fit leaves no trace.

        Raises:
            LadderError: the disk is full.
        """
        handle = self._file.fileno()
        end = os.fstat(handle).st_size
        line = memoryview(msgspec.json.encode(record) + b"\n")
        with writing(self.path, self.path.parent):
            try:
                while line:
                    line = line[os.write(handle, line) :]
                os.fsync(handle)
            except OSError:
                os.ftruncate(handle, end)
                raise
        self._keep(record)

    def _keep(self, record: CellRecord) -> None:
        self._records[record.cell.id] = record

    def get(self, cell_id: str) -> CellRecord | None:
        return self._records.get(cell_id)

    @property
    def records(self) -> list[CellRecord]:
        """One record a cell, in the order in which the cells were first finished."""
        return list(self._records.values())

    def close(self) -> None:
        self._file.close()


def _decode(line: bytes, path: Path, number: int) -> CellRecord:
    try:
        return msgspec.json.decode(line, type=CellRecord)
    except msgspec.DecodeError as error:
        raise LadderError(
            f"{path}, line {number} is damaged ({error}); only a torn last line can be dropped."
        ) from None


def read_records(folder: Path) -> list[CellRecord]:
    """The records of a results folder without opening it for writing; a torn last line is left out."""
    path = folder / NAME
    if not path.exists():
        raise LadderError(f"{folder} is not a results folder: it holds no {NAME}.")
    data = path.read_bytes()
    whole = data[: data.rfind(b"\n") + 1]
    records = (_decode(line, path, number) for number, line in enumerate(whole.splitlines(), start=1))
    return list({record.cell.id: record for record in records}.values())


def _sync_folder(folder: Path) -> None:
    """Makes the journal's own name durable."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
