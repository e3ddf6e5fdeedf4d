"""`onechip serve`: a configuration in; a process that listens at once, loads, serves, drains on Ctrl-C."""

from __future__ import annotations

import asyncio
import os
import socket
from functools import partial
from types import FrameType

import uvicorn

from onechip.config import ServeConfig
from onechip.engine.types import Progress
from onechip.errors import UsageError
from onechip.server.app import create_app
from onechip.server.service import Model, Service
from onechip.server.terminal import Terminal
from onechip.server.upgrade import RefusedUpgrade
from onechip.server.work import end_if_busy

DRAIN_S = 600.0
"""How long running requests may take after the first Ctrl-C."""

FAREWELL_S = 5
"""How long clients have to read the end of their answers when the engine has stopped."""

KEEP_ALIVE_S = 75
"""Idle connections are kept longer than clients keep them, so that a client never writes to a closed one."""


def serve(config: ServeConfig) -> None:
    """Serve until stopped.

    Raises:
        UsageError, CheckpointError, CapacityError, EngineError: it cannot start, or could not go on.
    """
    terminal = Terminal(config)
    listener = _listen(config)
    host, port = listener.getsockname()[:2]
    url = f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"
    service = Service(config, partial(load_model, config), terminal.progress)
    server = _Server(service, terminal, url)
    terminal.started(url)
    try:
        server.run(sockets=[listener])
    finally:
        terminal.close()
    if service.error is not None:
        raise service.error
    terminal.say("Stopped.")
    end_if_busy()


def load_model(config: ServeConfig, progress: Progress) -> Model:
    """Everything between the name of a model and an engine that is ready; blocks.

    Raises:
        UsageError, CheckpointError, CapacityError: see errors.py.
    """
    progress("starting", 0.0)
    # Imported here, in the thread that loads: JAX takes seconds, and the port shall answer meanwhile.
    from onechip.engine.core import Engine
    from onechip.engine.guides.grammar import Grammars
    from onechip.models.config import read_config
    from onechip.models.generation import GenerationDefaults
    from onechip.models.served_template import served_template
    from onechip.models.source import resolve_model
    from onechip.server.facts import Facts

    folder = resolve_model(config.model)
    model_config = read_config(folder)
    template, note = served_template(folder, model_config, config.chat_template)  # quick to refuse: first
    defaults = GenerationDefaults.load(folder)
    facts = Facts.read(folder)
    engine = Engine.load(config.engine(folder), progress)
    grammars = Grammars(engine.tokenizer, model_config.vocab)
    longest = model_config.max_position
    return Model(engine, engine.tokenizer, template, defaults, longest, facts, grammars, note)


def _listen(config: ServeConfig) -> socket.socket:
    """A socket that listens, so that a port in use is known before anything is loaded."""
    try:
        found = socket.getaddrinfo(config.host, config.port, type=socket.SOCK_STREAM)
        # A name may have several addresses; clients that say 127.0.0.1 shall find "localhost" too.
        family, _, _, _, address = min(found, key=lambda info: info[0] != socket.AF_INET)
        listener = socket.socket(family, socket.SOCK_STREAM)
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(address)
        listener.listen(2048)
    except OSError as error:
        reason = error.strerror or str(error)
        raise UsageError(
            f"Cannot listen on {config.host}:{config.port}: {reason}; try another --host or --port."
        ) from None
    return listener


class _Server(uvicorn.Server):
    """uvicorn, with a first Ctrl-C that drains and a second that stops."""

    def __init__(self, service: Service, terminal: Terminal, url: str) -> None:
        super().__init__(
            uvicorn.Config(
                create_app(service, self._on_loaded),
                ws=RefusedUpgrade,
                log_level="warning",
                access_log=False,
                timeout_keep_alive=KEEP_ALIVE_S,
                timeout_graceful_shutdown=FAREWELL_S,
                server_header=False,
            )
        )
        self.url = url
        self._service = service
        self._terminal = terminal
        self._ending: asyncio.Task[None] | None = None

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """Ctrl-C or SIGTERM, in the main thread, wherever it is."""
        if self._service.state == "loading":
            # The thread that loads may be inside a compiler for minutes and cannot be interrupted.
            self._terminal.close()
            self._terminal.say("Stopped while loading.")
            os._exit(130)
        self._service.loop.call_soon_threadsafe(self._on_signal)

    def _on_signal(self) -> None:
        if self._ending is None:
            self._ending = asyncio.create_task(self._drain())
        else:
            self._terminal.say("Stopping at once.")
            self._ending = asyncio.create_task(self._stop())

    async def _drain(self) -> None:
        """Let running requests finish, then stop."""
        running = self._service.running
        if running:
            self._terminal.say(f"Finishing {running} running requests; Ctrl-C again stops at once.")
        left = await asyncio.to_thread(self._service.drain, DRAIN_S)
        if left and not self.should_exit:
            self._terminal.say(f"{left} requests were not finished after {DRAIN_S:.0f} s.")
        await self._stop()

    async def _stop(self) -> None:
        """End the engine, and with it what still runs: its clients get an error."""
        await asyncio.to_thread(self._service.stop)
        self.should_exit = True

    def _on_loaded(self) -> None:
        if self._service.error is not None:
            self.should_exit = True
            return
        model = self._service.model()
        if model.note:
            self._terminal.say(model.note)
        self._terminal.ready(self.url, model.engine.description, chats=model.template is not None)
