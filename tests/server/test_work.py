"""What answering takes before the engine is asked: where it is done, and what becomes of it at the end."""

from __future__ import annotations

import http.client
import json
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from onechip.engine.guides.grammar import Grammar, Grammars
from onechip.models.chat_template import ChatTemplate
from onechip.models.tokenizer import Tokenizer
from onechip.server.work import LONG_BODY
from tests.server.scripted import CHAT, HI, TOKENIZER, ScriptedEngine, error_of, wait_until

FORMED = HI | {"response_format": {"type": "json_object"}}
TURN = {"role": "user", "content": "Hi"}


class Compiler:
    """Stands in for the compiling of a grammar, which takes until `go`."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.began, self.go = threading.Event(), threading.Event()
        self.count = 0
        compiled = Grammars.json_object

        def slowly(grammars: Grammars, param: str) -> Grammar:
            self.count += 1
            self.began.set()
            assert self.go.wait(120)
            return compiled(grammars, param)

        monkeypatch.setattr(Grammars, "json_object", slowly)


@pytest.mark.parametrize("long", [False, True])
def test_a_long_body_is_worked_on_beside_the_loop(client, monkeypatch, long) -> None:
    threads = []
    render = ChatTemplate.render

    def rendered(*args: Any, **kwargs: Any) -> str:
        threads.append(threading.current_thread().name)
        return render(*args, **kwargs)

    monkeypatch.setattr(ChatTemplate, "render", rendered)
    body = HI | {"metadata": {"label": "x" * LONG_BODY * long}}
    assert client.ask("POST", CHAT, body)[1]["choices"][0]["message"]["content"] == "Hello you"
    assert [name == "onechip-body" for name in threads] == [long]


@pytest.mark.parametrize(
    ("path", "body"),
    [
        (CHAT, {}),
        ("/tokenize", {}),
        ("/v1/messages", {"max_tokens": 5}),
        ("/v1/messages/count_tokens", {}),
        ("/api/chat", {"model": "acorn"}),
    ],
)
def test_more_messages_than_the_context_has_tokens_are_not_rendered(client, monkeypatch, path, body) -> None:
    monkeypatch.delattr(ChatTemplate, "render")
    status, reply = client.ask("POST", path, {"messages": [TURN] * (ScriptedEngine.context + 1), **body})
    said = reply["error"] if path.startswith("/api") else reply["error"]["message"]
    assert status == 400
    assert "201 messages, but the context is 200 tokens" in said


@pytest.mark.parametrize(
    ("path", "body"),
    [
        (CHAT, {"messages": [TURN | {"content": "x" * 4000}]}),
        ("/v1/completions", {"prompt": "x" * 4000}),
        ("/api/generate", {"model": "acorn", "prompt": "x" * 4000, "raw": True}),
    ],
)
def test_a_text_that_no_tokens_make_short_enough_is_not_encoded(client, monkeypatch, path, body) -> None:
    assert TOKENIZER.longest == len("<|tool_response>") == 16
    monkeypatch.delattr(Tokenizer, "encode")
    status, reply = client.ask("POST", path, body)
    said = reply["error"] if path.startswith("/api") else reply["error"]["message"]
    assert status == 400
    assert "the context is 200 tokens" in said
    assert "16 characters at the most" in said


def test_draining_waits_for_what_the_engine_does_not_have_yet(client, server, monkeypatch) -> None:
    service, compiler = server[1], Compiler(monkeypatch)
    with ThreadPoolExecutor() as pool:
        asked = pool.submit(client.ask, "POST", CHAT, FORMED)
        assert compiler.began.wait(60)
        assert service.running == 1
        left = pool.submit(service.drain, 60)
        wait_until(lambda: service.draining)
        assert "shutting down" in error_of(client.ask("POST", CHAT, HI), 503, "server_error")["message"]
        assert not left.done()
        compiler.go.set()
        assert asked.result()[0] == 200
        assert left.result() == 0


def test_what_nobody_waits_for_is_not_begun(client, server, monkeypatch) -> None:
    """Two threads compile; of five clients that hang up, three would have had to wait for one."""
    service, compiler = server[1], Compiler(monkeypatch)
    connections = [http.client.HTTPConnection("127.0.0.1", client.port, timeout=60) for _ in range(5)]
    for connection in connections:
        connection.request("POST", CHAT, json.dumps(FORMED), {"Content-Type": "application/json"})
    wait_until(lambda: (compiler.count, service.running) == (2, 5))
    for connection in connections:
        connection.close()
    wait_until(lambda: service.running == 0)
    compiler.go.set()
    assert client.ask("POST", CHAT, FORMED)[0] == 200
    assert compiler.count == 3


def test_stopping_ends_what_the_engine_does_not_have_yet(client, server, monkeypatch) -> None:
    service, compiler = server[1], Compiler(monkeypatch)
    with ThreadPoolExecutor() as pool:
        asked = pool.submit(client.ask, "POST", CHAT, FORMED)
        assert compiler.began.wait(60)
        service.stop()
        assert "stopped" in error_of(asked.result(), 503, "server_error")["message"]
        assert service.running == 0
        compiler.go.set()


def test_work_that_goes_on_does_not_hold_up_the_end_of_the_process() -> None:
    program = (
        "import asyncio, time\n"
        "from onechip.server.work import GRAMMARS\n"
        "async def main():\n"
        "    try: await asyncio.wait_for(GRAMMARS.run(time.sleep, 600), 0.01)\n"
        "    except TimeoutError: print('given up')\n"
        "asyncio.run(main())\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stdout, done.stderr) == (0, "given up\n", "")


@pytest.mark.parametrize(("seconds", "said"), [(600, ""), (0, "taken down\n")])
def test_a_process_is_not_taken_down_around_a_thread_at_work(seconds: int, said: str) -> None:
    """Python does that step by step, and a library's thread that comes back meanwhile crashes."""
    program = (
        "import asyncio, atexit, threading, time\n"
        "from onechip.server.work import GRAMMARS, end_if_busy\n"
        "atexit.register(print, 'taken down')\n"
        "begun = threading.Event()\n"
        "def work():\n"
        "    begun.set()\n"
        f"    time.sleep({seconds})\n"
        "async def main():\n"
        "    job = asyncio.create_task(GRAMMARS.run(work))\n"
        "    await asyncio.to_thread(begun.wait)\n"
        f"    if not {seconds}: await job\n"
        "asyncio.run(main())\n"
        "end_if_busy()\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stdout, done.stderr) == (0, said, "")


def test_the_package_is_a_command() -> None:
    done = subprocess.run([sys.executable, "-m", "onechip", "--help"], capture_output=True, text=True)
    assert done.returncode == 0
    assert "serve" in done.stdout
