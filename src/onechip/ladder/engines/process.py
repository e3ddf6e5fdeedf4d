"""One engine process: a Launch in, a server that is ready out, with the seconds that it took.

The process has a group of its own, and a leash: however the ladder ends, even by kill -9, no engine is left
behind to disturb what runs next.
"""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import psutil

from onechip.errors import EngineError
from onechip.ladder.client import fetch
from onechip.ladder.engines.engine import Launch
from onechip.ladder.target import Target

POLL_S = 0.02
"""How finely the stretches of a start are measured."""
STOP_S = 20.0
MEMORY_S = 10.0
MEMORY_SLACK_BYTES = 512 << 20
GATE = 'read go && exec "$@"'
"""A shell that becomes the engine once it is told to; if the ladder dies before that, it never does."""
LEASH = "cat >/dev/null; kill -KILL -$0"
"""A shell that kills the engine's group once the ladder, which holds the other end of its input, is gone."""


class EngineProcess:
    """Attributes: launch, log (stdout and stderr of all starts, appended), target."""

    def __init__(self, launch: Launch, port: int, log: Path) -> None:
        self.launch = launch
        self.log = log
        self.target = Target("127.0.0.1", port)
        self._spawned_s = 0.0
        self._available_before = 0
        self._process: subprocess.Popen[bytes] | None = None
        self._leash: subprocess.Popen[bytes] | None = None

    def spawn(self) -> None:
        """Starts the process, on its leash before it does anything."""
        self._available_before = psutil.virtual_memory().available
        with self.log.open("ab") as log:
            log.write(f"--- {' '.join(self.launch.command)}\n".encode())
            log.flush()
            self._process = subprocess.Popen(
                ["sh", "-c", GATE, "sh", *self.launch.command],
                env=os.environ | self.launch.environment,
                stdin=subprocess.PIPE,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        leash = ["sh", "-c", LEASH, str(self._process.pid)]
        self._leash = subprocess.Popen(leash, stdin=subprocess.PIPE, start_new_session=True)
        self._spawned_s = time.perf_counter()
        assert self._process.stdin is not None
        self._process.stdin.write(b"go\n")
        self._process.stdin.close()

    def wait_ready(self, first_token: Callable[[], bool], limit_s: float) -> dict[str, float]:
        """Waits for the port, for health, for the first real token.

        Returns:
            CellRecord.measured of job start: the stretches in seconds.

        Raises:
            EngineError: the process died or was not ready in time.
        """
        end = self._spawned_s + limit_s
        port = self._until(self._port_open, end, "opened its port")
        healthy = self._until(self._healthy, end, f"answered {self.launch.health} with 200")
        token = self._until(first_token, end, "gave a first token")
        return {
            "spawn_to_port_s": port - self._spawned_s,
            "port_to_healthy_s": healthy - port,
            "healthy_to_token_s": token - healthy,
            "total_s": token - self._spawned_s,
        }

    def _until(self, reached: Callable[[], bool], end_s: float, what: str) -> float:
        while not reached():
            if not self.alive:
                raise EngineError(f"the engine {self.obituary()} before it {what}.")
            if time.perf_counter() > end_s:
                seconds = end_s - self._spawned_s
                raise EngineError(
                    f"the engine had not {what} {seconds:.0f} s after it was spawned. {self._last_words()}"
                )
            time.sleep(POLL_S)
        return time.perf_counter()

    def _port_open(self) -> bool:
        with contextlib.suppress(OSError), socket.create_connection((self.target.host, self.target.port), 1):
            return True
        return False

    def _healthy(self) -> bool:
        with contextlib.suppress(OSError, ValueError):
            return fetch(self.target, self.launch.health, timeout_s=5).head.status == 200
        return False

    @property
    def alive(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def died(self, grace_s: float) -> bool:
        """Whether it is dead, or is so within `grace_s`: its connections break a moment before it is gone."""
        with contextlib.suppress(subprocess.TimeoutExpired):
            if self._process is not None:
                self._process.wait(grace_s)
        return not self.alive

    def obituary(self) -> str:
        """How the process ended and the last lines that it wrote."""
        code = None if self._process is None else self._process.returncode
        how = (
            f"was killed by {signal.Signals(-code).name}" if code and code < 0 else f"exited with code {code}"
        )
        return f"{how} ({self._last_words()})"

    def _last_words(self) -> str:
        lines = self.log.read_bytes()[-4000:].decode("utf-8", "replace").strip().splitlines()[-3:]
        return f"last lines of {self.log}: {' | '.join(line.strip()[:200] for line in lines)}"

    def resident_bytes(self) -> int | None:
        """Memory of the process tree: pages by proportional share where Linux has it, else RSS."""
        total = 0
        try:
            assert self._process is not None
            root = psutil.Process(self._process.pid)
            for process in (root, *root.children(recursive=True)):
                with contextlib.suppress(psutil.NoSuchProcess):
                    total += _memory(process)
        except psutil.Error:
            return None
        return total

    def stop(self) -> str | None:
        """Interrupts, then kills the group, and waits for its memory; a note if that did not come back."""
        if self._process is None:
            return None
        held = self.resident_bytes() or 0
        self._signal(signal.SIGINT)
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(STOP_S)
        self._signal(signal.SIGKILL)
        self._process.wait()
        self._drop_leash()
        return self._memory_note(held)

    def _signal(self, number: signal.Signals) -> None:
        assert self._process is not None
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self._process.pid, number)

    def _drop_leash(self) -> None:
        """The leash goes before the group's number can belong to somebody else."""
        if self._leash is not None:
            self._leash.kill()
            self._leash.wait()
            if self._leash.stdin is not None:
                self._leash.stdin.close()

    def _memory_note(self, held: int) -> str | None:
        """Of what the engine held; more is missing only because others took it."""
        end = time.monotonic() + MEMORY_S
        missing = 0
        while time.monotonic() < end:
            missing = min(held, self._available_before - psutil.virtual_memory().available)
            if missing <= MEMORY_SLACK_BYTES:
                return None
            time.sleep(0.1)
        return f"{missing / 2**30:.1f} GiB of memory had not come back {MEMORY_S:.0f} s after it stopped."


def _memory(process: psutil.Process) -> int:
    try:
        return int(process.memory_full_info().pss)
    except (AttributeError, psutil.AccessDenied):
        return int(process.memory_info().rss)


def free_port() -> int:
    """A port on 127.0.0.1 that nobody listens on."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
