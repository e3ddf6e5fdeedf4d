"""What an engine can do is found by asking it."""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Iterator
from typing import Any, cast
from zlib import crc32

import pytest
from msgspec.structs import replace

from onechip.errors import EngineError, LadderError
from onechip.ladder import prompts, recipes
from onechip.ladder.checkpoint import TokenCounter
from onechip.ladder.probe import probe
from onechip.ladder.target import Target
from tests.ladder.mock_engine import Behaviour, MockEngine, running, serving

ALL = ("ignore_eos", "continuous_usage_stats", "chat_template_kwargs", "tools", "ids", "tokenize")


def test_an_engine_that_can_do_everything() -> None:
    with running(Behaviour(usage="each", per_event=3, context=777)) as engine:
        target = Target("127.0.0.1", engine.port)
        features = probe(target, "acorn")
        assert features.model == "mock"
        assert features.context == 777
        assert all(
            getattr(features, name) for name in ("usage", "counts", "token_ids", "ignore_eos", "tokenize")
        )
        assert features.thinking_off
        assert features.tools
        assert not features.calls
        assert (features.limit, features.fixed) == ("max_tokens", "ignore_eos")
        assert features.fields(9, fixed=True) == {
            "model": "mock",
            "max_tokens": 9,
            "temperature": 0,
            "stream": True,
            "stream_options": {"include_usage": True, "continuous_usage_stats": True},
            "ignore_eos": True,
        }
        recipe = recipes.find(target, features, None)
        assert (recipe.way, recipe.overhead) == ("ids", 1)


@pytest.mark.parametrize("missing", ALL)
def test_each_thing_that_an_engine_may_lack(missing: str) -> None:
    names = {"continuous_usage_stats": "counts", "chat_template_kwargs": "thinking_off", "ids": "token_ids"}
    features = tuple(name for name in ALL if name != missing)
    with running(Behaviour(usage="each", per_event=3, features=features)) as engine:
        found = probe(Target("127.0.0.1", engine.port), "mock")
    assert {name for name in ALL if not getattr(found, names.get(name, name))} == {missing}
    assert found.fixed == (None if missing == "ignore_eos" else "ignore_eos")


@pytest.mark.parametrize("hold", ["min_tokens", "generation_config"])
def test_other_fields_that_hold_an_answer_to_a_length(hold: str) -> None:
    with running(Behaviour(features=("ids", hold))) as engine:
        found = probe(Target("127.0.0.1", engine.port), "mock")
    assert found.ignore_eos
    fields = found.fields(9, fixed=True)
    assert {"min_tokens": 9, "generation_config": '{"min_new_tokens": 9, "max_new_tokens": 9}'}[
        hold
    ] == fields[hold]
    assert hold not in found.fields(9, fixed=False)


def test_an_engine_that_reads_only_the_newer_limit() -> None:
    with running(Behaviour(limits=("max_completion_tokens",))) as engine:
        found = probe(Target("127.0.0.1", engine.port), "mock")
    assert found.limit == "max_completion_tokens"
    assert found.fields(9, fixed=True)["max_completion_tokens"] == 9
    assert "max_tokens" not in found.fields(9, fixed=True)
    assert found.ignore_eos


def test_an_engine_that_obeys_no_limit() -> None:
    with running(Behaviour(limits=())) as engine:
        found = probe(Target("127.0.0.1", engine.port), "mock")
    assert (found.limit, found.fixed) == (None, None)
    assert found.fields(9, fixed=True)["max_tokens"] == 9


def test_a_tool_call_that_comes_back() -> None:
    with running(Behaviour(tools=("place_order", {"item": "salad", "count": 8}))) as engine:
        found = probe(Target("127.0.0.1", engine.port), "mock")
    assert found.tools
    assert found.calls
    assert (found.cached, found.greedy, found.seed, found.logprobs) == (True, True, True, False)


def test_an_engine_that_breaks_while_it_is_asked_is_not_taken_for_a_poor_one() -> None:
    with (
        running(Behaviour(fault="refuse", faulty_from=5)) as engine,
        pytest.raises(EngineError, match="stopped answering while it was asked what it can do: HTTP 500"),
    ):
        probe(Target("127.0.0.1", engine.port), "mock")


def test_ignore_eos_that_is_taken_but_not_obeyed() -> None:
    with running(Behaviour(answer="only four words here")) as engine:
        assert not probe(Target("127.0.0.1", engine.port), "mock").ignore_eos


def test_prompts_by_usage_where_there_is_no_tokenizer() -> None:
    with running(Behaviour(features=("ignore_eos",))) as engine:
        target = Target("127.0.0.1", engine.port)
        recipe = recipes.find(target, probe(target, "mock"), None)
        assert (recipe.way, recipe.overhead) == ("text", 1)
        assert len(prompts.make(recipe, 50, "a").fields["prompt"].split()) == 50


class Counter:
    """A tokenizer beside the engine's: one token a word, but for `wrong` more."""

    def __init__(self, wrong: int = 0) -> None:
        self.wrong = wrong

    def encode(self, text: str) -> list[int]:
        return [0] * (len(text.split()) + self.wrong)


def test_a_known_tokenizer_saves_two_requests_a_word() -> None:
    with running(Behaviour(features=("ignore_eos",))) as engine:
        target = Target("127.0.0.1", engine.port)
        features = probe(target, "mock")
        before = len(engine.behaviour.requests)
        recipe = recipes.find(target, features, cast(TokenCounter, Counter(wrong=5)))
        assert len(engine.behaviour.requests) - before == 3
        assert (recipe.way, recipe.overhead) == ("text", 1)
        assert len(recipe.words) > 48
        assert len(prompts.make(recipe, 50, "a").fields["prompt"].split()) == 50


class Bos(MockEngine):
    """Puts a BOS of its own before prompts of these kinds, whatever they begin with."""

    kinds: tuple[type, ...] = (list,)

    def usage(self, prompt: list[Any]) -> dict[str, Any]:
        found = super().usage(prompt)
        found["prompt_tokens"] += isinstance(self.behaviour.requests[-1].get("prompt"), self.kinds)
        return found


class Begun(Counter):
    """A tokenizer whose texts begin with a BOS."""

    def encode(self, text: str) -> list[int]:
        return [1, *(crc32(word.encode()) for word in text.split())]


def test_an_engine_that_puts_its_own_bos_before_token_ids_gets_none_of_ours() -> None:
    with serving(Bos(Behaviour())) as engine:
        target = Target("127.0.0.1", engine.port)
        features = replace(probe(target, "mock"), token_ids=True)
        recipe = recipes.find(target, features, cast(TokenCounter, Begun()))
    assert recipe.way == "ids"
    assert 1 not in recipe.first_ids
    assert len(prompts.make(recipe, 20, "a").fields["prompt"]) == 19


def test_an_engine_that_counts_ids_otherwise_is_given_text() -> None:
    """Our tokenizer knows no BOS that could be left out."""
    with serving(Bos(Behaviour())) as engine:
        target = Target("127.0.0.1", engine.port)
        recipe = recipes.find(target, replace(probe(target, "mock"), token_ids=True), None)
    assert (recipe.way, recipe.overhead) == ("text", 1)


def test_an_engine_that_counts_every_prompt_otherwise_has_no_sweep() -> None:
    """Its usage of a long prompt is one more than of a short one."""

    class Odd(MockEngine):
        def usage(self, prompt: list[Any]) -> dict[str, Any]:
            return super().usage(prompt) | {"prompt_tokens": len(prompt) + (8 < len(prompt) < 40)}

    with serving(Odd(Behaviour(features=("ignore_eos", "ids")))) as engine:
        target = Target("127.0.0.1", engine.port)
        features = probe(target, "mock")
        with pytest.raises(LadderError, match="counts 21 tokens in a prompt that was made to have 20"):
            recipes.find(target, replace(features, completions=False), None)


def test_no_way_to_know_a_prompt_s_length() -> None:
    with running(Behaviour(usage="none", features=("ignore_eos",))) as engine:
        target = Target("127.0.0.1", engine.port)
        features = probe(target, "mock")
        with pytest.raises(LadderError, match="reports no usage and takes no token ids"):
            recipes.find(target, features, None)


@pytest.mark.parametrize(
    "models",
    [{"data": "x"}, {"data": [None, 5]}, {"data": [{"id": 5}]}, [], 7],
)
def test_a_list_of_models_in_another_shape(models: Any) -> None:
    with (
        running(Behaviour(models=models)) as engine,
        pytest.raises(EngineError, match=r"/v1/models answers in another shape than OpenAI's API: Expected"),
    ):
        probe(Target("127.0.0.1", engine.port), "mock")


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        (
            b"HTTP/1.1 200 OK\r\ncontent-type: text/html\r\ncontent-length: 4\r\n\r\n<ht>",
            "with text/html that is",
        ),
        (b"HTTP/1.1 404 No\r\ncontent-length: 0\r\n\r\n", "answers with HTTP 404: is an OpenAI"),
        (b"HTTP/1.1 401 No\r\ncontent-length: 0\r\n\r\n", r"wants an API key \(HTTP 401\)"),
        (b'HTTP/1.1 200 OK\r\ncontent-length: 11\r\n\r\n{"data":[]}', "lists no model"),
        (b"HTTP/1.1 200 OK\r\ncontent-length: -7\r\n\r\n", "content-length is '-7'"),
        (
            b"SSH-2.0-OpenSSH_9.9\r\n\r\n",
            "cannot be asked: the answer does not start with an HTTP status line",
        ),
        (b"\xff\xfe", r"cannot be asked: the connection was lost: closed by the server after b'.xff.xfe'"),
        (b"", "cannot be asked: the connection was lost: closed by the server"),
    ],
)
def test_something_else_there(answer: bytes, said: str) -> None:
    with answering(answer) as port, pytest.raises(EngineError, match=said):
        probe(Target("127.0.0.1", port), "mock")


@contextlib.contextmanager
def answering(answer: bytes) -> Iterator[int]:
    """A server that gives every connection this answer and closes it; its port."""

    def serve() -> None:
        with contextlib.suppress(OSError):
            while True:
                connection = listener.accept()[0]
                connection.recv(65536)
                connection.sendall(answer)
                connection.close()

    with socket.create_server(("127.0.0.1", 0)) as listener:
        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        yield listener.getsockname()[1]
        listener.shutdown(socket.SHUT_RDWR)
        thread.join(5)


def test_nobody_there() -> None:
    refused = r"cannot be asked: nothing listens there \(connection refused\)"
    with socket.socket() as mute:
        mute.bind(("127.0.0.1", 0))  # so that nobody else can listen there
        with pytest.raises(EngineError, match=refused):
            probe(Target("127.0.0.1", mute.getsockname()[1]), "mock")
    # No name at all, so that no name server is asked, which may take its time.
    with pytest.raises(EngineError, match="cannot be asked: its name is not known"):
        probe(Target("two words", 80), "mock")


def test_an_engine_that_refuses_all() -> None:
    with (
        running(Behaviour(fault="refuse")) as engine,
        pytest.raises(EngineError, match="the engine is unwell"),
    ):
        probe(Target("127.0.0.1", engine.port), "mock")
