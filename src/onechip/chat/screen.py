"""What comes of an answer -> the terminal, as it arrives; or, piped, the answer alone."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn

from onechip.chat.answer import Piece

_DIM, _PLAIN = "\x1b[2m", "\x1b[0m"
_CONTROL = {code: None for code in (*range(32), *range(127, 160)) if chr(code) not in "\n\t"}
"""A model must not move the cursor, or tell the terminal anything else."""


class Screen:
    """Text is only ever added, never drawn again: nothing flickers, and all of it can be scrolled back to.

    Attributes:
        talks: a person sits at it; else stdout gets answers and nothing more.
    """

    def __init__(self, *, talks: bool) -> None:
        self.talks = talks
        self._dims = talks and sys.stdout.isatty() and "NO_COLOR" not in os.environ
        self._kind = ""
        self._at_line_start = True

    def show(self, piece: Piece, thoughts: bool) -> None:
        """A bit of an answer; `thoughts` says whether those are shown."""
        if piece.kind == "thought" and not (thoughts and self.talks):
            return
        text = piece.text
        if piece.kind != self._kind:
            if self._kind:
                self._write("\n" if self._at_line_start else "\n\n")
            text = text.lstrip("\n") if piece.kind == "text" and self._kind else text
            self._kind = piece.kind
        self._write(text, dim=piece.kind == "thought")

    def calls(self, calls: list[dict[str, Any]]) -> None:
        """An answer's calls; piped, a line of JSON each."""
        self.end_line()
        for call in calls:
            name, arguments = call["function"]["name"], call["function"]["arguments"]
            if self.talks:
                self._write(f"calls {name} {_pretty(arguments)}\n")
            else:
                self._write(json.dumps({"name": name, "arguments": _value(arguments)}) + "\n")

    def say(self, text: str) -> None:
        """Something that is not the model's, for a person."""
        if self.talks:
            self.end_line()
            self._write(f"{text}\n", dim=True)

    def end_line(self) -> None:
        """What comes next begins a line, and is no part of the answer."""
        self._kind = ""
        if not self._at_line_start:
            self._write("\n")

    def _write(self, text: str, dim: bool = False) -> None:
        if not text:
            return
        self._at_line_start = text.endswith("\n")
        if self.talks:
            text = text.translate(_CONTROL)
        sys.stdout.write(f"{_DIM}{text}{_PLAIN}" if dim and self._dims else text)
        sys.stdout.flush()


@contextmanager
def loading_bar() -> Iterator[Callable[[str, float], None]]:
    """A bar on stderr, if that is a terminal, as what to call with (stage, share from 0 to 1)."""
    columns = (TextColumn("{task.description}", markup=False), BarColumn(), TaskProgressColumn())
    bars = Progress(*columns, console=Console(stderr=True), transient=True)
    task = bars.add_task("starting", total=1.0)
    with ExitStack() as drawn:

        def show(stage: str, share: float) -> None:
            if (
                bars.console.is_terminal and not bars.live.is_started
            ):  # not for a server that is ready at once
                drawn.enter_context(bars)
            bars.update(task, description=stage, completed=share)

        yield show


def _value(arguments: str) -> Any:
    try:
        return json.loads(arguments)
    except ValueError:
        return arguments


def _pretty(arguments: str) -> str:
    found = _value(arguments)
    return found if isinstance(found, str) else json.dumps(found, indent=2, ensure_ascii=False)
