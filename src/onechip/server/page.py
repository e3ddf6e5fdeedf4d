"""The chat page at /: one file that needs nothing else, and a policy under which it can get nothing else."""

from __future__ import annotations

import base64
import hashlib
import re
from functools import cache
from importlib.resources import files

from starlette.requests import Request
from starlette.responses import HTMLResponse, Response


@cache
def _source() -> str:
    return files("onechip.server").joinpath("page.html").read_text("utf-8")


@cache
def _policy() -> str:
    """The Content-Security-Policy: this style, this script, requests to this server, and nothing else.

    With `require-trusted-types-for` browsers also refuse what would read a text as HTML.
    """
    return "; ".join(
        (
            "default-src 'none'",
            f"script-src {_hash('script')}",
            f"style-src {_hash('style')}",
            "img-src data:",
            "connect-src 'self'",
            "base-uri 'none'",
            "form-action 'none'",
            "frame-ancestors 'none'",
            "require-trusted-types-for 'script'",
            "trusted-types 'none'",
        )
    )


def _hash(tag: str) -> str:
    """CSP's source expression for the page's one element of that kind."""
    (content,) = re.findall(rf"<{tag}>(.*?)</{tag}>", _source(), re.DOTALL)
    digest = hashlib.sha256(content.encode()).digest()
    return f"'sha256-{base64.b64encode(digest).decode()}'"


async def page(_: Request) -> Response:
    """GET /: the page; it loads also while the model does not."""
    headers = {
        "Cache-Control": "no-cache",
        "Content-Security-Policy": _policy(),
        "Referrer-Policy": "no-referrer",
        "X-Content-Type-Options": "nosniff",
    }
    return HTMLResponse(_source(), headers=headers)
