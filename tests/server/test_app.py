"""Paths, states, keys and unusable requests: each gets its status and OpenAI's error body."""

from __future__ import annotations

import gzip
import http.client
import json
import threading
from typing import Any

import pytest

import onechip
from onechip.config import ServeConfig
from onechip.errors import CheckpointError
from onechip.server.app import MAX_BODY_BYTES
from tests.server.scripted import CHAT, HI, TOKENIZER, ScriptedEngine, error_of, model, running, wait_until


def test_while_loading_only_health_and_ready_answer(engine) -> None:
    told, go = threading.Event(), threading.Event()

    def load(progress):
        progress("compiling", 0.5)
        told.set()
        assert go.wait(60)
        return model(engine)

    with running(ServeConfig(), load) as (client, _):
        assert told.wait(60)
        assert client.ask("GET", "/health")[0] == 200
        assert client.ask("GET", "/version") == (200, {"version": onechip.__version__})
        status, ready = client.ask("GET", "/ready")
        assert (status, ready["status"], ready["stage"], ready["progress"]) == (
            503,
            "loading",
            "compiling",
            0.5,
        )
        for method, path, body in (
            ("POST", CHAT, HI),
            ("GET", "/v1/models", None),
            ("POST", "/tokenize", {}),
        ):
            with client.send(method, path, body) as response:
                assert (response.status, response.headers["Retry-After"]) == (503, "5")
            error = error_of(client.ask(method, path, body), 503, "server_error")
            assert "loading (compiling, 50%)" in error["message"]
        with client.send("GET", "/metrics") as response:
            assert response.status == 200
        go.set()
        wait_until(lambda: client.ask("GET", "/ready")[0] == 200)
        assert client.ask("POST", CHAT, HI)[0] == 200


def test_a_model_that_can_not_be_loaded_is_reported() -> None:
    def load(progress):
        raise CheckpointError("No such folder.")

    with running(ServeConfig(), load) as (client, service):
        wait_until(lambda: service.state == "failed")
        status, health = client.ask("GET", "/health")
        assert (status, health["status"]) == (503, "failed")
        assert "No such folder." in health["message"]
        error_of(client.ask("POST", CHAT, HI), 503, "server_error")


def test_a_failed_engine_is_unhealthy(client, engine) -> None:
    engine.failed = "device lost"
    status, health = client.ask("GET", "/health")
    assert status == 503
    assert "device lost" in health["message"]
    assert "device lost" in error_of(client.ask("POST", CHAT, HI), 503, "server_error")["message"]


def test_models(client) -> None:
    status, models = client.ask("GET", "/v1/models")
    assert (status, models["object"]) == (200, "list")
    card = models["data"][0]
    assert (card["id"], card["object"], card["max_model_len"]) == ("acorn", "model", ScriptedEngine.context)
    assert client.ask("GET", "/v1/models/acorn") == (200, card)
    error = error_of(client.ask("GET", "/v1/models/gpt-9"), 404, "not_found_error")
    assert error["code"] == "model_not_found"
    assert "'acorn'" in error["message"]
    error = error_of(client.ask("POST", CHAT, HI | {"model": "gpt-9"}), 404, "not_found_error")
    assert error["param"] == "model"


def test_unusable_requests(client) -> None:
    assert "/nowhere" in error_of(client.ask("GET", "/nowhere"), 404, "not_found_error")["message"]
    with client.send("GET", CHAT) as response:
        assert response.headers["Allow"] == "POST"
    assert "GET" in error_of(client.ask("GET", CHAT), 405)["message"]
    assert "not JSON" in error_of(client.ask("POST", CHAT, b"{"), 400)["message"]
    assert "[1]" in error_of(client.ask("POST", CHAT, [1]), 400)["message"]
    page = {"Origin": "http://localhost", "Content_Type": "multipart/form-data; boundary=x"}
    assert page["Content_Type"] in error_of(client.ask("POST", CHAT, b"a=b", **page), 415)["message"]
    large = b" " * (MAX_BODY_BYTES + 1)
    assert "larger than 32 MiB" in error_of(client.ask("POST", CHAT, large), 413)["message"]


@pytest.mark.parametrize("encoding", ["gzip", "br", "Zstd"])
def test_compressed_bodies_are_refused_by_name(client, encoding) -> None:
    reply = client.ask("POST", CHAT, gzip.compress(json.dumps(HI).encode()), Content_Encoding=encoding)
    assert f"Content-Encoding: {encoding.lower()}" in error_of(reply, 415)["message"]
    assert client.ask("POST", CHAT, HI, Content_Encoding="identity")[0] == 200


def test_the_connection_goes_on_after_an_error_or_says_that_it_ends(client, engine, monkeypatch) -> None:
    def fail(*args: Any) -> None:
        raise ZeroDivisionError

    monkeypatch.setattr("onechip.server.replies.Readiness", fail)
    json_type = {"Content-Type": "application/json"}
    connection = http.client.HTTPConnection("127.0.0.1", client.port, timeout=60)
    connection.connect()
    first = connection.sock
    for method, path, body, headers, status in (
        ("POST", CHAT, b"[" * 5000, json_type, 400),
        ("GET", "/nowhere", None, {}, 404),
        ("GET", CHAT, None, {}, 405),
        ("POST", CHAT, b" " * (MAX_BODY_BYTES + 1), json_type, 413),
        ("POST", CHAT, b" " * 200_000, {"Content-Type": "text/plain", "Origin": "http://localhost"}, 415),
        ("GET", "/ready", None, {}, 500),
    ):
        connection.request(method, path, body, headers)
        response = connection.getresponse()
        response.read()
        assert response.status == status
        assert response.headers["Connection"] == ("close" if status == 500 else None)
        assert connection.sock is (None if status == 500 else first)  # http.client drops it when told to
    connection.request("GET", "/health")
    with connection.getresponse() as response:
        assert response.status == 200
    connection.close()


def test_the_key_is_needed_for_v1_only(engine) -> None:
    with running(ServeConfig(api_key="sésame"), lambda progress: model(engine)) as (client, service):
        wait_until(lambda: service.state == "ready")
        for headers in ({}, {"Authorization": "Bearer wrong"}, {"Authorization": "Basic s\xc3\xa9same"}):
            error = error_of(client.ask("GET", "/v1/models", **headers), 401, "authentication_error")
            assert error["code"] == "invalid_api_key"
        for path in ("/health", "/ready"):
            assert client.ask("GET", path)[0] == 200
        assert client.ask("GET", "/v1/models", Authorization="Bearer s\xc3\xa9same")[0] == 200


def test_tokenize_and_detokenize(client) -> None:
    status, reply = client.ask("POST", "/tokenize", {"prompt": "Tom has 12", "return_token_strs": True})
    assert (status, reply["tokens"][0], reply["token_strs"][0]) == (200, 2, "<bos>")
    assert (reply["count"], reply["max_model_len"]) == (len(reply["tokens"]), ScriptedEngine.context)
    plain = client.ask("POST", "/tokenize", {"prompt": "Tom has 12", "add_special_tokens": False})[1]
    assert plain["tokens"] == reply["tokens"][1:]
    assert plain["token_strs"] is None
    assert client.ask("POST", "/detokenize", {"tokens": reply["tokens"]}) == (
        200,
        {"prompt": "<bos>Tom has 12", "content": "<bos>Tom has 12"},
    )
    content = client.ask("POST", "/tokenize", {"content": "Tom has 12"})[1]
    assert content["tokens"] == plain["tokens"]
    assert (
        client.ask("POST", "/tokenize", {"content": "Tom has 12", "add_special": True})[1]["tokens"]
        == reply["tokens"]
    )
    error_of(client.ask("POST", "/tokenize", {"content": "a", "prompt": "a"}), 400)
    stranger = client.ask("POST", "/detokenize", {"tokens": [2, TOKENIZER.vocab_size]})
    assert "the vocabulary ends at 2047" in error_of(stranger, 400)["message"]
    chat = client.ask("POST", "/tokenize", HI)[1]
    text = client.ask("POST", "/detokenize", {"tokens": chat["tokens"]})[1]["prompt"]
    assert text == "<bos><|turn>user\nHi<turn|>\n<|turn>model\n"
    open_end = client.ask("POST", "/tokenize", HI | {"add_generation_prompt": False})[1]
    assert chat["tokens"][: open_end["count"]] == open_end["tokens"]
    assert error_of(client.ask("POST", "/tokenize", {}), 400)["param"] == "prompt"
    assert error_of(client.ask("POST", "/tokenize", HI | {"prompt": "a"}), 400)["param"] == "prompt"
    assert error_of(client.ask("POST", "/detokenize", {"tokens": [-1]}), 400)["param"] == "tokens[0]"


def test_a_bug_is_a_500_without_a_traceback(client, server, monkeypatch) -> None:
    def fail(*args: Any) -> None:
        raise ZeroDivisionError

    monkeypatch.setattr("onechip.server.replies.Readiness", fail)
    assert "log" in error_of(client.ask("GET", "/ready"), 500, "server_error")["message"]


@pytest.mark.parametrize("path", ["/health", "/metrics", "/v1/models"])
def test_gets_take_no_post(client, path) -> None:
    error_of(client.ask("POST", path, {}), 405)
