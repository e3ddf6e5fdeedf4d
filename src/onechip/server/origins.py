"""Which web pages may ask this server from a browser, and which bodies are JSON although they do not say so.

A browser lets a page read the answers of another server only if that server says so (CORS), and sends it what
the page likes, save for a few plain kinds of bodies, only after having asked. Programs that are no browsers
name no origin.
"""

from __future__ import annotations

import re
from urllib.parse import SplitResult, urlsplit

from starlette.datastructures import Headers
from starlette.middleware.cors import CORSMiddleware
from starlette.types import ASGIApp, Receive, Scope, Send

from onechip.errors import ForbiddenError
from onechip.server.errors import error_response

_APPS = frozenset({"app", "file", "tauri", "vscode-webview", "vscode-file"})
"""Schemes of programs on the user's machine whose windows are pages, as Ollama has them."""

_HERE = re.compile(r"localhost|.+\.localhost|127(\.\d{1,3}){3}|::1|0\.0\.0\.0")


_PRIVATE = re.compile(r"[^.]*|[\d.]+|.*:.*|.+\.(local|lan|internal|home\.arpa)")
"""Addresses, and names that nobody can have pointed at this machine but those who run its network."""


class AllowedOrigins:
    """Tells browsers which pages may read answers.

    Those are pages of this machine, of the host that the request went to, whatever the port, and windows of
    programs. With a key it is every page, since a page must know the key to get an answer.

    Whoever owns a public name can point it at this machine once his page is loaded (DNS rebinding); to the
    browser the server is then the page's own, so that it asks nobody. Without a key such pages are refused,
    unless they came by https: then something before this server has proved that the name is its own.
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
        headers = Headers(scope=scope) if scope["type"] == "http" else Headers()
        origin, app = headers.get("origin"), self._app
        if self._keyed:
            app = self._app if origin is None else self._answers
        elif origin is not None:
            app = self._for_page(*_page_and_server(origin, headers.get("host", "")), scope["path"])
        await app(scope, receive, send)

    def _for_page(self, page: SplitResult, server: str | None, path: str) -> ASGIApp:
        """What answers `page`, which asks for `path` at the host `server`, where there is no key."""
        if page.scheme not in ("http", "https"):
            return self._answers if page.scheme in _APPS else self._app
        name = page.hostname or ""
        if _HERE.fullmatch(name):
            return self._answers
        if name != server:
            return self._app
        if page.scheme == "https" or _PRIVATE.fullmatch(name):
            return self._answers
        error = ForbiddenError(
            f"This server has no key, so it answers no web page under the public name {name}, which a "
            "stranger could have pointed here: open the page by the machine's address, or start the server "
            "with --api-key.",
            code="public_name",
        )
        return error_response(path, error)


def _page_and_server(origin: str, host: str) -> tuple[SplitResult, str | None]:
    """The page that `origin` names, and the host that the request went to, without its port."""
    try:
        return urlsplit(origin), urlsplit(f"//{host}").hostname
    except ValueError:  # brackets that hold no address
        return urlsplit(""), None


def reads_as_json(headers: Headers) -> bool:
    """Whether a body is to be read as JSON: always, as in llama.cpp and Ollama, unless a page sent it.

    What says that it is JSON a browser sends only where the page may; other kinds it sends to anybody.
    """
    kind = headers.get("content-type", "").partition(";")[0].strip().lower()
    return "origin" not in headers or kind == "application/json" or kind.endswith("+json")
