"""Which web pages may ask this server from a browser, and which bodies are JSON although they do not say so.

A browser lets a page read the answers of another server only if that server says so (CORS), and sends it what
the page likes, save for a few plain kinds of bodies, only after having asked. Programs that are no browsers
name no origin.
"""

from __future__ import annotations

import re
from urllib.parse import urlsplit

from starlette.datastructures import Headers
from starlette.middleware.cors import CORSMiddleware
from starlette.types import ASGIApp, Receive, Scope, Send

_APPS = frozenset({"app", "file", "tauri", "vscode-webview", "vscode-file"})
"""Schemes of programs on the user's machine whose windows are pages, as Ollama has them."""

_HERE = re.compile(r"localhost|.+\.localhost|127(\.\d{1,3}){3}|::1|0\.0\.0\.0")


class AllowedOrigins:
    """Tells browsers which pages may read answers.

    Those are pages of this machine, of the host that the request went to, whatever the port, and windows of
    programs. With a key it is every page, since a page must know the key to get anywhere.
    """

    def __init__(self, app: ASGIApp, keyed: bool) -> None:
        self._app = app
        self._keyed = keyed
        self._answers = CORSMiddleware(
            app,
            allow_origins=["*"],
            allow_methods=["GET", "HEAD", "POST"],
            allow_headers=["*"],
            expose_headers=["Retry-After"],
        )

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        known = scope["type"] == "http" and self._knows(Headers(scope=scope))
        await (self._answers if known else self._app)(scope, receive, send)

    def _knows(self, headers: Headers) -> bool:
        origin = headers.get("origin")
        return origin is not None and (self._keyed or _is_near(origin, headers.get("host", "")))


def _is_near(origin: str, host: str) -> bool:
    try:
        page, server = urlsplit(origin), urlsplit(f"//{host}")
    except ValueError:  # brackets that hold no address
        return False
    if page.scheme not in ("http", "https"):
        return page.scheme in _APPS
    name = page.hostname or ""
    return bool(_HERE.fullmatch(name)) or name == server.hostname


def reads_as_json(headers: Headers) -> bool:
    """Whether a body is to be read as JSON: always, as in llama.cpp and Ollama, unless a page sent it.

    What says that it is JSON a browser sends only where the page may; other kinds it sends to anybody.
    """
    kind = headers.get("content-type", "").partition(";")[0].strip().lower()
    return "origin" not in headers or kind == "application/json" or kind.endswith("+json")
