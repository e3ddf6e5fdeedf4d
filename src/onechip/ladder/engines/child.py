"""A program that an installation runs: it and all that it starts end with it, even if that is killed."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
from collections.abc import Iterator, Mapping, Sequence

from onechip.ladder.engines.process import LEASH


@contextlib.contextmanager
def child(command: Sequence[str], environment: Mapping[str, str]) -> Iterator[subprocess.Popen[str]]:
    """Runs a program in a group of its own, its output and errors as one text to be read to the end.

    When the block is left the group is killed, so that an interrupt leaves nothing that would still write
    into a folder which the next installation empties. `returncode` is set then.
    """
    process = subprocess.Popen(
        list(command),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
        env=dict(environment),
        start_new_session=True,
    )
    leash = subprocess.Popen(
        ["sh", "-c", LEASH, str(process.pid)], stdin=subprocess.PIPE, start_new_session=True
    )
    try:
        yield process
        process.wait()
    finally:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        leash.kill()
        leash.wait()
        for pipe in (process.stdout, leash.stdin):
            if pipe is not None:
                pipe.close()
