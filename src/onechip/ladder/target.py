"""Where an engine listens: a base URL in, connections and request bytes for it out."""

from __future__ import annotations

import json
import ssl
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

from onechip.errors import UsageError


@dataclass(frozen=True, slots=True)
class Target:
    """An OpenAI-compatible server.

    Attributes:
        prefix: path before `/v1`, empty for most.
        api_key: sent as a bearer token; never stored in results.
    """

    host: str
    port: int
    prefix: str = ""
    tls: bool = False
    api_key: str | None = None

    @classmethod
    def parse(cls, url: str, api_key: str | None = None) -> Target:
        """Reads `http://host:port/v1`; the `/v1` may be left out.

        Raises:
            UsageError: it is not such a URL.
        """
        parts = urlsplit(url)
        try:
            port = parts.port
            (parts.hostname or "").encode("idna")  # as it is encoded when it is looked up
        except ValueError:
            port = -1
        if parts.scheme not in ("http", "https") or not parts.hostname or port == -1:
            raise UsageError(f"{url!r} is not the URL of a server; write it like http://127.0.0.1:8000/v1.")
        prefix = parts.path.rstrip("/").removesuffix("/v1")
        tls = parts.scheme == "https"
        return cls(parts.hostname, port or (443 if tls else 80), prefix, tls, api_key)

    @property
    def url(self) -> str:
        return f"http{'s' if self.tls else ''}://{self.host}:{self.port}{self.prefix}"

    @property
    def ssl_context(self) -> ssl.SSLContext | None:
        return ssl.create_default_context() if self.tls else None

    def request(self, path: str, body: dict[str, Any] | None = None) -> bytes:
        """The bytes of one HTTP/1.1 request: a GET, or a POST of `body` as JSON."""
        content = b"" if body is None else json.dumps(body, ensure_ascii=False).encode()
        lines = [
            f"{'GET' if body is None else 'POST'} {self.prefix}{path} HTTP/1.1",
            f"Host: {self.host}:{self.port}",
            "Accept: text/event-stream, application/json",
            "Accept-Encoding: identity",
            "User-Agent: onechip-ladder",
        ]
        if body is not None:
            lines += ["Content-Type: application/json", f"Content-Length: {len(content)}"]
        if self.api_key:
            lines.append(f"Authorization: Bearer {self.api_key}")
        return "\r\n".join(lines).encode() + b"\r\n\r\n" + content
