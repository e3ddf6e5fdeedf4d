"""A server's address -> the events of its answers; whatever goes wrong on the way is one sentence."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import httpx

from onechip.errors import EngineError

CONNECT_S = 10.0
_LINE_END = re.compile(rb"\r\n|\n|\r(?!\Z)")  # a CR at the very end may be half of CR LF


@dataclass(frozen=True, slots=True)
class Readiness:
    """What our /ready says; `progress` is the share (0 to 1) of loading that is done."""

    status: str
    message: str
    stage: str = ""
    progress: float = 0.0


class Server:
    """A server that speaks OpenAI's chat protocol; not to be used from several threads at once."""

    def __init__(self, url: str, key: str | None = None, *, proxies: bool = True) -> None:
        """Nothing is sent yet.

        Args:
            url: http://host:port, with or without /v1 behind it.
            key: what is sent as a bearer token.
            proxies: heed HTTP_PROXY and its like.
        """
        self.url = url.rstrip("/").removesuffix("/v1")
        self._http = httpx.Client(
            headers={"Authorization": f"Bearer {key}"} if key else {},
            timeout=httpx.Timeout(CONNECT_S, read=None),
            trust_env=proxies,
        )

    def close(self) -> None:
        """Give its connections back."""
        self._http.close()

    def readiness(self) -> Readiness | None:
        """How far loading is; None for a server that does not say. Raises EngineError if nobody answers."""
        with self._failing():
            response = self._http.get(f"{self.url}/ready", timeout=CONNECT_S)
        try:
            said = response.json()
            return Readiness(said["status"], said["message"], said["stage"], said["progress"])
        except (ValueError, KeyError, TypeError):
            return None

    def model(self) -> str:
        """What it calls the first of its models. Raises EngineError if it does not say."""
        with self._failing():
            response = self._http.get(f"{self.url}/v1/models", timeout=CONNECT_S)
            _check(response)
        try:
            return str(response.json()["data"][0]["id"])
        except (ValueError, LookupError, TypeError):
            raise EngineError(
                f"{self.url}/v1/models names no model: name one, onechip chat MODEL --url {self.url}"
            ) from None

    @contextmanager
    def answer(self, body: dict[str, Any]) -> Iterator[Iterator[dict[str, Any]]]:
        """Ask; what is given is the events of the answer. Leaving hangs up, which ends the answer.

        Raises:
            EngineError: nobody answers, the request is refused, or the answer breaks off.
        """
        content, kind = json.dumps(body).encode(), {"Content-Type": "application/json"}
        question = self._http.stream("POST", f"{self.url}/v1/chat/completions", content=content, headers=kind)
        with self._failing(), question as response:
            if response.is_error:
                response.read()
            _check(response)
            yield self._read(response)

    def _read(self, response: httpx.Response) -> Iterator[dict[str, Any]]:
        for data in events(response.iter_bytes()):
            if data == "[DONE]":
                return
            try:
                event = json.loads(data)
            except ValueError:
                event = None
            if not isinstance(event, dict):
                raise EngineError(f"{self.url} sent an event that is no JSON object: {data[:80]}")
            if event.get("error"):
                raise EngineError(_sentence(event) or f"{self.url} ended the answer with an error.")
            yield event
        raise EngineError("The answer broke off: the server closed the connection before its end.")

    @contextmanager
    def _failing(self) -> Iterator[None]:
        try:
            yield
        except httpx.ConnectError:
            raise EngineError(
                f"No server answers at {self.url}: start one with onechip serve, or leave --url out."
            ) from None
        except (httpx.HTTPError, httpx.InvalidURL) as error:
            raise EngineError(f"{self.url}: {error or type(error).__name__}") from None


def events(pieces: Iterable[bytes]) -> Iterator[str]:
    """The data of each server-sent event, wherever the bytes are cut.

    httpx's own lines would not do: it also ends them at U+2028 and the like, which JSON may hold as they are.
    """
    rest, data = b"", list[bytes]()
    for piece in pieces:
        *lines, rest = _LINE_END.split(rest + piece)
        for line in lines:
            if line.startswith(b"data:"):
                data.append(line[5:].removeprefix(b" "))
            elif not line and data:
                yield b"\n".join(data).decode(errors="replace")
                data = []


def _check(response: httpx.Response) -> None:
    if response.is_success:
        return
    try:
        said = _sentence(response.json())
    except ValueError:
        said = None
    raise EngineError(said or f"{response.url} answered with status {response.status_code}.")


def _sentence(body: Any) -> str | None:
    """What an error body says, in the forms that servers have for it."""
    error = body.get("error", body) if isinstance(body, dict) else body
    found = error.get("message") if isinstance(error, dict) else error
    return found if isinstance(found, str) else None
