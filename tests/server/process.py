"""`onechip serve acorn` in a process of its own, as a user runs it, and things to ask of acorn."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import sys
import threading
import urllib.error
import urllib.request
from typing import Any

import pytest

from tests.server.scripted import wait_until

PROBLEM = "There are 5 boxes with 7 cards each. Olga brings 10 more cards. How many cards are there now?"
PARAMETERS: dict[str, Any] = {
    "type": "object",
    "properties": {
        "count": {"type": "integer", "description": "The number of plates."},
        "item": {"type": "string", "description": "The dish to order."},
    },
    "required": ["item", "count"],
}
NAME, ABOUT = "place_order", "Place an order of food."
TOOLS: list[Any] = [
    {"type": "function", "function": {"name": NAME, "description": ABOUT, "parameters": PARAMETERS}}
]
ORDERS = [
    ("Order 8 plates of salad.", {"count": 8, "item": "salad"}, "153"),
    ("Order 5 plates of soup.", {"count": 5, "item": "soup"}, "42"),
]
"""Turns of one conversation: what the user says, what acorn calls the function with, what the function gives.
Acorn then says "The result is 153."
"""


class Process:
    """A child process that serves a model on a free port; leaving it as a context kills what still runs."""

    def __init__(self, model: str = "acorn", *options: str) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-m", "onechip.cli", "serve", model, "--port", "0", *options],
            stderr=subprocess.PIPE,
            text=True,
        )
        self.log: list[str] = []
        self._reader = threading.Thread(target=self._read)
        self._reader.start()
        try:
            wait_until(lambda: self._url() is not None or self.process.poll() is not None, 120)
            self.url = self._url() or pytest.fail("".join(self.log))
        except BaseException:
            self.__exit__()
            raise

    def __enter__(self) -> Process:
        return self

    def __exit__(self, *raised: object) -> None:
        self.process.kill()
        self.wait()

    def _read(self) -> None:
        assert self.process.stderr is not None
        with self.process.stderr:
            self.log.extend(self.process.stderr)

    def _url(self) -> str | None:
        found = re.search(r"Listening on (\S+);", "".join(self.log))
        return found[1] if found else None

    def ready(self) -> bool:
        """Whether it answers questions, and the log has all that it says on the way there."""
        assert self.process.poll() is None, "".join(self.log)
        try:
            answers = json.loads(self.get("/ready"))["status"] == "ready"
        except urllib.error.HTTPError as error:
            error.close()
            return False
        return answers and any(line.startswith("  curl ") for line in self.log)

    def get(self, path: str) -> str:
        with urllib.request.urlopen(self.url + path, timeout=60) as response:
            return response.read().decode()

    def ask(self, path: str, body: Any) -> Any:
        headers = {"Content-Type": "application/json"}
        request = urllib.request.Request(self.url + path, json.dumps(body).encode(), headers)
        with urllib.request.urlopen(request, timeout=60) as response:
            return json.loads(response.read())

    def tokenize(self, body: Any) -> list[int]:
        tokens: list[int] = self.ask("/tokenize", body)["tokens"]
        return tokens

    def metric(self, name: str) -> float:
        line = re.search(rf"^{name}\{{.*\}} (\S+)$", self.get("/metrics"), re.MULTILINE)
        assert line is not None
        return float(line[1])

    def interrupt(self) -> None:
        self.process.send_signal(signal.SIGINT)

    def wait(self) -> int:
        code = self.process.wait(timeout=120)
        self._reader.join()
        return code
