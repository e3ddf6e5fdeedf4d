"""A server in this process, in front of an engine that plays a script, and one in a process of its own."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from onechip.config import ServeConfig
from onechip.server.service import Service
from tests import browser
from tests.browser import Tab
from tests.server.chat_page import visit
from tests.server.process import Process
from tests.server.scripted import Client, ScriptedEngine, model, running, wait_until


@pytest.fixture
def engine() -> ScriptedEngine:
    return ScriptedEngine()


@pytest.fixture
def server(engine: ScriptedEngine) -> Iterator[tuple[Client, Service]]:
    """A server that is ready, in front of `engine`."""
    with running(ServeConfig(), lambda progress: model(engine)) as (client, service):
        wait_until(lambda: service.state == "ready")
        engine.loop = service.loop
        yield client, service


@pytest.fixture
def client(server: tuple[Client, Service]) -> Client:
    return server[0]


@pytest.fixture(scope="session")
def served() -> Iterator[Process]:
    process = Process()
    try:
        wait_until(process.ready, 400)  # a first start compiles
        yield process
    finally:
        process.interrupt()
        code = process.wait()
    assert code == 0, "".join(process.log)


@pytest.fixture(scope="module")
def opened(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Tab]:
    """A page of a real browser, with nothing on it."""
    with browser.started(tmp_path_factory.mktemp("profile")) as found:
        yield found.open_tab()


@pytest.fixture
def tab(opened: Tab, client: Client) -> Tab:
    """The chat page of `client`'s server, ready for a question."""
    return visit(opened, f"http://127.0.0.1:{client.port}/")
