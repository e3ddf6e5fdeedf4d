"""The ladder's side of the sampler: an engine's process id in, what a stretch of work took out."""

from __future__ import annotations

import contextlib
import json
import select
import subprocess
import sys
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")
ANSWER_S = 10.0
"""A sampler that takes longer to answer is given up: without its figures a cell is as good as with them."""


class Meter:
    """A sampler for one engine, from its spawning to its end.

    Attributes:
        device_before: bytes that were taken on the GPUs before the engine was spawned, None where unknown.
    """

    def __init__(self, pid: int, device_before: int | None) -> None:
        self.device_before = device_before
        # A session of its own: Ctrl-C is for the ladder, which ends the sampler by closing its input.
        self._process: subprocess.Popen[bytes] | None = subprocess.Popen(
            [sys.executable, "-m", "onechip.ladder.meters.sampler", str(pid)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
            bufsize=0,
        )
        if self._answer() is None:
            self.close()

    def begin(self) -> None:
        """What is read from now on counts."""
        self._ask(b"begin\n")

    def end(self) -> dict[str, float]:
        """What the work since `begin` took (Sampler.end); empty if the sampler does not answer any more.

        Device memory is what the GPUs hold more than before the engine was spawned.
        """
        found = self._ask(b"end\n")
        device = found.pop("device_peak_bytes", None)
        if device is not None and self.device_before is not None:
            found["device_peak_bytes"] = max(0.0, device - self.device_before)
        return found

    def close(self) -> None:
        """Ends the sampler."""
        process, self._process = self._process, None
        if process is None:
            return
        for pipe in (process.stdin, process.stdout):
            if pipe is not None:
                pipe.close()
        try:
            process.wait(1.0)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()

    def _ask(self, line: bytes) -> dict[str, float]:
        if self._process is None:
            return {}
        with contextlib.suppress(OSError):
            assert self._process.stdin is not None
            self._process.stdin.write(line)
            answer = self._answer()
            if answer is not None:
                return answer
        self.close()
        return {}

    def _answer(self) -> dict[str, float] | None:
        """One line of the sampler's; None if none came in time."""
        assert self._process is not None
        assert self._process.stdout is not None
        if not select.select([self._process.stdout], [], [], ANSWER_S)[0]:
            return None
        with contextlib.suppress(ValueError):
            found: dict[str, float] = json.loads(self._process.stdout.readline())
            return found
        return None


def metered(meter: Meter | None, work: Callable[[], T]) -> tuple[T, dict[str, float]]:
    """Does some work; returns what it returns, and what it took (Meter.end)."""
    if meter is None:
        return work(), {}
    meter.begin()
    done = work()
    return done, meter.end()
