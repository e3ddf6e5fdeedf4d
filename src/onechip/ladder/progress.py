"""A ladder while it runs: its folder, manifest, journal and screen, and how much time it has left."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from pathlib import Path

from onechip.errors import LadderError
from onechip.ladder import manifest as manifests
from onechip.ladder.canary import Canary
from onechip.ladder.checkpoint import TokenCounter
from onechip.ladder.journal import Journal
from onechip.ladder.manifest import Manifest
from onechip.ladder.plan import Plan
from onechip.ladder.records import Cell, CellRecord
from onechip.ladder.screen import Screen


@dataclass
class Progress:
    """What all arms of a ladder share.

    Attributes:
        counter: the checkpoint's own tokenizer, None where unknown.
        api_key: for arms by URL.
        retry_invalid: invalid cells count as not measured.
        bird: the canary of the chip that engines run on; None where it cannot be asked beside them.
    """

    folder: Path
    manifest: Manifest
    journal: Journal
    screen: Screen
    counter: TokenCounter | None
    api_key: str | None
    retry_invalid: bool
    bird: Canary | None
    _end_s: float = field(init=False)

    def __post_init__(self) -> None:
        self._end_s = time.monotonic() + self.plan.limits.ladder_s

    @property
    def plan(self) -> Plan:
        return self.manifest.plan

    def pending(self, cell: Cell) -> bool:
        """Whether a cell is still to be measured."""
        record = self.journal.get(cell.id)
        return record is None or (self.retry_invalid and bool(record.invalid))

    def finished(self, record: CellRecord, number: int, total: int) -> None:
        """Keeps a cell, and shows it."""
        self.journal.append(record)
        self.screen.finished(record, number, total)

    def check_deadline(self) -> None:
        """Raises LadderError once the ladder's deadline has passed."""
        if time.monotonic() > self._end_s:
            raise LadderError(
                f"The ladder's deadline of {self.plan.limits.ladder_s:.0f} s has passed; what was"
                f" measured is kept. Go on with: onechip ladder resume {self.folder}"
            )

    def save(self) -> None:
        manifests.save(self.manifest, self.folder)
