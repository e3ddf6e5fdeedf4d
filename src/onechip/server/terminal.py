"""What `onechip serve` tells the person who started it: the configuration, progress, and how to try it."""

from __future__ import annotations

import time

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeElapsedColumn

from onechip.config import ServeConfig

_QUESTION = "There are 5 boxes with 7 cards each. Olga brings 10 more cards. How many cards are there now?"


class Terminal:
    """Writes to stderr: a moving bar on a terminal, a line for each stage in a log."""

    def __init__(self, config: ServeConfig) -> None:
        self._config = config
        self._console = Console(stderr=True, highlight=False, soft_wrap=True, markup=False)
        self._started = time.monotonic()
        self._stages: set[str] = set()
        self._bar = Progress(
            TextColumn("{task.description}", markup=False),
            BarColumn(),
            TaskProgressColumn(),
            TimeElapsedColumn(),
            console=self._console,
            transient=True,
        )
        self._task = self._bar.add_task("starting", total=1.0)

    def started(self, url: str) -> None:
        """The port is open; the model is not there yet."""
        self.say(f"onechip {self._config.describe()}")
        self.say(f"Listening on {url}; {url}/ready says when the model is loaded.")
        if self._console.is_terminal:
            self._bar.start()

    def progress(self, stage: str, share: float) -> None:
        """Loading is at `stage`, `share` (0 to 1) of the way; may be called from any thread."""
        self._bar.update(self._task, description=stage, completed=share)
        kind = stage.partition(" (")[0]
        if not self._console.is_terminal and kind not in self._stages:
            self._stages.add(kind)
            self.say(f"{share:4.0%} {stage}")

    def ready(self, url: str, description: str, chats: bool) -> None:
        """The model is loaded; `description` says how.

        Args:
            chats: it has a chat template.
        """
        self.close()
        self.say(description)
        seconds = time.monotonic() - self._started
        page = f", a page to chat at {url}/" if chats else ""
        self.say(f"Ready in {seconds:.1f} s: {self._config.model_id} at {url}/v1{page} (Ctrl-C stops). Try:")
        key = " -H 'Authorization: Bearer KEY'" if self._config.api_key else ""
        path, asked = "chat/completions", f'"messages": [{{"role": "user", "content": "{_QUESTION}"}}]'
        if not chats:
            path, asked = "completions", f'"prompt": "{_QUESTION}", "max_tokens": 64'
        self.say(
            f"  curl {url}/v1/{path} -H 'Content-Type: application/json'{key} "
            f"-d '{{{asked}, \"temperature\": 0}}'"
        )

    def say(self, text: str) -> None:
        """One line."""
        self._console.print(text)

    def close(self) -> None:
        """Take the bar away and leave the terminal as it was."""
        if self._console.is_terminal:
            self._bar.stop()
