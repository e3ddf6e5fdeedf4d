"""Browsers: which pages are told that they may ask, and which bodies are taken for JSON."""

from __future__ import annotations

import json

import pytest

from onechip.config import ServeConfig
from tests.server.scripted import CHAT, HI, error_of, model, running, wait_until

PREFLIGHT = {
    "Access_Control_Request_Method": "POST",
    "Access_Control_Request_Headers": "authorization,content-type,x-stainless-lang",
}
"""What a browser asks before it sends what the openai package sends."""

NEAR = [
    "http://localhost:3000", "https://app.localhost", "http://127.0.0.1:8080", "http://[::1]:5173",
    "http://tauri.localhost", "app://obsidian.md", "vscode-webview://1f2e", "http://nas:3000",
]  # fmt: skip
FAR = [
    "https://example.com",
    "http://localhost.example.com",
    "http://127.0.0.1.example.com",
    "null",
    "http://[",
]


@pytest.mark.parametrize("origin", NEAR)
def test_pages_of_this_machine_may_ask(client, origin) -> None:
    with client.send("OPTIONS", CHAT, Origin=origin, Host="nas:8000", **PREFLIGHT) as response:
        assert response.status == 200
        assert response.headers["Access-Control-Allow-Origin"] == "*"
        assert "POST" in response.headers["Access-Control-Allow-Methods"]
        assert response.headers["Access-Control-Allow-Headers"] == PREFLIGHT["Access_Control_Request_Headers"]
    for path, status in (("/v1/models", 200), ("/nowhere", 404)):  # errors are read too
        with client.send("GET", path, Origin=origin, Host="nas:8000") as response:
            assert (response.status, response.headers["Access-Control-Allow-Origin"]) == (status, "*")
    with client.send("POST", CHAT, HI | {"stream": True}, Origin=origin, Host="nas:8000") as response:
        assert (response.status, response.headers["Access-Control-Allow-Origin"]) == (200, "*")
        assert b"[DONE]" in response.read()


@pytest.mark.parametrize("origin", FAR)
def test_other_pages_are_told_nothing(client, engine, origin) -> None:
    with client.send("OPTIONS", CHAT, Origin=origin, Host="nas:8000", **PREFLIGHT) as response:
        assert (response.status, response.headers["Access-Control-Allow-Origin"]) == (405, None)
    with client.send("GET", "/v1/models", Origin=origin, Host="nas:8000") as response:
        assert (response.status, response.headers["Access-Control-Allow-Origin"]) == (200, None)
    for kind in ("", "text/plain", "application/x-www-form-urlencoded"):  # for these, browsers do not ask
        body = json.dumps(HI).encode()
        error_of(client.ask("POST", CHAT, body, Origin=origin, Content_Type=kind), 415)
    assert engine.requests == []


@pytest.mark.parametrize("name", ["evil.example", "evil.example.", "EVIL.example", "local.evil.example"])
def test_a_public_name_that_was_pointed_here_gets_no_answer(client, engine, name) -> None:
    """DNS rebinding: the browser takes the server for the page's own, and asks as it likes."""
    page = {"Origin": f"http://{name.lower()}:8000", "Host": f"{name}:8000"}
    said = error_of(client.ask("POST", CHAT, HI, **page), 403, "permission_error")["message"]
    assert "evil.example" in said
    assert "--api-key" in said
    assert client.ask("POST", "/api/chat", HI | {"model": "acorn"}, **page) == (403, {"error": said})
    with client.send("OPTIONS", CHAT, **page, **PREFLIGHT) as response:
        assert (response.status, response.headers["Access-Control-Allow-Origin"]) == (403, None)
    assert engine.requests == []


@pytest.mark.parametrize(
    "origin",
    [
        "https://evil.example",
        "http://nas.local",
        "http://192.168.1.7:8000",
        "http://[fd00::1]:8000",
        "http://nas",
    ],
)
def test_names_that_no_stranger_can_have_are_answered(client, origin) -> None:
    host = origin.partition("//")[2]
    assert client.ask("POST", CHAT, HI, Origin=origin, Host=host)[0] == 200


def test_programs_may_call_the_server_what_they_like(client) -> None:
    assert client.ask("POST", CHAT, HI, Host="gpu.example.com")[0] == 200


def test_with_a_key_any_page_may_ask_and_reads_that_the_key_is_wrong(engine) -> None:
    config = ServeConfig(api_key="secret")
    with running(config, lambda progress: model(engine)) as (client, service):
        wait_until(lambda: service.state == "ready")
        page = {"Origin": "https://example.com"}
        with client.send("OPTIONS", CHAT, **page, **PREFLIGHT) as response:
            assert (response.status, response.headers["Access-Control-Allow-Origin"]) == (200, "*")
        for key, status in (("wrong", 401), ("secret", 200)):
            with client.send("GET", "/v1/models", Authorization=f"Bearer {key}", **page) as response:
                assert (response.status, response.headers["Access-Control-Allow-Origin"]) == (status, "*")


@pytest.mark.parametrize("kind", ["", "application/x-www-form-urlencoded", "application/octet-stream"])
@pytest.mark.parametrize("path", [CHAT, "/api/chat", "/v1/messages"])
def test_what_programs_send_is_read_as_json(client, path, kind) -> None:
    """litellm sends Ollama's requests without a Content-Type, or with aiohttp's for bytes; `curl -d`, with
    which Ollama's documentation asks, says that it is a form.
    """
    body = HI | {"model": "acorn", "stream": False} | ({"max_tokens": 5} if path == "/v1/messages" else {})
    assert client.ask("POST", path, json.dumps(body).encode(), Content_Type=kind)[0] == 200
