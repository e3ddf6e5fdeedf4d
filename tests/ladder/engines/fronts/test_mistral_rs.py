"""The front of mistral.rs over a scripted binding, spoken to over HTTP."""

from __future__ import annotations

import http.client
import importlib.util
import json
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

import onechip.ladder.engines

FRONT = Path(onechip.ladder.engines.__file__).parent / "fronts" / "mistral_rs.py"


def chunk(content: str | None = None, finish: str | None = None, **more: Any) -> SimpleNamespace:
    delta = SimpleNamespace(
        content=content, reasoning_content=more.get("reasoning"), tool_calls=more.get("calls")
    )
    return SimpleNamespace(
        choices=[SimpleNamespace(delta=delta, finish_reason=finish)], usage=more.get("usage")
    )


USAGE = SimpleNamespace(prompt_tokens=7, completion_tokens=3, total_tokens=10)
CALL = SimpleNamespace(id="c1", function=SimpleNamespace(name="get_time", arguments='{"city":"Oslo"}'))


class Runner:
    """Answers with `script`; two requests in `send` at once fail as the binding's do."""

    def __init__(self, **options: Any) -> None:
        self.options = options
        self.requests: list[dict[str, Any]] = []
        self.script: list[Any] = []
        self._busy = False

    def max_sequence_length(self) -> int:
        return 4096

    def send_chat_completion_request(self, request: dict[str, Any]) -> Iterator[Any]:
        if self._busy:
            raise RuntimeError("Already borrowed")
        self._busy = True
        time.sleep(0.01)
        self.requests.append(request)
        self._busy = False
        return self._chunks(list(self.script))

    @staticmethod
    def _chunks(script: list[Any]) -> Iterator[Any]:
        for step in script:
            if isinstance(step, Exception):
                raise step
            yield step


@pytest.fixture
def runner(monkeypatch: pytest.MonkeyPatch) -> Iterator[Runner]:
    """The binding's runner behind a front that listens; `runner.port` says where."""
    binding: Any = ModuleType("mistralrs")
    binding.Runner = Runner
    binding.ModelDType = SimpleNamespace(BF16="bf16", F16="f16", F32="f32")
    binding.MultimodalArchitecture = SimpleNamespace(Gemma4="gemma4")
    binding.Which = SimpleNamespace(
        MultimodalPlain=lambda *a, **k: ("plain", a, k), GGUF=lambda *a, **k: ("gguf", a, k)
    )
    binding.ChatCompletionRequest = dict
    monkeypatch.setitem(sys.modules, "mistralrs", binding)
    spec = importlib.util.spec_from_file_location("mistral_front", FRONT)
    assert spec is not None
    assert spec.loader is not None
    front: Any = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(front)
    options = SimpleNamespace(
        model="/x/acorn", alias="acorn", dtype="f32", requests=5, projector=None, config=None
    )
    front.Handler.engine = front.Mistral(options)
    server = front.Server(("127.0.0.1", 0), front.Handler)
    thread = threading.Thread(target=server.serve_forever, args=(0.02,))
    thread.start()
    made: Any = front.Handler.engine.runner
    made.port = server.server_address[1]
    yield made
    server.shutdown()
    server.server_close()
    thread.join()


def ask(runner: Any, path: str, body: dict[str, Any] | None = None) -> tuple[int, bytes]:
    connection = http.client.HTTPConnection("127.0.0.1", runner.port, timeout=60)
    try:
        connection.request(
            "GET" if body is None else "POST", path, None if body is None else json.dumps(body)
        )
        answer = connection.getresponse()
        return answer.status, answer.read()
    finally:
        connection.close()


def chat(runner: Any, **fields: Any) -> tuple[int, Any]:
    body = {"model": "acorn", "messages": [{"role": "user", "content": "Hi"}], "max_tokens": 3} | fields
    status, content = ask(runner, "/v1/chat/completions", body)
    if not body.get("stream") or status != 200:
        return status, json.loads(content)
    lines = [line.removeprefix("data: ") for line in content.decode().split("\n\n") if line]
    assert lines.pop() == "[DONE]"
    return status, [json.loads(line) for line in lines]


def test_the_model_is_listed_with_its_context(runner: Any) -> None:
    assert ask(runner, "/health")[0] == 200
    listed = json.loads(ask(runner, "/v1/models")[1])["data"]
    assert [(entry["id"], entry["max_model_len"]) for entry in listed] == [("acorn", 4096)]
    assert runner.options["max_seqs"] == 5
    assert runner.options["prefix_cache_n"] == 0


def test_a_chunk_becomes_an_event_and_usage_comes_last(runner: Any) -> None:
    runner.script = [chunk("a"), chunk(), chunk("é"), chunk(finish="stop", usage=USAGE)]
    _, events = chat(runner, stream=True, stream_options={"include_usage": True}, ignore_eos=True)
    assert [e["choices"][0]["delta"] for e in events[:-1]] == [
        {"content": "a"},
        {"content": ""},
        {"content": "é"},
        {},
    ]
    assert events[-2]["choices"][0]["finish_reason"] == "stop"
    assert events[-1] == events[-1] | {
        "choices": [],
        "usage": {"prompt_tokens": 7, "completion_tokens": 3, "total_tokens": 10},
    }
    (request,) = runner.requests
    assert request["max_tokens"] == 3
    assert request["ignore_eos"] is True
    assert request["enable_thinking"] is False


def test_an_answer_that_is_no_stream_is_joined(runner: Any) -> None:
    runner.script = [
        chunk(reasoning="so "),
        chunk(reasoning="be it"),
        chunk("4"),
        chunk("2", "stop", usage=USAGE),
    ]
    _, answer = chat(runner, chat_template_kwargs={"enable_thinking": True})
    message = answer["choices"][0]["message"]
    assert message == {"role": "assistant", "content": "42", "reasoning_content": "so be it"}
    assert answer["choices"][0]["finish_reason"] == "stop"
    assert answer["usage"]["completion_tokens"] == 3
    assert runner.requests[0]["enable_thinking"] is True


def test_tool_calls_go_both_ways(runner: Any) -> None:
    tool = {"type": "function", "function": {"name": "get_time"}}
    runner.script = [chunk(finish="tool_calls", calls=[CALL], usage=USAGE)]
    _, events = chat(runner, stream=True, tools=[tool])
    (call,) = events[0]["choices"][0]["delta"]["tool_calls"]
    assert call["function"] == {"name": "get_time", "arguments": '{"city":"Oslo"}'}
    assert [json.loads(schema) for schema in runner.requests[0]["tool_schemas"]] == [tool]


@pytest.mark.parametrize(
    ("fields", "name"),
    [
        ({"seed": 1}, "seed"),
        ({"stream_options": {"continuous_usage_stats": True}}, "stream_options.continuous_usage_stats"),
        ({"chat_template_kwargs": {"x": 1}}, "chat_template_kwargs.x"),
    ],
)
def test_what_the_binding_lacks_is_refused_by_name(runner: Any, fields: dict[str, Any], name: str) -> None:
    status, answer = chat(runner, **fields)
    assert status == 400
    assert answer["error"]["message"].startswith(name)
    assert runner.requests == []


def test_completions_are_not_offered(runner: Any) -> None:
    status, content = ask(runner, "/v1/completions", {"prompt": "Hi"})
    assert status == 404
    assert b"chat only" in content


def test_an_error_before_the_first_token_is_a_status_and_later_an_event(runner: Any) -> None:
    runner.script = [ValueError("no memory")]
    status, answer = chat(runner, stream=True)
    assert (status, answer["error"]["message"]) == (500, "no memory")
    runner.script = [chunk("a"), ValueError("no memory")]
    status, events = chat(runner, stream=True)
    assert status == 200
    assert events[-1]["error"]["message"] == "no memory"


def test_requests_that_come_at_once_are_all_answered(runner: Any) -> None:
    runner.script = [chunk("a", "length", usage=USAGE)]
    with ThreadPoolExecutor(8) as pool:
        found = list(pool.map(lambda _: chat(runner)[0], range(8)))
    assert found == [200] * 8
