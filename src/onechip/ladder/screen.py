"""What a person sees while a ladder runs: cell records in, a line for each out, and what is at work."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.live import Live
from rich.text import Text

from onechip.ladder.records import Cell, CellRecord
from onechip.ladder.repeats import speed


class Screen:
    """Draws only when it is told to, so that it takes nothing from a measurement on its own account."""

    def __init__(self, console: Console) -> None:
        self.console = console
        self._live = Live(console=console, auto_refresh=False, transient=True)
        self._doing = self._waiting = ""
        self._since = time.monotonic()

    @contextmanager
    def shown(self) -> Iterator[None]:
        if not self.console.is_terminal:
            yield
            return
        with self._live:
            yield

    def say(self, text: str) -> None:
        self.console.print(text, highlight=False, markup=False, soft_wrap=True)

    def doing(self, text: str) -> None:
        self._doing, self._since = text, time.monotonic()
        self.tick()

    def waiting(self, name: str, what: str) -> None:
        """What an arm is waited for: on a terminal with the time that has passed, elsewhere said once."""
        if self._live.is_started:
            if not self._doing.startswith(f"{name}: waiting"):
                self._since = time.monotonic()
            self._doing = f"{name}: {what}"
            self.tick()
        elif what != self._waiting:
            self._waiting = what
            self.say(f"           {what}")

    def tick(self) -> None:
        """Brings the elapsed time up to date."""
        if self._live.is_started:
            seconds = time.monotonic() - self._since
            self._live.update(Text(f"... {self._doing}  {seconds:.0f} s", style="dim"), refresh=True)

    def finished(self, record: CellRecord, number: int, total: int) -> None:
        """One line for a cell."""
        mark = "INVALID" if record.invalid else _figure(record)
        self.say(f"  {number:>3}/{total}  {label(record.cell):<32} {mark}")
        for reason in record.invalid:
            self.say(f"           {reason}")


def label(cell: Cell) -> str:
    """A cell in a few words."""
    if cell.job in ("start", "acc"):
        again = f", repeat {cell.repeat + 1}" if cell.repeat else ""
        return f"{cell.job} {cell.variant}{again}"
    at = f" at {cell.level}" if cell.job == "sweep" else ""
    return f"{cell.job}, {cell.variant}{at}, repeat {cell.repeat + 1}"


def _figure(record: CellRecord) -> str:
    """The figure of a cell that says most."""
    job, requests = record.cell.job, record.requests
    if job == "start":
        resident = record.measured.get("resident_bytes", 0.0) / 2**20
        return f"{record.measured['total_s']:.1f} s to the first token, {resident:.0f} MiB resident"
    if job == "acc":
        return f"{sum(bool(request.extra.get('correct')) for request in requests)} of {len(requests)} right"
    return f"{speed(record) or 0:.1f} tok/s"
