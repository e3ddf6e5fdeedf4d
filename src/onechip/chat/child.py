"""A model's name -> the address of an `onechip serve` that lives as long as the chat does."""

from __future__ import annotations

import re
import signal
import subprocess
import sys
import threading
import time
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager

from onechip.errors import EngineError

START_S = 60.0
"""Until the port is open; loading the model comes after that."""
END_S = 15.0

_LEASH = "cat >/dev/null; kill -TERM $0 2>/dev/null"
"""A shell that ends the server once the chat, which holds the other end of its input, is gone."""


class Child:
    """A server process of our own.

    Attributes:
        url: where it listens.
    """

    def __init__(self, model: str) -> None:
        """Start it; its port is not open yet."""
        # In a session of its own, since the Ctrl-C that ends an answer is not meant for it.
        self._process = subprocess.Popen(
            [sys.executable, "-m", "onechip.cli", "serve", model, "--port", "0"],
            stdin=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
            errors="replace",
            start_new_session=True,
        )
        self._leash = subprocess.Popen(
            ["sh", "-c", _LEASH, str(self._process.pid)], stdin=subprocess.PIPE, start_new_session=True
        )
        self._log: deque[str] = deque(maxlen=100)
        self._found = threading.Event()
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()
        self.url = ""

    def wait_for_port(self) -> None:
        """Until `url` is known. Raises EngineError if the process ends before, or takes too long."""
        end = time.monotonic() + START_S
        while not self._found.wait(0.05):
            self.check()
            if time.monotonic() > end:
                raise EngineError(f"onechip serve did not open its port within {START_S:.0f} s.")

    def check(self, patience_s: float = 0.0) -> None:
        """Raises EngineError, with the process's own last sentence and exit code, if it has ended.

        Args:
            patience_s: how long it may take to do so.
        """
        try:
            code = self._process.wait(patience_s)
        except subprocess.TimeoutExpired:
            return
        self._reader.join(END_S)
        said = [line.removeprefix("onechip: ") for line in self._log if line.startswith("onechip: ")]
        error = EngineError(said[-1] if said else f"onechip serve ended with code {code}.", log=self._log)
        error.exit_code = code if code > 0 else error.exit_code
        raise error

    def end(self) -> None:
        """End the process, at the latest after END_S."""
        if self._process.poll() is None:
            self._process.send_signal(signal.SIGINT)
        try:
            self._process.wait(END_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._leash.kill()
        self._leash.wait()
        self._reader.join(1)
        assert self._leash.stdin is not None
        self._leash.stdin.close()

    def _read(self) -> None:
        assert self._process.stderr is not None
        with self._process.stderr as lines:
            for line in lines:
                self._log.append(line.rstrip("\n"))
                listening = re.match(r"Listening on (\S+);", line)
                if listening:
                    self.url = listening[1]
                    self._found.set()


@contextmanager
def served(model: str) -> Iterator[Child]:
    """A server of `model`, whose port is open and which may still be loading; ended on leaving."""
    child = Child(model)
    try:
        child.wait_for_port()
        yield child
    finally:
        child.end()
