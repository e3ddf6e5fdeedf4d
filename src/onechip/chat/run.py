"""`onechip chat`: a configuration in, a conversation in the terminal; or, piped, one answer."""

from __future__ import annotations

import io
import os
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

from onechip.chat import commands
from onechip.chat.child import END_S, Child, served
from onechip.chat.conversation import Conversation
from onechip.chat.ctrl_c import CtrlC
from onechip.chat.screen import Screen, loading_bar
from onechip.chat.server import Server
from onechip.chat.settings import Settings
from onechip.config import ChatConfig
from onechip.errors import EngineError, OnechipError, UsageError

HISTORY_LINES = 1000


def chat(config: ChatConfig, settings: Settings) -> None:
    """Talk until the person leaves, or answer what is piped in.

    Raises:
        UsageError, CheckpointError, CapacityError, EngineError: there is no server to talk to, or, piped, it
            does not answer.
    """
    for stream in (sys.stdin, sys.stdout):
        assert isinstance(stream, io.TextIOWrapper)
        stream.reconfigure(errors="replace")  # a model may write half a surrogate pair, a file hold anything
    talks = sys.stdin.isatty()
    question = "" if talks else sys.stdin.read().strip()
    if not talks and not question:
        raise UsageError("Nothing was piped in: echo QUESTION | onechip chat")
    with _server(config) as server:
        model = config.model if config.model and config.url else server.model()
        screen = Screen(talks=talks)
        ctrl_c = CtrlC()
        conversation = Conversation(server, model, settings, screen, ctrl_c)
        try:
            if talks:
                screen.say(f"{model} at {server.url}. /help says what there is, Ctrl-D leaves.")
                with ctrl_c.held(), _line_editing(config.cache_dir / "chat_history"):
                    talk(conversation, screen, ctrl_c)
            else:
                conversation.ask(question)
        except BrokenPipeError:  # whoever reads the answer has read enough
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


@contextmanager
def _server(config: ChatConfig) -> Iterator[Server]:
    """The server that was named, or one of our own, when it is ready."""
    with ExitStack() as stack:
        child = None if config.url else stack.enter_context(served(config.model or "acorn"))
        url = child.url if child else config.url or ""
        server = Server(url, config.api_key, proxies=child is None)
        stack.callback(server.close)
        with loading_bar() as show:
            _wait(server, child, show)
        yield server


def _wait(server: Server, child: Child | None, show: Callable[[str, float], None]) -> None:
    """Until a server that is loading is ready; others are taken as they are."""
    try:
        while (state := server.readiness()) is not None and state.status != "ready":
            if state.status != "loading":
                raise EngineError(state.message)
            show(state.stage, state.progress)
            time.sleep(0.1)
    except EngineError:
        if child is not None:
            child.check(END_S)  # it knows better why
        raise


def talk(conversation: Conversation, screen: Screen, ctrl_c: CtrlC) -> None:
    """Read and answer until the person leaves; to be called where Ctrl-C is held."""

    def read(prompt: str) -> str:
        with ctrl_c.may_come():
            return input(prompt)

    def read_result(name: str) -> str:
        return read(f"result of {name}: ")

    while True:
        try:
            line = _read_message(read)
            if not line.strip():
                continue
            if line.startswith("/") and not line.startswith("//"):
                if not commands.run(line, conversation, screen, read_result):
                    return
            else:
                conversation.ask(line[line.startswith("//") :], read_result)
        except EOFError:
            screen.say("")
            return
        except KeyboardInterrupt:
            screen.say("\nCtrl-D or /exit leaves.")
        except OnechipError as error:
            screen.say(error.message)


def _read_message(read: Callable[[str], str]) -> str:
    """A line, or what stands between two lines with three quotation marks."""
    line = read("> ")
    if not line.startswith('"""'):
        return line
    lines = [line[3:]]
    while not lines[-1].rstrip().endswith('"""'):
        lines.append(read(". "))
    return "\n".join(lines).rstrip().removesuffix('"""').strip("\n")


@contextmanager
def _line_editing(history: Path) -> Iterator[None]:
    """Editing and history of lines; the history is kept between two chats, for its owner's eyes only."""
    try:
        import readline
    except ImportError:  # some Pythons are built without it
        yield
        return
    readline.set_history_length(HISTORY_LINES)
    with suppress(OSError):
        readline.read_history_file(history)
    try:
        yield
    finally:
        with suppress(OSError):
            history.parent.mkdir(parents=True, exist_ok=True)
            history.touch(0o600)
            readline.write_history_file(history)
