"""Ports on this machine: a port in, who listens on it out, so that nobody else's server is ever measured."""

from __future__ import annotations

import contextlib
import os
import re
import socket
from typing import Any, NamedTuple

import psutil

from onechip.errors import EngineError

HOST = "127.0.0.1"
IN_USE = re.compile(r"address (is )?already in use|address in use|EADDRINUSE", re.IGNORECASE)
"""How programs say that their port is taken."""


class Listener(NamedTuple):
    """A process that accepts connections; `created` tells it from a later one with the same number."""

    pid: int
    created: float


class PortTakenError(EngineError):
    """Another program listens where an engine was told to; another port may do."""


def free_port() -> int:
    """A port on 127.0.0.1 that nobody listens on."""
    with socket.socket() as probe:
        probe.bind((HOST, 0))
        return int(probe.getsockname()[1])


def is_open(port: int) -> bool:
    """Whether somebody accepts connections there."""
    with contextlib.suppress(OSError), socket.create_connection((HOST, port), 1):
        return True
    return False


def listeners(leader: int, port: int) -> frozenset[Listener]:
    """A process and its children, as far as they listen there: a quick look, in milliseconds."""
    found: set[Listener] = set()
    with contextlib.suppress(psutil.Error):
        root = psutil.Process(leader)
        for process in (root, *root.children(recursive=True)):
            with contextlib.suppress(psutil.Error):
                if any(_at(seen, port) for seen in process.net_connections(kind="tcp")):
                    found.add(Listener(process.pid, process.create_time()))
    return frozenset(found)


def open_ports(leader: int) -> list[int]:
    """Where a process and its children listen, as far as we may see it."""
    found: set[int] = set()
    with contextlib.suppress(psutil.Error):
        root = psutil.Process(leader)
        for process in (root, *root.children(recursive=True)):
            found |= {at.laddr.port for at in process.net_connections(kind="tcp") if _is_open(at)}
    return sorted(found)


def stranger(port: int, leader: int) -> str | None:
    """Who listens on a port without belonging to an engine: name and process id; None if nobody does.

    Args:
        leader: process id of the engine's first process. All processes of its session, and all of its
            children, are the engine.
    """
    for pid in _listeners(port):
        if pid is None:
            return "a process of another user"
        if not _belongs(pid, leader):
            with contextlib.suppress(psutil.Error):
                return f"{psutil.Process(pid).name()}, process {pid}"
    return None


def _listeners(port: int) -> set[int | None]:
    """Process ids; None stands for one that we may not see. Empty where the system does not tell."""
    try:
        found = psutil.net_connections(kind="tcp")
    except (psutil.Error, OSError):
        return set()
    return {connection.pid for connection in found if _at(connection, port)}


def _at(connection: Any, port: int) -> bool:
    return _is_open(connection) and connection.laddr.port == port


def _is_open(connection: Any) -> bool:
    return connection.status == psutil.CONN_LISTEN and bool(connection.laddr)


def _belongs(pid: int, leader: int) -> bool:
    with contextlib.suppress(OSError):
        if os.getsid(pid) == leader:
            return True
    with contextlib.suppress(psutil.Error):
        return leader in {pid, *(parent.pid for parent in psutil.Process(pid).parents())}
    return False
