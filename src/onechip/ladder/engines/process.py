"""One engine process: a Launch in, a server that is ready out, with the seconds that it took.

The process has a group of its own, and a leash: however the ladder ends, even by kill -9, no engine is left
behind to disturb what runs next.
"""

from __future__ import annotations

import contextlib
import os
import re
import signal
import subprocess
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from onechip.errors import EngineError
from onechip.ladder.client import fetch
from onechip.ladder.disk import writing
from onechip.ladder.engines import memory
from onechip.ladder.engines.engine import Launch
from onechip.ladder.engines.port import HOST, IN_USE, PortTakenError, is_open, listeners, open_ports, stranger
from onechip.ladder.meters import Meter, tpu
from onechip.ladder.meters.tree import proportional_bytes
from onechip.ladder.pin import bound
from onechip.ladder.served import KeyWantedError
from onechip.ladder.target import Target

POLL_S = 0.02
"""How finely the stretches of a start are measured."""
TELL_S, TELL_AGAIN_S = 10.0, 1.0
"""After what time of a start it is said what is waited for, and how often."""
MOST_PORTS = 2
STOP = ((signal.SIGINT, 5.0), (signal.SIGTERM, 15.0))
"""Signals and how long each may take. What a shell started in its background may be deaf to the first."""
LOG_LINES = 12
"""Of an engine's log, in a report."""
LOG_BYTES = 64_000
EXCEPTION = re.compile(r"\b[A-Z]\w*(?:Error|Exception): .+")
MOST_EXCEPTIONS = 4
NOISE = re.compile(r" - (?:leaked|\.\.\. skipped)|nanobind: |See https://nanobind")
"""Bindings made with nanobind list hundreds of objects whenever Python ends; vLLM has several of these."""
ESCAPE = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)|[@-Z\\-_])")
"""Colours, cursor moves and titles of terminals (ECMA-48)."""
NOBODY = 0
"""Of no process: an engine that is not running owns no port."""
GATE = 'read go && exec "$@"'
"""A shell that becomes the engine once it is told to; if the ladder dies before that, it never does."""
LEASH = "cat >/dev/null; kill -KILL -$0"
"""A shell that kills the engine's group once the ladder, which holds the other end of its input, is gone."""


def telling(text: str) -> tuple[str, ...]:
    """The last LOG_LINES lines of a log; before them the last exceptions, where these lie further back.

    An engine of several processes writes much about its orderly end after the reason for it. Colours are
    left out, and of a line that was drawn again and again only the last state is kept.
    """
    drawn = (line.rstrip().rpartition("\r")[2] for line in ESCAPE.sub("", text).split("\n"))
    lines = [line[:400] for line in drawn if line.strip() and not NOISE.match(line)]
    last, earlier = lines[-LOG_LINES:], lines[:-LOG_LINES]
    said = "\n".join(last)
    found = {match[0]: line for line in earlier if (match := EXCEPTION.search(line)) and match[0] not in said}
    before = list(found.values())[-MOST_EXCEPTIONS:]
    return (*before, *last[len(before) :])


class EngineProcess:
    """Attributes: launch, log (stdout and stderr of all starts, appended), target, meter (while it runs),
    cores (that it is bound to; empty: as the ladder)."""

    def __init__(self, launch: Launch, port: int, log: Path, cores: Sequence[int] = ()) -> None:
        self.launch = launch
        self.log = log
        self.cores = tuple(cores)
        self.target = Target(HOST, port)
        self.meter: Meter | None = None
        self._spawned_s = 0.0
        self._log_from = 0
        self._before: memory.Taken | None = None
        self._process: subprocess.Popen[bytes] | None = None
        self._leash: subprocess.Popen[bytes] | None = None

    def spawn(self) -> None:
        """Starts the process, on its leash before it does anything.

        Raises:
            PortTakenError: another program listens on the port already.
            LadderError: the disk is full.
        """
        if is_open(self.target.port):
            other = stranger(self.target.port, NOBODY) or "another program"
            raise PortTakenError(f"port {self.target.port} was taken by {other}.")
        self._before = memory.taken()
        with writing(self.log, self.log.parent.parent), self.log.open("ab", buffering=0) as log:
            log.write(f"--- {' '.join(self.launch.command)}\n".encode())
            self._log_from = log.tell()
            with bound(self.cores):
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
        self.meter = Meter(self._process.pid, self._before.device)
        self.meter.begin()
        self._spawned_s = time.perf_counter()
        assert self._process.stdin is not None
        self._process.stdin.write(b"go\n")
        self._process.stdin.close()

    def wait_ready(
        self, first_token: Callable[[], bool], limit_s: float, waiting: Callable[[str], None]
    ) -> dict[str, float]:
        """Waits for the port, for health, for the first real token.

        Args:
            waiting: told what is waited for, about once a second from TELL_S on.

        Returns:
            CellRecord.measured of job start: the stretches in seconds.

        Raises:
            PortTakenError: somebody else answers on the port, or the engine ended because it is in use.
            EngineError: the process died or was not ready in time; with the last lines of its log.
        """
        end = self._spawned_s + limit_s
        port = self._until(lambda: is_open(self.target.port), end, "opened its port", waiting)
        # The whole search takes longer than some engines need to become healthy: it comes after the clock.
        if not listeners(self.pid, self.target.port):
            self._own_port()
        healthy = self._until(self._healthy, end, f"answered {self.launch.health} with 200", waiting)
        token = self._until(first_token, end, "sent a first token", waiting)
        self._own_port()
        return {
            "spawn_to_port_s": port - self._spawned_s,
            "port_to_healthy_s": healthy - port,
            "healthy_to_token_s": token - healthy,
            "total_s": token - self._spawned_s,
        }

    def _own_port(self) -> None:
        """Whoever answers must be this engine: a server of somebody else's is not measured."""
        other = stranger(self.target.port, self.pid)
        if other is not None:
            raise PortTakenError(
                f"port {self.target.port} was taken by {other} while the engine started.",
                log=self.last_lines(),
            )

    @property
    def pid(self) -> int:
        """Of the first process of its group."""
        assert self._process is not None
        return self._process.pid

    def _until(
        self, reached: Callable[[], bool], end_s: float, what: str, waiting: Callable[[str], None]
    ) -> float:
        told_s = self._spawned_s + TELL_S
        while not reached():
            if time.perf_counter() > told_s:
                told_s = time.perf_counter() + TELL_AGAIN_S
                most = f"{end_s - self._spawned_s:.0f} s at most"
                waiting(f"waiting until it has {what}{self._elsewhere()}, {most}")
            if not self.alive:
                log = self.last_lines()
                kind = PortTakenError if IN_USE.search("\n".join(log)) else EngineError
                raise kind(f"the engine {self.obituary()} before it {what}.", log=log)
            if time.perf_counter() > end_s:
                seconds = end_s - self._spawned_s
                raise EngineError(
                    f"the engine had not {what} {seconds:.0f} s after it was spawned.", log=self.last_lines()
                )
            time.sleep(POLL_S)
        return time.perf_counter()

    def _elsewhere(self) -> str:
        """Where it listens instead, as long as it does not listen on the ladder's port."""
        if is_open(self.target.port):
            return ""
        ports = open_ports(self.pid)
        # An engine of several processes has many for itself, which would say nothing.
        listed = f" (it listens on {', '.join(map(str, ports))})" if 0 < len(ports) <= MOST_PORTS else ""
        return f" {self.target.port}{listed}"

    def _healthy(self) -> bool:
        with contextlib.suppress(OSError, ValueError):
            status = fetch(self.target, self.launch.health, timeout_s=5).head.status
            if status == 401:
                raise KeyWantedError(self.target, status)
            return status == 200
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
        """How the process ended: "exited with code 7", "was killed by SIGKILL"."""
        code = None if self._process is None else self._process.returncode
        killed = code is not None and code < 0
        return (
            f"was killed by {signal.Signals(-code).name}" if code and killed else f"exited with code {code}"
        )

    def last_lines(self) -> tuple[str, ...]:
        """The lines that say most of what it wrote last in this start."""
        with contextlib.suppress(OSError), self.log.open("rb") as log:
            end = log.seek(0, os.SEEK_END)
            log.seek(max(self._log_from, end - LOG_BYTES))
            return telling(log.read().decode("utf-8", "replace"))
        return ()

    def resident_bytes(self) -> int | None:
        """Memory of the process tree now, shared pages by share; None if it cannot be read."""
        return None if self._process is None else proportional_bytes(self._process.pid)

    def device_bytes(self) -> int | None:
        """What GPUs hold more than before it was spawned, or TPUs hold; None where none of them says."""
        before, now = None if self._before is None else self._before.device, memory.device_bytes()
        return tpu.used_bytes() if before is None or now is None else max(0, now - before)

    def stop(self) -> str | None:
        """Asks the group to end, kills it, and waits for its memory; a note if that did not come back."""
        if self._process is None or self._before is None:
            return None
        held = self.resident_bytes() or 0
        for number, wait_s in STOP:
            self._signal(number)
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._process.wait(wait_s)
                break
        self._signal(signal.SIGKILL)
        self._process.wait()
        self._drop_leash()
        if self.meter is not None:
            self.meter.close()
        return memory.missing(self._before, held)

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
